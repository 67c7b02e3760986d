"""`envpool:ID`: episodes are those of EnvPool itself, one for each slot and batch, and belong to their seeds."""

import importlib.util
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import stormpg
from stormpg.envs import adapter
from stormpg.errors import EnvironmentFailure, InputError
from stormpg.sampling.episodes import Sampler

if importlib.util.find_spec("envpool") is None:
    pytest.skip("envpool is not installed: pip install 'stormpg[envpool]'", allow_module_level=True)
envpool = adapter("envpool").envpool

ALGORITHM = stormpg.storm_pg(S0=4, B=2)
SMALL = {"trajectories": 12, "seeds": 1, "horizon": 30}
# Gymnasium's, at the first look at the spaces of a pool; the library does not pass it on.
QUIET = pytest.mark.filterwarnings("ignore:.*precision lowered by casting to float32:UserWarning")


def played(env, n, horizon, slots=0, **settings):
    """A batch of n episodes, and their seeds."""
    policy, key = stormpg.policy_for(env, **settings), jax.random.key(1)
    with Sampler(env, horizon) as sampler:
        sampler.least = slots
        seeds, noise = sampler.randomness(policy, key, n)
        return sampler.play(policy, policy.init(key), seeds, noise), seeds


def by_hand(name, seed, actions, **settings):
    """Observations and rewards of one episode in a pool of one environment, until it ends."""
    pool = envpool.make(name, env_type="gymnasium", num_envs=1, seed=[int(seed)], **settings)
    seen, rewards = [pool.reset()[0][0]], []
    for action in actions:
        observation, reward, terminated, truncated, _ = pool.step(action[None])
        rewards.append(reward[0])
        if (terminated | truncated)[0]:
            break
        seen.append(observation[0])
    return seen, rewards


@QUIET
@pytest.mark.parametrize(
    ("name", "horizon", "policy"),
    [
        ("CartPole-v1", 60, {}),
        ("Pendulum-v1", 30, {"sigma": 4.0}),  # most actions are out of bounds
        ("HalfCheetah-v4", 20, {}),
        ("FrozenLake-v1", 100, {}),
    ],
)
def test_episodes_are_those_of_envpool(name, horizon, policy):
    env = stormpg.make(f"envpool:{name}")
    batch, seeds = played(env, 5, horizon, slots=8, **policy)  # three slots are not used
    assert env.name == f"envpool:{name}"
    assert batch.observation.dtype == batch.reward.dtype == np.float32
    for i, seed in enumerate(seeds):
        sent = env.unflatten(batch.action[i])
        seen, rewards = by_hand(name, seed, sent[:horizon])
        length = len(rewards)
        np.testing.assert_array_equal(batch.mask[i], np.arange(horizon) < length)
        np.testing.assert_allclose(batch.reward[i, :length], rewards, rtol=1e-6)
        np.testing.assert_array_equal(batch.reward[i, length:], 0)
        np.testing.assert_allclose(batch.observation[i, :length], [env.flatten(one) for one in seen[:length]], rtol=1e-6)
    if name == "Pendulum-v1":
        assert (np.abs(batch.action) > 2).mean() > 0.3
        assert np.abs(sent).max() == 2
    if name == "FrozenLake-v1":
        assert (batch.observation.sum(axis=-1)[batch.mask > 0] == 1).all()  # one-hot


def test_a_slot_plays_one_episode_a_batch():
    """EnvPool begins a new episode by itself one step after the end of the last: this never enters a batch."""
    env = stormpg.make("envpool:CartPole-v1")
    batch, _ = played(env, 16, 400)
    lengths = batch.mask.sum(axis=1)
    assert lengths.min() < lengths.max() < 400
    np.testing.assert_array_equal(batch.reward, batch.mask)
    assert (np.abs(batch.observation[..., 2])[batch.mask > 0] < 0.21).all()  # the pole has not fallen


def test_time_limits_are_truncations():
    assert stormpg.make("envpool:CartPole-v1").horizon == 500
    assert stormpg.make("envpool:HalfCheetah-v4").horizon == 1000
    assert stormpg.make("envpool:Blackjack-v1").horizon == 1000  # it has no limit
    env = stormpg.make("envpool:Pendulum-v1", max_episode_steps=7)
    assert env.horizon == 7
    np.testing.assert_array_equal(played(env, 3, 20)[0].mask.sum(axis=1), 7)


def test_a_trajectory_belongs_to_its_seed_with_any_number_of_threads():
    runs = [
        played(stormpg.make("envpool:CartPole-v1", num_threads=threads), n, 40)[0] for threads, n in ((0, 4), (1, 4), (2, 2))
    ]
    for four, one, two in zip(*runs, strict=True):
        np.testing.assert_array_equal(four, one)
        np.testing.assert_array_equal(four[:2, :5], two[:, :5])


@pytest.mark.slow
def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path):
    job = {"env": "envpool:Hopper-v4", "algorithm": ALGORITHM, **SMALL}
    whole = stormpg.train(**job)
    half = stormpg.train(**job, out=tmp_path / "run", progress=lambda now: now.trajectories < 6)
    assert not half.complete
    resumed = stormpg.train(**job, out=tmp_path / "run", resume=True)
    assert resumed.complete
    np.testing.assert_array_equal(resumed.columns["return"], whole.columns["return"])
    jax.tree.map(np.testing.assert_array_equal, resumed.states.params, whole.states.params)


@pytest.mark.slow
def test_the_agent_trains_saves_and_evaluates(tmp_path):
    stormpg.Agent("envpool:CartPole-v1", ALGORITHM, horizon=30).learn(12).save(tmp_path / "agent")
    agent = stormpg.Agent.load(tmp_path / "agent")
    assert agent.evaluate(episodes=3).returns.shape == (3,)
    assert agent.predict(np.zeros(4)) in (0, 1)


def test_actors_can_have_pools_of_their_own():
    pytest.importorskip("ray", reason="ray is not installed")
    from stormpg.sampling.ray_actors import sendable

    assert sendable(stormpg.make("envpool:HalfCheetah-v4", frame_skip=3))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("HalfCheeta-v4", {}, r"EnvPool has no environment 'HalfCheeta-v4': .*'HalfCheetah-v4'"),
        ("HalfCheetah-v4", {"num_envs": 3}, "cannot take num_envs, which this library chooses: leave it out"),
        ("HalfCheetah-v4", {"seed": 3}, "cannot take seed"),
        ("HalfCheetah-v4", {"num_threads": 10**6}, "num_threads is 1000000; expected a whole number from 0"),
        ("HalfCheetah-v4", {"frame_skp": 3}, "EnvPool cannot make HalfCheetah-v4: .*'frame_skp'"),
        ("CheetahRun-v1", {}, "envpool:CheetahRun-v1 has observations in a Dict space; expected a Box or Discrete"),
    ],
)
@QUIET
def test_what_cannot_be_made_is_one_line(name, settings, message):
    with pytest.raises(InputError, match=message) as error:
        stormpg.make(f"envpool:{name}", **settings)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (lambda seen, reward: (seen * np.nan, reward), r"gave an observation that is not a finite number .* at step 1 "),
        (lambda seen, reward: (seen, reward + np.inf), r"gave a reward that is not a finite number \(inf\) at step 1 "),
        (lambda seen, reward: 1 / 0, r"failed in an episode of the seeds \[\d+, \d+, \d+\]: ZeroDivisionError"),
    ],
    ids=["observation", "reward", "raise"],
)
def test_a_bad_environment_is_named_with_its_seeds(monkeypatch, trouble, words):
    kind = type(envpool.make("CartPole-v1", env_type="gymnasium"))
    step = kind.step

    def bad(self, *arguments):
        seen, reward, *rest = step(self, *arguments)
        return *trouble(seen, reward), *rest

    monkeypatch.setattr(kind, "step", bad)
    with pytest.raises(EnvironmentFailure, match="envpool:CartPole-v1 " + words):
        played(stormpg.make("envpool:CartPole-v1"), 3, 20)


def test_figures_of_a_notebook_are_still_shown():
    """EnvPool chooses a backend of Matplotlib for the whole process and its children; the adapter takes this back."""
    asked = "import os, stormpg; stormpg.make('envpool:CartPole-v1'); print(os.environ.get('MPLBACKEND'))"
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    done = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None"]

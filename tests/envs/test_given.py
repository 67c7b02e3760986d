"""Environments given as objects: an instance, wrapped or not, a vector environment, or a factory is used unchanged.

The results are compared with stepping a second environment by hand, with the same seeds and actions.
"""

import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import stormpg
from stormpg.engine.python_loop import Sampler
from stormpg.envs import as_environment
from stormpg.errors import InputError, StormpgWarning

ONE_BY_ONE = "is one environment: its episodes are played one after the other"
ALGORITHM = stormpg.storm_pg(S0=4, B=2)
SMALL = {"trajectories": 8, "seeds": 1, "horizon": 30}


class Halved(gymnasium.Wrapper):
    """A user-defined wrapper, which cannot be rebuilt from a name or a spec."""

    def __init__(self, env, factor):
        super().__init__(env)
        self.factor = factor

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, self.factor * reward, terminated, truncated, info


def plain():
    return gymnasium.make("CartPole-v1")


def changed():
    env = plain()
    env.unwrapped.gravity = 0.5
    env.unwrapped.force_mag = 3.0
    return env


GIVEN = {
    "made": plain,
    "bare": lambda: plain().unwrapped,
    "changed": changed,
    "own wrapper": lambda: Halved(changed(), 0.5),
    "reward": lambda: wrappers.TransformReward(changed(), lambda r: 3 * r),
    "stacked": lambda: wrappers.FrameStackObservation(changed(), 3),
    "limit": lambda: wrappers.TimeLimit(changed(), 7),
    "pendulum": lambda: gymnasium.make("Pendulum-v1", g=3.0),
    "rescaled": lambda: wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(0), np.float32(5)),
}


def played(env, n=5, horizon=30, seed=1):
    """A batch sampled by the library, and the seeds of its episodes."""
    policy, key = stormpg.policy_for(env), jax.random.key(seed)
    params = policy.init(key)
    seeds = np.random.default_rng(seed).integers(0, 2**31, n)
    noise = np.asarray(jax.vmap(lambda k: policy.noise(k, (horizon,)))(jax.random.split(key, n)))
    with Sampler(env, horizon) as sampler:
        return sampler.play(policy, params, seeds, noise), seeds


def by_hand(env, seed, actions, take):
    """Rewards of one episode with the given actions, until it ends."""
    env.reset(seed=int(seed))
    rewards = []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(take(action))
        rewards.append(reward)
        if terminated or truncated:
            break
    return rewards


def agrees(batch, seeds, make, take):
    for i, seed in enumerate(seeds):
        expected = by_hand(make(), seed, batch.action[i], take)
        assert batch.mask[i].sum() == len(expected)
        np.testing.assert_allclose(batch.reward[i][: len(expected)], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", GIVEN)
def test_an_instance_is_played_as_it_is(kind):
    given = GIVEN[kind]()
    env = as_environment(given)
    with pytest.warns(StormpgWarning, match=ONE_BY_ONE):
        batch, seeds = played(env)
    agrees(batch, seeds, GIVEN[kind], lambda action: env.unflatten(action[None])[0])
    if kind == "limit":
        assert env.horizon == 7
        assert batch.mask.sum(axis=1).max() == 7


def test_it_is_the_object_itself_and_it_stays_open():
    """The given object itself is used, not a copy: changes to it take effect at once, it warns once, and is not closed."""

    class Watched(gymnasium.Wrapper):
        resets = closed = 0

        def reset(self, **named):
            self.resets += 1
            return super().reset(**named)

        def close(self):
            self.closed += 1

    given = Watched(changed())
    env = as_environment(given)
    with pytest.warns(StormpgWarning, match=ONE_BY_ONE):
        before, _ = played(env)
    given.unwrapped.force_mag = 30.0
    after, _ = played(env)  # a second warning would be an error here
    assert given.resets == 10
    assert not np.array_equal(before.observation, after.observation)
    assert given.closed == 0


@pytest.mark.slow
def test_train_and_the_agent_take_what_is_given():
    """Regression test: a modified instance was discarded and replaced by an unmodified one."""
    settings = {"trajectories": 12, "seeds": 1, "horizon": 60}
    with pytest.warns(StormpgWarning, match=ONE_BY_ONE):
        own = stormpg.train(changed(), ALGORITHM, **settings).columns["return"]
    np.testing.assert_array_equal(own, stormpg.train(lambda **_: changed(), ALGORITHM, **settings).columns["return"])
    assert not np.array_equal(own, stormpg.train("gym:CartPole-v1", ALGORITHM, **settings).columns["return"])
    with pytest.warns(StormpgWarning, match=ONE_BY_ONE):
        agent = stormpg.Agent(changed(), ALGORITHM, horizon=60).learn(12)
    np.testing.assert_array_equal(agent.result.columns["return"], own)


class Silent(gymnasium.vector.VectorWrapper):
    """Return NaN (or `fill`) for slots whose episode has ended, whatever the inner environment returns."""

    def __init__(self, env, fill=np.nan):
        super().__init__(env)
        self.fill = fill

    def reset(self, **named):
        self.over = np.zeros(self.num_envs, bool)
        return super().reset(**named)

    def step(self, actions):
        assert np.isfinite(actions).all()
        before = self.over.copy()
        observations, rewards, terminated, truncated, info = super().step(actions)
        self.over |= terminated | truncated
        observations, rewards = observations.copy(), rewards.copy()
        observations[before], rewards[before] = self.fill, self.fill
        return observations, rewards, terminated, truncated, info


def sync(mode=AutoresetMode.NEXT_STEP):
    return SyncVectorEnv([changed] * 3, autoreset_mode=mode)


VECTORS = {
    "sync": sync,
    "same step": lambda: sync(AutoresetMode.SAME_STEP),
    "by hand": lambda: sync(AutoresetMode.DISABLED),
    "NaN": lambda: Silent(sync()),
    "async": lambda: AsyncVectorEnv([changed] * 3, context="forkserver"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", VECTORS)
def test_a_vector_environment_is_played_as_it_is(kind):
    given = VECTORS[kind]()
    env = as_environment(given)
    batch, seeds = played(env, n=5, horizon=200)  # two rounds; one slot of the second is unused
    assert env.horizon == (1000 if kind == "async" else 500)  # step limits in other processes are unknown
    assert len(set(batch.mask.sum(axis=1))) > 1
    agrees(batch, seeds, changed, int)
    assert all(np.isfinite(part).all() for part in batch)
    given.reset(seed=1)  # it is still open
    given.close()


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [False, True])
def test_what_ended_slots_give_enters_no_gradient(normalise):
    """With NaN after the end of an episode, gradients and statistics are finite and the same as with clean padding."""
    settings = {"trajectories": 12, "seeds": 1, "horizon": 60}
    runs = []
    for vector in (Silent(sync()), Silent(sync(), 0.0), sync()):
        env = as_environment(vector)
        runs.append(stormpg.train(env, ALGORITHM, **settings, policy=stormpg.policy_for(env, normalise=normalise)))
    assert not runs[0].columns["diverged"].any()
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].columns["gradient_norm"], other.columns["gradient_norm"])
        jax.tree.map(np.testing.assert_array_equal, runs[0].states.params, other.states.params)


def test_vectors_of_pictures_and_of_several_actions():
    class Grid(gymnasium.Env):
        observation_space = spaces.Box(0, 1, (2, 3))
        action_space = spaces.MultiDiscrete([2, 3], start=[1, 5])

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.uniform(size=(2, 3)).astype(np.float32), {}

        def step(self, action):
            assert self.action_space.contains(action)
            return np.zeros((2, 3), np.float32), float(action.sum()), False, False, {}

    env = as_environment(SyncVectorEnv([Grid] * 2))
    batch, _ = played(env, n=4, horizon=6)
    assert batch.observation.shape == (4, 6, 6)
    np.testing.assert_array_equal(batch.reward, batch.action.sum(axis=-1) + 6)


def test_where_copies_are_needed_a_factory_is_asked_for():
    pytest.importorskip("ray", reason="ray is not installed")
    with pytest.raises(InputError, match="give a function that makes one"):
        stormpg.train(plain(), ALGORITHM, **SMALL, rollout_workers=2)


def test_what_was_given_is_asked_for_again(tmp_path):
    """A saved agent is not rebuilt from the environment's name, which would give a different environment."""
    with pytest.warns(StormpgWarning, match=ONE_BY_ONE):
        stormpg.Agent(changed(), ALGORITHM, horizon=20).learn(6).save(tmp_path / "instance")
    stormpg.Agent(changed, ALGORITHM, horizon=20).learn(6).save(tmp_path / "factory")
    for kind in ("instance", "factory"):
        with pytest.raises(InputError, match="give env="):
            stormpg.Agent.load(tmp_path / kind)
        agent = stormpg.Agent.load(tmp_path / kind, env=changed)
        assert agent.predict(np.zeros(4)) in (0, 1)


def test_an_instance_is_drawn_if_it_draws(tmp_path):
    from stormpg.films.render import render

    with pytest.warns(StormpgWarning, match=ONE_BY_ONE):
        stormpg.Agent(changed(), ALGORITHM, horizon=20).learn(6).save(tmp_path / "run")
    with pytest.raises(InputError, match="was made with render_mode=None and cannot be drawn: make it with"):
        render(tmp_path / "run", tmp_path / "film.gif", env=changed())
    drawn = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    drawn.unwrapped.gravity, drawn.unwrapped.force_mag = 0.5, 3.0
    done = render(tmp_path / "run", tmp_path / "film.gif", env=drawn, deterministic=False)
    assert done.file.stat().st_size > 1000
    drawn.reset(seed=0)
    assert drawn.render().ndim == 3  # it is still open
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StormpgWarning)
        agent = stormpg.Agent.load(tmp_path / "run", env=drawn)
        np.testing.assert_allclose(done.returns, agent.evaluate(1).returns)
    drawn.close()


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict({"a": spaces.Box(0, 1), "bag": spaces.Sequence(spaces.Discrete(3))}), r"of the key \['bag'\] in Sequence"),
        (
            spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.Graph(spaces.Box(0, 1), None)))}),
            r"of the key \['a'\]\[1\] in Graph",
        ),
        (spaces.Sequence(spaces.Discrete(3)), r"^observations in Sequence"),
    ],
    ids=["dict", "nested", "alone"],
)
def test_what_cannot_be_flattened_is_named(space, words):
    class Odd(gymnasium.Env):
        observation_space, action_space = space, spaces.Discrete(2)

    with pytest.raises(InputError, match=words):
        as_environment(Odd())


def test_a_function_that_makes_nothing_new():
    """Rejected, because all slots would play their episodes in the same environment."""
    one = changed()
    with pytest.raises(InputError, match="own:lambda returns the same environment every time: give the environment"):
        stormpg.train(lambda **_: one, ALGORITHM, **SMALL)


def test_a_module_that_registers_an_environment(tmp_path, monkeypatch):
    """`gym:module:ID` imports the module first, as in `gym:highway_env:parking-v0`."""
    (tmp_path / "registers_one.py").write_text(
        "import gymnasium\n"
        "entry = 'gymnasium.envs.classic_control:CartPoleEnv'\n"
        "gymnasium.register('Registered-v0', entry, max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    env = stormpg.make("gym:registers_one:Registered-v0")
    assert (env.name, env.horizon) == ("gym:registers_one:Registered-v0", 9)
    assert played(env)[0].mask.sum(axis=1).max() == 9


def test_what_makes_no_environment():
    with pytest.raises(InputError, match="own:dict made a dict; expected a function that makes a Gymnasium environment"):
        as_environment(dict)
    with pytest.raises(InputError, match=r"gymnasium\.make\('no_such_module:X-v0'\) failed"):
        stormpg.make("gym:no_such_module:X-v0")

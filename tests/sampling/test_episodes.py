"""Environments outside JAX: the same algorithms and code, on Gymnasium environments."""

import os
import time

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import stormpg
from stormpg.engine import python_loop
from stormpg.envs import gym
from stormpg.errors import EnvironmentFailure, InputError, StormpgWarning

pytestmark = pytest.mark.slow

CARTPOLE = "gym:CartPole-v1"


class Toy(gymnasium.Env):
    """Ends after `length` steps. The reward is the first action. At step `at`, it causes the given trouble."""

    def __init__(self, length=5, at=3, trouble=None, action_space=None, render_mode=None):
        self.observation_space = spaces.Dict({"place": spaces.Box(-1, 1, (2, 2)), "room": spaces.Discrete(3)})
        self.action_space = action_space or spaces.Box(np.array([-1.0, -2.0]), np.array([1.0, 0.5]), dtype=np.float64)
        self.length, self.at, self.trouble, self.sent = length, at, trouble, []

    def look(self):
        return {"place": np.full((2, 2), self.start + self.steps, np.float32) / 100, "room": self.steps % 3}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.start = 0, float(self.np_random.uniform())
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        self.sent.append(action)
        observation, reward = self.look(), float(np.ravel(action)[0])
        if self.trouble and self.steps == self.at:
            if self.trouble == "raise":
                raise ZeroDivisionError("the wheel came off")
            if self.trouble == "reward":
                reward = float("nan")
            if self.trouble == "observation":
                observation["place"] = np.full((2, 2), np.inf, np.float32)
            if self.trouble == "shape":
                observation["place"] = np.zeros((3, 2), np.float32)
            if self.trouble == "hang":
                time.sleep(60)
            if self.trouble == "die":
                os._exit(7)
        return observation, reward, self.steps >= self.length, False, {}


def toy(**settings):
    return lambda **more: Toy(**settings, **more)


SMALL = {"trajectories": 12, "seeds": 1, "horizon": 8}
ALGORITHM = stormpg.storm_pg(S0=4, B=2)


@pytest.mark.parametrize("name", ["gpomdp", "pgt", "svrpg", "srvr-pg", "storm-pg", "svrpo"])
def test_the_same_trajectories_give_the_same_parameters(monkeypatch, name):
    """With the rollouts of the compiled loop, the Python loop gives the same results as the compiled loop."""
    env, inside = gym.make("CartPole-v1"), stormpg.make("cartpole")
    roll = jax.jit(stormpg.rollout, static_argnums=(0, 4, 5))
    policy = stormpg.policy_for(inside)
    monkeypatch.setattr(
        python_loop.Sampler, "sample", lambda self, _, params, key, n: roll(inside, policy, params, key, n, self.horizon)
    )
    sizes = {"S0": 6} if name in ("gpomdp", "pgt") else {"S0": 6, "B": 3}
    algorithm = stormpg.make_algorithm(name, **sizes, **({} if name in ("gpomdp", "pgt", "storm-pg") else {"m": 2}))
    a, b = (stormpg.train(e, algorithm, trajectories=40, seeds=2, horizon=20) for e in (env, inside))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5), a.states.params, b.states.params)
    for column in ("trajectories", "steps", "iteration", "large"):
        np.testing.assert_array_equal(a.columns[column], b.columns[column])
    np.testing.assert_allclose(a.columns["weight_max"], b.columns["weight_max"], rtol=1e-3)


def test_every_run_acts_by_its_own_policy():
    """Two settings with a σ of their own, one after the other in the same loop: the second acts as it does alone."""
    env = stormpg.make("gym:Pendulum-v1")
    policies = [stormpg.policy_for(env, sigma=sigma) for sigma in (0.1, 2.0)]
    together = stormpg.train(env, [ALGORITHM, ALGORITHM], policy=policies, **SMALL)
    alone = stormpg.train(env, ALGORITHM, policy=policies[1], **SMALL)
    setting = together.columns["setting"]
    np.testing.assert_array_equal(together.columns["return"][setting == 1], alone.columns["return"])
    assert (together.columns["return"][setting == 0] != alone.columns["return"]).any()


@pytest.mark.slow
def test_gymnasium_and_jax_learn_alike():
    """CartPole in Gymnasium and in JAX, 12 seeds each: the areas under the curves do not differ significantly."""
    from scipy.stats import ks_2samp

    areas = []
    for env, first in ((CARTPOLE, 0), ("cartpole", 100)):
        table = stormpg.train(env, stormpg.storm_pg(), trajectories=80, seeds=12, seed=first, horizon=100).columns
        areas.append([table["return"][table["seed"] == s].mean() for s in range(first, first + 12)])
    assert min(map(min, areas)) > 15
    assert ks_2samp(*areas).pvalue > 0.01, areas


def test_a_trajectory_belongs_to_its_index():
    """The first two of four trajectories equal a batch of two, and repeating a batch gives the same batch."""
    env = stormpg.make(CARTPOLE)
    policy, key = stormpg.policy_for(env), jax.random.key(3)
    params = policy.init(key)
    four, two, again = (stormpg.rollout(env, policy, params, key, n, 40) for n in (4, 2, 4))
    taken = lambda x, mask: np.asarray(x)[np.asarray(mask) > 0]
    for a, b, c in zip(four, two, again, strict=True):
        np.testing.assert_allclose(taken(a[:2], four.mask[:2]), taken(b, two.mask), rtol=1e-5)
        np.testing.assert_array_equal(a, c)
    assert (np.diff(four.mask, axis=1) <= 0).all()
    assert (np.asarray(four.reward) == np.asarray(four.mask)).all()  # +1 for each step, 0 after the end
    expected = jax.vmap(jax.vmap(policy.log_prob, (None, 0, 0)), (None, 0, 0))(params, four.observation, four.action)
    np.testing.assert_allclose(four.log_prob, np.where(four.mask > 0, expected, 0), rtol=1e-5)


def test_observations_are_flattened_and_actions_clipped_at_the_environment_alone():
    made = []

    def factory(**more):
        made.append(Toy(**more))
        return made[-1]

    env = gym.adapt(factory)
    assert env.observation_space.shape == (7,)  # 4 numbers, and a one-hot vector of 3 rooms
    assert env.action_space.shape == (2,)
    policy = stormpg.policy_for(env, sigma=5.0)
    batch = stormpg.rollout(env, policy, policy.init(jax.random.key(0)), jax.random.key(1), 3, 6)
    sent = np.array([action for one in made for action in one.sent])
    assert (sent >= [-1, -2]).all()
    assert (sent <= [1, 0.5]).all()
    assert np.abs(batch.action).max() > 2
    np.testing.assert_array_equal(batch.mask.sum(axis=1), 5)
    np.testing.assert_allclose(batch.observation[:, 0, 4:].sum(axis=-1), 1)


def test_environments_may_return_the_same_array():
    """All of a class share a buffer here, which each overwrites."""

    class Shared(gymnasium.Env):
        observation_space, action_space, buffer = spaces.Box(-1, 1, (2,)), spaces.Discrete(2), np.zeros(2, np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.own = self.np_random.uniform()
            return self.step(0)[0], {}

        def step(self, action):
            self.buffer[:] = self.own
            return self.buffer, 0.0, False, False, {}

    env = gym.adapt(lambda **more: Shared())
    policy = stormpg.policy_for(env)
    seen = stormpg.rollout(env, policy, policy.init(jax.random.key(0)), jax.random.key(1), 3, 4).observation
    assert len(np.unique(seen)) == 3
    np.testing.assert_array_equal(seen, seen[:, :1, :1].repeat(4, 1).repeat(2, 2))


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3, start=5), spaces.Box(-1, 1, (2, 2), np.float32), spaces.MultiDiscrete([2, 3], start=[4, 0])],
    ids=str,
)
def test_action_spaces(space):
    made = []

    def factory(**more):
        made.append(Toy(action_space=space, **more))
        return made[-1]

    assert not stormpg.train(factory, ALGORITHM, **SMALL).columns["diverged"].any()
    sent = [action for one in made for action in one.sent]
    assert len(sent) > 12  # at least one step of each episode
    assert all(space.contains(action) for action in sent)


def test_what_cannot_be_acted_in_is_said():
    for space in (spaces.Box(0, 9, (2,), np.int32), spaces.Text(3), spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))):
        with pytest.raises(InputError, match=r"actions in .* are not supported"):
            gym.adapt(toy(action_space=space))
    with pytest.raises(InputError, match="cannot make an environment from int"):
        stormpg.train(3, ALGORITHM)
    with pytest.raises(InputError, match="did you mean 'CartPole-v1'"):
        stormpg.make("gym:CartPol-v1")


def test_environments_vector_environments_and_factories_of_the_users():
    """Each is used as given: a single environment plays its episodes in turn, and the user's objects are not closed."""
    by_name = stormpg.train(CARTPOLE, ALGORITHM, **SMALL).columns["return"]
    with pytest.warns(StormpgWarning, match="one after the other"):
        made = stormpg.train(gymnasium.make("CartPole-v1"), ALGORITHM, **SMALL)
    np.testing.assert_array_equal(made.columns["return"], by_name)
    np.testing.assert_array_equal(
        stormpg.train(lambda **more: gymnasium.make("CartPole-v1", **more), ALGORITHM, **SMALL).columns["return"], by_name
    )
    bare = gymnasium.make("CartPole-v1").unwrapped
    bare.spec = None
    with pytest.warns(StormpgWarning, match="one after the other"):
        alone = stormpg.train(bare, ALGORITHM, **SMALL)
    np.testing.assert_array_equal(alone.columns["return"], by_name)
    vector = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    np.testing.assert_array_equal(stormpg.train(vector, ALGORITHM, **SMALL).columns["return"], by_name)
    vector.reset(seed=1)
    vector.close()


def test_processes_give_what_one_process_gives():
    together = stormpg.train(stormpg.make(CARTPOLE, asynchronous=True), ALGORITHM, **SMALL).columns
    alone = stormpg.train(CARTPOLE, ALGORITHM, **SMALL).columns
    for name, column in alone.items():
        np.testing.assert_array_equal(together[name], column)


TROUBLE = {
    "raise": r"raised ZeroDivisionError: the wheel came off, at step 3 of the episode with seed \d+",
    "reward": r"a reward that is not a finite number \(nan\) at step 3 of the episode with seed \d+",
    "observation": r"an observation that is not a finite number .* at step 3 of the episode with seed \d+",
    "shape": r"at step 3 of the episode with seed \d+",
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_bad_environment_stops_the_run_with_its_own_error_and_a_saved_state(tmp_path, trouble):
    """The trouble starts after some iterations, and the run up to then is saved."""
    calls = []

    def factory(**more):
        calls.append(1)
        return Toy(trouble=trouble if len(calls) > 1 else None, at=3, **more)

    env = gym.adapt(factory)
    count = [0]
    real = python_loop.Sampler.sample

    def later(self, *arguments, **named):
        count[0] += 1
        for one in self.open(arguments[3]).envs:
            one.env.trouble = trouble if count[0] > 3 else None
        return real(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_loop.Sampler, "sample", later)
        with pytest.raises(EnvironmentFailure, match=TROUBLE[trouble]) as failure:
            stormpg.train(env, ALGORITHM, **SMALL, out=tmp_path / "run")
    assert f"--resume {tmp_path / 'run'}" in failure.value.__notes__[0]
    assert list((tmp_path / "run").glob("checkpoint-*.safetensors"))
    # With a working environment, the run resumes where it stopped.
    healthy = gym.from_factory(env.name, toy())
    result = stormpg.train(healthy, ALGORITHM, **SMALL, out=tmp_path / "run", resume=True)
    assert result.columns["trajectories"].max() == 12


@pytest.mark.parametrize(
    ("trouble", "words"), [("hang", "took longer than 1.0 seconds"), ("die", "process of an environment died")]
)
def test_an_environment_that_hangs_or_dies(trouble, words):
    env = gym.from_factory("toy", toy(trouble=trouble), asynchronous=True, timeout=1.0 if trouble == "hang" else None)
    with pytest.raises(EnvironmentFailure, match=words):
        stormpg.train(env, ALGORITHM, **SMALL)


def test_evaluation_outside():
    env = stormpg.make(CARTPOLE)
    policy = stormpg.policy_for(env)
    played = stormpg.evaluate(env, policy, policy.init(jax.random.key(0)), episodes=7, horizon=30)
    assert played.returns.shape == (7,)
    np.testing.assert_array_equal(played.returns, played.lengths)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["InvertedPendulum-v5", "HalfCheetah-v5", "Hopper-v5", "Pendulum-v1", "LunarLander-v3"])
def test_real_ones_train(name):
    if name.endswith("-v5"):
        pytest.importorskip("mujoco", reason="MuJoCo is not installed")
    kinds = ({"continuous": True}, {}) if name == "LunarLander-v3" else ({},)
    for settings in kinds:
        env = stormpg.make(f"gym:{name}", **settings)
        result = stormpg.train(env, ALGORITHM, trajectories=8, seeds=1, horizon=50)
        assert np.isfinite(result.columns["return"]).all()
        assert not result.columns["diverged"].any()

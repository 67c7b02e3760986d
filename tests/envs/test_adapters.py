"""Environments of other libraries: gymnax and Brax inside the compiled program, rllab's Mountain-Car in Box2D outside it."""

import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg.errors import InputError
from stormpg.testing import check_environment

COUNT, KEY = 16, jax.random.key(0)
pytestmark = [  # warnings from Brax about itself and its use of its engine
    pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Brax System, piplines and environments:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data`:DeprecationWarning"),
]


def adapter(prefix):
    """The adapter module; the test is skipped if the adapted package is not installed."""
    module, package, extra = stormpg.envs.ADAPTERS[prefix]
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'stormpg[{extra}]'")
    return importlib.import_module(module)


def same(ours, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), ours, theirs)


@pytest.mark.parametrize("prefix", ["gymnax", "brax", "box2d", "envpool"])
def test_without_the_package_it_says_what_to_install(monkeypatch, prefix):
    monkeypatch.setitem(sys.modules, stormpg.envs.ADAPTERS[prefix][1], None)
    with pytest.raises(InputError, match=rf"pip install 'stormpg\[{prefix}\]'"):
        stormpg.make(f"{prefix}:something")


@pytest.mark.parametrize(
    ("prefix", "name", "settings", "message"),
    [
        ("gymnax", "pendulum", {}, "did you mean 'Pendulum-v1'"),
        ("gymnax", "Pendulum-v1", {"max_torqu": 1}, "did you mean 'max_torque'"),
        ("gymnax", "Pendulum-v1", {"g": {1, 2}}, "settings that are numbers"),
        ("gymnax", "FrozenLake-misc", {"map_name": "9x9"}, "cannot make FrozenLake-misc"),
        ("brax", "HalfCheetah", {}, "did you mean 'halfcheetah'"),
        ("brax", "reacher", {"backend": "none"}, "cannot make reacher"),
        ("brax", "reacher", {"backend": {1, 2}}, "settings that are numbers"),
        ("box2d", "mountain-car", {}, "did you mean 'rllab-mountain-car'"),
        ("box2d", "rllab-mountain-car", {"time_out": 3}, "did you mean 'timeout'"),
    ],
)
def test_what_there_is_not(prefix, name, settings, message):
    adapter(prefix)
    with pytest.raises(InputError, match=message):
        stormpg.make(f"{prefix}:{name}", **settings)


@pytest.mark.parametrize("name", ["Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1", "FrozenLake-misc", "Catch-bsuite"])
def test_gymnax_steps_are_its_own(name):
    judge, params = adapter("gymnax").gymnax.make(name)
    env, keys, space = stormpg.make(f"gymnax:{name}"), jax.random.split(KEY, COUNT), judge.action_space(params)
    state, seen = jax.vmap(env.reset)(keys)
    observation, own = jax.vmap(lambda key: judge.reset_env(key, params))(keys)
    same((state, seen), (own, jnp.reshape(observation, seen.shape)))
    step, judged = jax.jit(jax.vmap(env.step)), jax.jit(jax.vmap(lambda k, s, a: judge.step_env(k, s, a, params)))
    for t in range(8):
        action = legal = jax.vmap(space.sample)(jax.random.split(keys[t], COUNT))
        if hasattr(space, "low"):
            action = 2 * action  # some are out of bounds
            legal = jnp.clip(action, space.low, space.high)
        state, seen, reward, terminated = step(keys, state, action)
        observation, own, gain, ended, _ = judged(keys, own, legal)
        same((state, seen, reward), (own, jnp.reshape(observation, seen.shape), gain))
        assert (np.asarray(terminated) == np.asarray(ended)).all()
    assert reward.dtype == jnp.float32


def test_gymnax_ends_and_limits_are_told_apart_and_nothing_is_reset():
    adapter("gymnax")
    env = stormpg.make("gymnax:CartPole-v1", max_steps_in_episode=5)
    assert env.horizon == 5
    state, ends = env.reset(KEY)[0], []
    for _ in range(20):
        state, seen, _, terminated = env.step(KEY, state, jnp.ones((), int))
        ends.append(bool(terminated))
    assert ends == sorted(ends)  # it falls once, after the step limit, and stays terminated
    assert not any(ends[:7])
    assert ends[-1]
    assert int(state.time) == 20
    assert abs(float(seen[2])) > 0.21


def test_gymnax_conforms_and_trains():
    adapter("gymnax")
    env = stormpg.make("gymnax:Pendulum-v1")
    assert env == stormpg.make("gymnax:Pendulum-v1")
    assert env != stormpg.make("gymnax:Pendulum-v1", g=9.81)
    check_environment(env)
    check_environment(stormpg.make("gymnax:FrozenLake-misc", map_name="8x8"))
    result = stormpg.train("gymnax:Pendulum-v1", "storm-pg", trajectories=60, seeds=2)
    assert np.isfinite(result.columns["return"]).all()
    assert result.horizon == 200


def test_brax_steps_are_its_own_and_nothing_is_reset():
    judge, keys = adapter("brax").envs.get_environment("inverted_pendulum", backend="spring"), jax.random.split(KEY, COUNT)
    env = stormpg.make("brax:inverted_pendulum", backend="spring")
    assert env == stormpg.make("brax:inverted_pendulum", backend="spring")
    (state, seen), own = jax.vmap(env.reset)(keys), jax.vmap(judge.reset)(keys)
    step, judged = jax.jit(jax.vmap(env.step)), jax.jit(jax.vmap(judge.step))
    action = 1 + jax.random.normal(KEY, (COUNT, 1))
    for _ in range(30):
        state, seen, reward, terminated = step(keys, state, action)
        own = judged(own, jnp.clip(action, -1, 1))
        same((seen, reward), (own.obs, own.reward))
        assert (np.asarray(terminated) == np.asarray(own.done, bool)).all()
    assert terminated.any()
    assert (np.abs(seen[:, 1]) > 0.2)[terminated].all()


def test_brax_conforms_and_trains():
    adapter("brax")
    check_environment(stormpg.make("brax:fast"))
    result = stormpg.train("brax:fast", "storm-pg", trajectories=30, seeds=2, horizon=20)
    assert np.isfinite(result.columns["return"]).all()


def test_box2d_episodes_belong_to_their_seed():
    env = adapter("box2d").MountainCar()
    episode = lambda seed: [env.reset(seed=seed)[0], *(env.step([np.sign(t % 40 - 20)])[0] for t in range(60))]
    first, other = episode(3), episode(4)
    np.testing.assert_array_equal(first, episode(3))
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_box2d_trains():
    adapter("box2d")
    result = stormpg.train("box2d:rllab-mountain-car", "storm-pg", trajectories=20, seeds=1, horizon=30)
    assert result.env.horizon == 1000
    assert len(result.columns["return"]) == 3
    assert (result.columns["return"] < -20).all()

"""The fused kernels against the plain way, number by number. Without a GPU they are interpreted; with one, compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stormpg import fused
from stormpg.envs import make
from stormpg.fused import kernels
from stormpg.fused.lanes import Unfit, on_lanes
from stormpg.policies import policy_for
from stormpg.scores import log_probs, score_sum
from stormpg.trajectories import Trajectories, noise_of, rollout

INTERPRET = jax.default_backend() == "cpu"
CASES = [
    ("cartpole-continuous", {}, 60),
    ("cartpole-continuous", {"learn_sigma": True, "hidden": (20,)}, 60),
    ("cartpole", {}, 60),
    ("rllab-cartpole", {}, 20),
    ("rllab-mountain-car", {}, 10),
    ("pendulum", {}, 10),
]


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "horizon"), CASES)
def test_kernels_equal_the_plain_way(name, shape, horizon, monkeypatch):
    env, n = make(name), 5  # not a power of two: some lanes are empty
    policy = policy_for(env, **shape)
    key = jax.random.key(1)
    params = policy.init(jax.random.key(3))
    keys = jax.random.split(key, (n, 3))
    start, noise = jax.vmap(env.reset)(keys[:, 0]), noise_of(policy, keys[:, 1], horizon)
    monkeypatch.setenv("STORMPG_FUSED", "0")
    with jax.default_matmul_precision("highest"):
        plain = rollout(env, policy, params, key, n, horizon)
        batch = Trajectories(*kernels.rollout(env, policy, params, start, noise, horizon, INTERPRET))
        np.testing.assert_array_equal(batch.mask, plain.mask)
        for ours, theirs in zip(batch, plain, strict=True):
            live = jnp.reshape(plain.mask, plain.mask.shape + (1,) * (theirs.ndim - 2)) > 0
            np.testing.assert_allclose(jnp.where(live, ours, 0), jnp.where(live, theirs, 0), rtol=1e-4, atol=1e-4)
            assert jnp.isfinite(ours).all()

        other = jax.tree.map(lambda x: x + 0.1, params)
        np.testing.assert_allclose(
            kernels.log_probs(policy, other, batch, INTERPRET), log_probs(policy, other, batch), rtol=1e-4, atol=1e-4
        )
        coefficient = jax.random.normal(key, batch.mask.shape) * batch.mask
        ours = kernels.score_sum(policy, other, batch, coefficient, INTERPRET)
        theirs = score_sum(policy, other, batch, coefficient)
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), ours, theirs)


def test_some_episodes_ended_in_these_tests():
    env = make("cartpole-continuous")
    policy = policy_for(env)
    mask = rollout(env, policy, policy.init(jax.random.key(3)), jax.random.key(1), 5, 60).mask
    assert (mask[:, -1] == 0).any()


@pytest.mark.slow
def test_kernels_map_over_runs():
    env, n, horizon = make("cartpole-continuous"), 3, 8
    policy = policy_for(env)
    params = jax.vmap(policy.init)(jax.random.split(jax.random.key(0), 2))
    batch = jax.vmap(lambda p, k: rollout(env, policy, p, k, n, horizon))(params, jax.random.split(jax.random.key(1), 2))
    both = jax.vmap(lambda p, b: kernels.log_probs(policy, p, b, INTERPRET))(params, batch)
    for run in range(2):
        pick = lambda tree, run=run: jax.tree.map(lambda x: x[run], tree)
        np.testing.assert_allclose(both[run], log_probs(policy, pick(params), pick(batch)), rtol=1e-4, atol=1e-4)


def test_an_environment_that_draws_is_left_to_the_plain_way():
    env = make("lqr")
    key = jax.eval_shape(jax.random.key, 0)
    state, _ = jax.eval_shape(env.reset, key)
    with pytest.raises(Unfit, match="random key"):
        on_lanes(env.step, key, state, jax.ShapeDtypeStruct(env.action_space.shape, jnp.float32))


def test_a_function_of_scalars_on_lanes():
    def function(x, y):
        stacked = jnp.stack((x, y, x * y))
        total = jax.lax.fori_loop(0, 3, lambda _, total: total + stacked.sum(), jnp.zeros(()))
        return jnp.where(stacked.max() > 1, total, -total), jnp.argmax(stacked), stacked[::-1] @ jnp.arange(3.0)

    number = jax.ShapeDtypeStruct((), jnp.float32)
    x, y = jnp.array([0.5, 2.0, -1.0]), jnp.array([0.25, 3.0, 4.0])
    ours = on_lanes(function, number, number)(x, y)
    for a, b in zip(ours, jax.vmap(function)(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_where_the_kernels_apply(monkeypatch):
    policy = policy_for(make("cartpole-continuous"))
    params = policy.init(jax.random.key(0))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert fused.applies(policy, params)
    assert not fused.applies(policy_for(make("cartpole-continuous"), hidden=(8, 8)), params)
    assert not fused.applies(policy_for(make("chain")), params)
    monkeypatch.setenv("STORMPG_FUSED", "0")
    assert not fused.applies(policy, params)

"""The settings that the default algorithm recommends for a policy: a slow σ, a small output layer, scaled observations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg.algorithms import EXPLORING
from stormpg.errors import InputError
from stormpg.policies.acting import actor
from stormpg.policies.constructors import policy_of_algorithm
from stormpg.policies.descriptions import describe_policy, from_description
from stormpg.sampling import rollout

ENV = stormpg.make("pendulum")


@pytest.mark.parametrize("normalise", [False, "large"])
def test_sigma_changes_by_no_more_than_its_step(normalise):
    policy = stormpg.policy_for(ENV, learn_sigma=True, sigma_step=0.01, normalise=normalise)
    params = policy.init(jax.random.key(0))
    inner = lambda tree: tree["policy"] if normalise else tree
    for change, allowed in ((0.005, 0.005), (-3.0, -0.01), (0.2, 0.01)):
        moved = jax.tree.map(lambda x, change=change: x + change, params)
        limited = policy.limit_step(params, moved, jnp.array(7.0))
        np.testing.assert_allclose(inner(limited)["log_sigma"] - inner(params)["log_sigma"], allowed, rtol=1e-4)
        np.testing.assert_array_equal(inner(limited)["mean"][0]["weight"], inner(moved)["mean"][0]["weight"])


@pytest.mark.parametrize(("steps", "share"), [(0, 0.0), (150, 0.25), (600, 1.0), (3000, 1.0)])
def test_sigma_changes_less_after_small_batches(steps, share):
    policy = stormpg.policy_for(ENV, learn_sigma=True, sigma_step=0.01, sigma_batch=600)
    params = policy.init(jax.random.key(0))
    moved = jax.tree.map(lambda x: x + 1.0, params)
    limited = policy.limit_step(params, moved, jnp.array(float(steps)))
    np.testing.assert_allclose(limited["log_sigma"] - params["log_sigma"], share * 0.01, rtol=1e-4, atol=1e-9)


def test_a_training_respects_the_step_of_sigma():
    policy = stormpg.policy_for(ENV, learn_sigma=True, sigma_step=0.01)
    result = stormpg.train(ENV, stormpg.gpomdp(eta=0.5, S0=2), 12, seeds=2, horizon=10, policy=policy)
    for run in range(2):
        assert abs(float(result.params(seed=run)["log_sigma"][0])) <= 6 * 0.01 + 1e-6
    free = stormpg.policy_for(ENV, learn_sigma=True)
    free = stormpg.train(ENV, stormpg.gpomdp(eta=0.5, S0=2), 12, seeds=2, horizon=10, policy=free)
    assert abs(float(free.params()["log_sigma"][0])) > 0.1


def test_only_large_observations_are_scaled():
    policy = stormpg.policy_for(ENV, normalise="large")
    params = policy.init(jax.random.key(0))
    batch = rollout(ENV, policy, params, jax.random.key(1), 4, 20)
    batch = batch._replace(observation=batch.observation * jnp.array([0.1, 1e-3, 50.0]) + jnp.array([0.0, 0.0, 7.0]))
    params = policy.observe(params, params, batch)
    shift, spread = policy.shift_and_spread(params)
    root = np.sqrt(np.mean(np.asarray(batch.observation)[..., 2] ** 2))
    np.testing.assert_allclose(shift, 0)
    np.testing.assert_allclose(spread, [1, 1, root], rtol=1e-5)
    seen = np.float32([[0.1, 0.2, 30.0]])
    np.testing.assert_allclose(actor(policy, params).mode(seen)[0], policy.mode(params, jnp.asarray(seen[0])), rtol=1e-4)


@pytest.mark.parametrize("env", ["pendulum", "cartpole", "chain"])
def test_an_algorithm_recommends_a_policy(env):
    env, row = stormpg.make(env), stormpg.window_npg()
    policy = policy_of_algorithm(env, row.policy.content)
    again = from_description(env, describe_policy(policy))
    assert describe_policy(again) == describe_policy(policy)
    if env.name != "chain":  # a table has no such settings
        assert describe_policy(policy)["output_scale"] == EXPLORING["output_scale"]
        assert describe_policy(policy)["normalise"] == "large"
        params = policy.policy.init(jax.random.key(0))
        assert float(jnp.abs(params["mean" if env.name == "pendulum" else "logits"][-1]["weight"]).max()) < 0.02
        assert describe_policy(stormpg.Agent(env).policy) == describe_policy(policy)
        assert describe_policy(stormpg.Agent(env, output_scale=0.5).policy)["output_scale"] == 0.5
        assert "output_scale" not in describe_policy(stormpg.Agent(env, "storm-pg").policy)


def test_wrong_settings():
    with pytest.raises(InputError, match="normalise is 'small'"):
        stormpg.policy_for(ENV, normalise="small")
    with pytest.raises(InputError, match="sigma_step is 0"):
        stormpg.policy_for(ENV, learn_sigma=True, sigma_step=0)
    with pytest.raises(InputError, match="sigma_batch is 0"):
        stormpg.policy_for(ENV, learn_sigma=True, sigma_batch=0)

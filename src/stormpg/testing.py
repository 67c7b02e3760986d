"""Conformance checks for environments, policies, estimators and algorithms, including your own.

    from stormpg.testing import check_algorithm, check_environment, check_policy

Each function raises an AssertionError that says what is wrong. They are fast and need only the core of the library.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import Algorithm
from stormpg.engine.iteration import Setup, begin, cost
from stormpg.envs import Box, Discrete, Environment, MultiDiscrete, make
from stormpg.estimators import Estimator, estimate
from stormpg.policies.constructors import check_policy as check_actions
from stormpg.policies.constructors import policy_for
from stormpg.sampling import rollout
from stormpg.train import train


def check_environment(env: Environment, steps: int = 50) -> None:
    """Check that it is pure and can be batched, has constant shapes and finite numbers, and respects its declared spaces."""
    key = jax.random.key(0)
    state, observation = jax.jit(env.reset)(key)
    _in_space("observation", observation, env.observation_space)
    again = jax.jit(env.reset)(key)
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a, b, "reset is not a function of its key"), (state, observation), again
    )
    action = _some_action(env, key)
    ahead, seen, reward, terminated = jax.jit(env.step)(key, state, action)
    structures: list[Any] = [jax.tree.structure(tree) for tree in (ahead, state)]
    assert structures[0] == structures[1], "step changes the structure of the state"
    assert shapes(ahead) == shapes(state), f"step changes the state's shapes or types: {shapes(state)} to {shapes(ahead)}"
    assert shapes(seen) == shapes(observation), "step and reset give observations of different shapes or types"
    assert jnp.shape(reward) == (), "the reward is not one number"
    assert jnp.issubdtype(reward.dtype, jnp.floating), "the reward is not a float"
    assert jnp.shape(terminated) == (), "terminated is not one truth value"
    assert terminated.dtype == jnp.bool_, "terminated is not a truth value"
    assert env.horizon >= 1, "the horizon is not at least 1"

    policy = policy_for(env)
    batch = jax.jit(lambda k: rollout(env, policy, policy.init(k), k, 4, steps))(key)
    assert all(bool(jnp.isfinite(x).all()) for x in batch), "a rollout holds numbers that are not finite"
    ended = jnp.diff(batch.mask, axis=1)
    assert bool((ended <= 0).all()), "an episode goes on after its end"
    if isinstance(env.action_space, Box):
        far = jnp.full(env.action_space.shape, 1e6)
        wild = jax.jit(env.step)(key, state, far)[1]
        assert bool(jnp.isfinite(wild).all()), "an action of a million leaves the finite numbers: clip it"


def shapes(tree: Any) -> Any:
    """The shape and type of every leaf."""
    return jax.tree.map(lambda x: (jnp.shape(x), jnp.result_type(x)), tree)


def check_policy(env: Environment, policy: Any) -> None:
    """Check that samples fit the environment, densities match the samples, and the mean score is zero."""
    check_actions(env, policy)
    key = jax.random.key(0)
    params = jax.jit(policy.init)(key)
    observation = jax.jit(env.reset)(key)[1]
    sample = jax.jit(jax.vmap(lambda k: policy.sample(params, k, observation)))(jax.random.split(key, 4000))
    score = jax.jit(jax.vmap(lambda a: jax.grad(policy.log_prob)(params, observation, a)))(sample)
    for leaf in jax.tree.leaves(score):
        deviation = leaf.std(axis=0) / np.sqrt(len(leaf)) + 1e-6
        assert bool((jnp.abs(leaf.mean(axis=0)) < 6 * deviation).all()), "E[∇log π] is not 0: log_prob is not the sampler's"
    best = jax.jit(lambda: policy.log_prob(params, observation, policy.mode(params, observation)))()
    density = jax.jit(jax.vmap(lambda a: policy.log_prob(params, observation, a)))(sample)
    assert bool((density <= best + 1e-4).all()), "a sample has a larger density than the mode"
    if hasattr(policy, "noise") and hasattr(policy, "act"):
        acted = policy.act(params, observation, policy.noise(key, ()))
        np.testing.assert_allclose(
            acted, policy.sample(params, key, observation), rtol=1e-5, err_msg="sample is not act ∘ noise"
        )


def check_estimator(estimator: Estimator, env: Environment | None = None) -> None:
    """Check that on-policy weights are 1, the order does not matter, and a batch without rewards has no gradient."""
    env = env or make("cartpole-continuous")
    policy, key = policy_for(env), jax.random.key(0)
    params = jax.jit(policy.init)(key)
    batch = jax.jit(lambda key: rollout(env, policy, params, key, 6, 20))(key)
    of = jax.jit(lambda batch: estimate(estimator, policy, params, batch))
    here = of(batch)
    np.testing.assert_allclose(here.weight, 1.0, rtol=1e-4, err_msg="on-policy weights are not 1")
    turned = of(jax.tree.map(lambda x: x[::-1], batch)).gradient
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3, err_msg="the order of a batch matters")
    jax.tree.map(close, here.gradient, turned)
    nothing = of(batch._replace(reward=jnp.zeros_like(batch.reward))).gradient
    assert all(float(jnp.abs(x).max()) < 1e-6 for x in jax.tree.leaves(nothing)), "there is a gradient without a reward"


def check_algorithm(algorithm: Algorithm, env: Environment | None = None) -> None:
    """Check that it trains within its budget, counts correctly, is reproducible, and that seeds differ."""
    env = env or make("cartpole-continuous")
    horizon = min(env.horizon, 20)
    setup = Setup(env, horizon, policy_for(env), algorithm)
    costs = [cost(setup, jax.eval_shape(lambda: begin(setup, 0)), large) for large in (True, False)]
    budget = 3 * (costs[0] + 3 * costs[1])
    result = train(env, algorithm, trajectories=budget, seeds=3, horizon=horizon)
    table = result.columns
    assert np.isfinite(table["return"]).all(), "a return is not finite"
    assert not table["diverged"].any(), "it diverged"
    assert table["trajectories"].max() <= budget, "it sampled more than its budget"
    assert table["trajectories"].max() > budget - max(costs), "it stopped early"
    assert (np.diff(table["trajectories"]) >= 0)[np.diff(table["seed"]) == 0].all(), "the count of trajectories falls"
    first = table["iteration"] == 0
    assert (table["trajectories"][first] == costs[0]).all(), "the first batch is not a large one"
    moved = [
        float(jnp.abs(a - b).max()) for a, b in zip(*(jax.tree.leaves(result.params("last", s)) for s in (0, 1)), strict=True)
    ]
    assert max(moved) > 0, "two seeds have the same parameters"
    again = train(env, algorithm, trajectories=budget, seeds=3, horizon=horizon)
    for name, column in table.items():
        np.testing.assert_array_equal(column, again.columns[name], f"{name} differs when the same is run again")


def _some_action(env: Environment, key: Any) -> Any:
    if isinstance(env.action_space, Discrete):
        return jax.random.randint(key, (), 0, env.action_space.n)
    if isinstance(env.action_space, MultiDiscrete):
        return jax.random.randint(key, env.action_space.shape, 0, jnp.asarray(env.action_space.sizes))
    return jax.random.uniform(key, env.action_space.shape, minval=-1.0, maxval=1.0)


def _in_space(name: str, value: Any, space: Any) -> None:
    if isinstance(space, Discrete):
        assert jnp.issubdtype(value.dtype, jnp.integer), f"the {name} is not an integer"
        assert bool((value >= 0) & (value < space.n)), f"the {name} is outside 0..{space.n - 1}"
    else:
        assert value.shape == space.shape, f"the {name} has shape {value.shape}, declared {space.shape}"
        assert bool(((value >= space.low) & (value <= space.high)).all()), f"the {name} is outside its bounds"

"""Observation normalisation is exact: statistics cover all observations, and weights use the policies that sampled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg.estimators import estimate
from stormpg.policies.acting import actor
from stormpg.sampling import rollout
from stormpg.testing import check_policy

ENV = stormpg.make("pendulum")
POLICY = stormpg.policy_for(ENV, normalise=True)


def after(batches, horizon=20):
    """Parameters whose statistics include a number of batches, and those batches."""
    params, seen = POLICY.init(jax.random.key(0)), []
    for i in range(batches):
        batch = rollout(ENV, POLICY, params, jax.random.key(i + 1), 4, horizon)
        seen.append(batch)
        params = POLICY.observe(params, params, batch)
    return params, seen


@pytest.mark.slow
def test_the_statistics_are_those_of_everything_seen(float64):
    params, seen = after(5)
    everything = np.concatenate([np.asarray(b.observation[b.mask > 0]) for b in seen])
    shift, spread = POLICY.shift_and_spread(params)
    np.testing.assert_allclose(shift, everything.mean(axis=0), rtol=1e-8)
    np.testing.assert_allclose(spread, np.sqrt(everything.var(axis=0) + 1e-8), rtol=1e-8)


def test_nothing_is_scaled_before_anything_was_seen():
    np.testing.assert_allclose(POLICY.scale(POLICY.init(jax.random.key(0)), jnp.array([1.0, -2.0, 3.0])), [1, -2, 3], rtol=1e-6)


@pytest.mark.slow
def test_gradients_do_not_move_the_statistics():
    params, seen = after(2)
    g = stormpg.gradient(stormpg.estimators.gpomdp(0.99), POLICY, params, seen[-1])
    assert all(float(jnp.abs(x).max()) == 0 for x in jax.tree.leaves(g["seen"]))
    assert any(float(jnp.abs(x).max()) > 0 for x in jax.tree.leaves(g["policy"]))


@pytest.mark.slow
def test_weights_against_older_parameters_use_their_own_statistics(float64):
    """Each density in the ratio uses its own statistics: the old parameters old ones, the sampling parameters new ones."""
    old, _ = after(1)
    new, _ = after(3)
    batch = rollout(ENV, POLICY, new, jax.random.key(9), 3, 10)
    found = estimate(stormpg.estimators.gpomdp(0.99), POLICY, old, batch).weight
    densities = [
        jax.vmap(jax.vmap(POLICY.log_prob, (None, 0, 0)), (None, 0, 0))(p, batch.observation, batch.action) for p in (old, new)
    ]
    np.testing.assert_allclose(found, np.exp(np.cumsum(densities[0] - densities[1], axis=1)), rtol=1e-6)
    assert np.abs(found - 1).max() > 1e-3


@pytest.mark.slow
def test_it_is_a_policy_and_acts_alike_in_numpy():
    check_policy(ENV, POLICY)
    params, _ = after(3)
    observations = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    noise = np.random.default_rng(1).normal(size=(6, 1)).astype(np.float32)
    there = jax.vmap(POLICY.act, (None, 0, 0))(params, observations, noise)
    np.testing.assert_allclose(actor(POLICY, params).act(observations, noise), there, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        actor(POLICY, params).mode(observations), jax.vmap(POLICY.mode, (None, 0))(params, observations), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_it_trains_and_is_saved(tmp_path):
    result = stormpg.train(
        ENV, stormpg.storm_pg(S0=4, B=2), trajectories=20, seeds=2, horizon=10, policy=POLICY, out=tmp_path / "run"
    )
    assert float(result.params("last")["seen"].number) == 200  # all steps of all trajectories
    back = dict((seed, params) for _, seed, params in stormpg.runs.run_folder.Run(tmp_path / "run").iterates("last"))
    jax.tree.map(np.testing.assert_array_equal, back[1], result.params("last", seed=1))


@pytest.mark.slow
def test_svrpo_and_normalisation():
    result = stormpg.train(ENV, stormpg.svrpo(S0=6, B=3, m=2), trajectories=18, seeds=1, horizon=10, policy=POLICY)
    assert float(result.params("last")["seen"].number) == 180  # small batches are subsets of the large one, not counted again

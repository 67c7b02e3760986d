"""Sums over blocks of steps equal the plain sums."""

import functools

import jax
import numpy as np
import pytest

import stormpg
from stormpg import scores
from stormpg.pytrees import stack
from stormpg.trajectories import Trajectories

ENV = stormpg.make("cartpole-continuous")
POLICY = stormpg.policy_for(ENV)
PARAMS = POLICY.init(jax.random.key(1))
roll = jax.jit(functools.partial(stormpg.rollout, ENV, POLICY), static_argnums=(2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [40, 100, 137])
def test_blocks_are_the_plain_sums(monkeypatch, horizon, float64):
    """For horizons that are and are not a multiple of the block size, with episodes that end in different blocks."""
    params, other = POLICY.init(jax.random.key(1)), POLICY.init(jax.random.key(2))
    batch = roll(params, jax.random.key(3), 7, horizon)
    coefficient = jax.random.normal(jax.random.key(4), batch.mask.shape) * batch.mask
    found = {}
    for short in (0, 1000):
        monkeypatch.setattr(scores, "SHORT", short)
        both = lambda: (
            scores.log_probs_in_blocks(POLICY, other, batch),
            scores.score_sum(POLICY, other, batch, coefficient),
        )
        found[short] = jax.jit(both)()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found[0], found[1000])


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [40, 137])
def test_a_sum_over_blocks_and_its_derivatives_are_the_plain_ones(monkeypatch, horizon, float64):
    params, other = POLICY.init(jax.random.key(1)), POLICY.init(jax.random.key(2))
    batch = roll(params, jax.random.key(3), 5, horizon)
    found = {}
    for short in (0, 1000):
        monkeypatch.setattr(scores, "SHORT", short)
        value = lambda part, at: (np.e ** scores.log_probs(POLICY, at, part) * part.reward * part.mask).sum()
        total = lambda at, value=value: scores.block_sum(lambda part: value(part, at), batch)
        curved = lambda at, along, total=total: jax.jvp(jax.grad(total), (at,), (along,))[1]
        runs = jax.vmap(total, axis_name="runs")
        slope = jax.jit(jax.value_and_grad(total))(other)
        found[short] = slope, jax.jit(curved)(other, params), jax.jit(runs)(stack([params, other]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), found[0], found[1000])


@pytest.mark.slow
def test_runs_mapped_together_are_runs_alone(monkeypatch, float64):
    monkeypatch.setattr(scores, "SHORT", 0)
    one_run = lambda key: stormpg.gradient(
        stormpg.estimators.gpomdp(0.9),
        POLICY,
        POLICY.init(jax.random.key(2)),
        roll(POLICY.init(jax.random.key(1)), key, 3, 120),
    )
    keys = jax.random.split(jax.random.key(5), 4)
    mapped, alone = jax.jit(jax.vmap(one_run, axis_name="runs"))(keys), jax.jit(one_run)
    for i, key in enumerate(keys):
        one = alone(key)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-8, atol=1e-10), mapped, one)


def test_dead_blocks_are_not_computed(monkeypatch):
    """Non-finite numbers after the end of all episodes have no effect, because those blocks are skipped."""
    monkeypatch.setattr(scores, "SHORT", 0)
    batch = roll(PARAMS, jax.random.key(2), 4, 60)
    assert batch.mask[:, 50:].sum() == 0
    broken = Trajectories(*(x.at[:, 50:].set(np.nan) if x is batch.observation else x for x in batch))
    for leaf in jax.tree.leaves(jax.jit(lambda: scores.score_sum(POLICY, PARAMS, broken, broken.mask))()):
        assert np.isfinite(leaf).all()

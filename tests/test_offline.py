"""POIS's step: its bound, the gradient of the bound, and that it never decreases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import stormpg
from stormpg import estimators, steps
from stormpg.contract import Here, Tracked
from stormpg.errors import InputError
from stormpg.steps.offline import bound
from stormpg.theory import enumeration
from stormpg.trajectories import Batch, discounted

GAMMA = 0.95


@pytest.fixture
def sampled(float64):
    """A batch of a small network, and what a step gets."""
    env = stormpg.make("lqr")
    policy = stormpg.policy_for(env, hidden=(3,))
    params = jax.tree.map(lambda x: x.astype(float), policy.init(jax.random.key(1)))
    batch = Batch(stormpg.rollout(env, policy, params, jax.random.key(2), 6, 8), params)
    here = Here(jax.random.key(0), jnp.asarray(0), params, policy, estimators.reinforce(GAMMA, "none"), True, 6)
    return here, batch


def test_the_bound_is_its_formula(float64):
    w, R, delta = np.array([0.5, 1.0, 3.0]), np.array([-2.0, 1.0, 0.5]), 0.2
    expected = np.mean(w * R) - np.sqrt((1 - delta) / delta * np.mean(w**2) / 3) * 2.0
    np.testing.assert_allclose(bound(jnp.log(w), jnp.asarray(R), jnp.asarray(delta), False), expected)
    v = w / w.mean()
    expected = np.mean(v * R) - np.sqrt((1 - delta) / delta * np.mean(v**2) / 3) * 2.0
    np.testing.assert_allclose(bound(jnp.log(w), jnp.asarray(R), jnp.asarray(delta), True), expected)


def test_negative_returns_do_not_drive_it_away(float64):
    """Without self-normalised weights the bound of negative returns increases as all weights vanish."""
    returns, delta = jnp.array([-1.0, -2.0, -3.0]), jnp.asarray(0.9)
    near, far = jnp.zeros(3), jnp.full(3, -5.0)
    assert bound(far, returns, delta, False) > bound(near, returns, delta, False)
    np.testing.assert_allclose(bound(far, returns, delta, True), bound(near, returns, delta, True))


@pytest.mark.parametrize("self_normalised", [False, True])
@pytest.mark.parametrize("failure", [0.1, 0.99])
def test_its_gradient_is_that_of_finite_differences(sampled, failure, self_normalised):
    here, batch = sampled
    value, ascent = steps.offline(0.1, failure, GAMMA, self_normalised=self_normalised).on(here, batch)
    flat, unravel = ravel_pytree(here.params)
    at = flat + 0.05  # off-policy, where the weights are not 1
    found = ravel_pytree(ascent(unravel(at)))[0]
    for i in range(len(flat)):
        e = 1e-6 * jnp.eye(len(flat))[i]
        np.testing.assert_allclose(found[i], (value(unravel(at + e)) - value(unravel(at - e))) / 2e-6, rtol=1e-5, atol=1e-7)


def test_without_a_penalty_it_begins_along_reinforce(sampled):
    here, batch = sampled
    _, ascent = steps.offline(0.1, 1 - 1e-15, GAMMA, self_normalised=False).on(here, batch)
    expected = here.estimate(here.params, batch).gradient
    for x, y in zip(jax.tree.leaves(ascent(here.params)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5 * float(jnp.abs(y).max()))


def test_the_weighted_return_and_its_gradient_are_unbiased(float64):
    """Over all batches of two of the smallest chain, at parameters that did not sample them."""
    every, policy = enumeration.small_chain(2), stormpg.softmax_table(3, 2)
    there, here = ({"logits": jnp.asarray(np.random.default_rng(seed).normal(size=(3, 2)))} for seed in (0, 1))
    taken, chance = enumeration.sampled_by(policy, there, every)
    at = Here(jax.random.key(0), jnp.asarray(0), there, policy, estimators.reinforce(GAMMA, "none"), True, 2)
    step = steps.offline(0.1, 1 - 1e-16, GAMMA, self_normalised=False)  # without a penalty
    both = lambda batch: tuple(function(here) for function in step.on(at, Batch(batch, there)))
    value, slope = enumeration.expectation_over_batches(both, taken, chance, 2)
    objective = lambda params: enumeration.objective(policy, params, every, GAMMA)
    np.testing.assert_allclose(value, objective(here), atol=1e-7)
    np.testing.assert_allclose(slope["logits"], jax.grad(objective)(here)["logits"], atol=1e-7)


@pytest.mark.parametrize("eta", [0.01, 100.0])
def test_the_bound_never_decreases(sampled, eta):
    here, batch = sampled
    step = steps.offline(eta, 0.5, GAMMA)
    value, _ = step.on(here, batch)
    moved, _ = step.apply(here, Tracked(here.params, (), batch), ())
    assert value(moved) > value(here.params)
    returns = discounted(batch.trajectories, GAMMA).sum(axis=1)
    start = returns.mean() - jnp.sqrt(1 / 6) * jnp.abs(returns).max()  # δ = ½, all weights 1
    np.testing.assert_allclose(value(here.params), start)


def test_settings_of_pois():
    for wrong in ({"failure": 1.0}, {"eta": 0.0}, {"iterations": 0}):
        with pytest.raises(InputError):
            stormpg.pois(**wrong)

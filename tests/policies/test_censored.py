"""The density of clipped actions, against quadrature: it sums to 1, its score has the right mean and less variance, its KL."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.integrate import quad

import stormpg
from stormpg.policies.censored import Censored
from stormpg.policies.constructors import censor
from stormpg.policies.descriptions import describe_policy, from_description

INFINITE = float("inf")
BOUNDS = {"both": (-1.0, 1.0), "below": (-0.5, INFINITE), "above": (-INFINITE, 0.2), "none": (-INFINITE, INFINITE)}
SEEN = jnp.array([0.3, -0.7])


def policies(low, high):
    plain = stormpg.gaussian_mlp(2, 1, hidden=(3,), learn_sigma=True, sigma=0.6)
    clipped = censor(plain, np.array([low]), np.array([high]))
    return plain, clipped, plain.init(jax.random.key(4)), plain.init(jax.random.key(5))


def integral(function, low, high, inside):
    """Of a function of the action over the law of the clipped action: atoms at the bounds, and `inside` between them."""
    points = (max(low, -8.0), min(high, 8.0))
    atoms = [x for x in (low, high) if np.isfinite(x)]
    return quad(lambda a: inside(a) * function(a), *points, epsabs=1e-11)[0], atoms


@pytest.mark.parametrize(("low", "high"), BOUNDS.values(), ids=BOUNDS)
def test_probabilities_of_the_clipped_action_sum_to_one(float64, low, high):
    _, policy, params, _ = policies(low, high)
    density = lambda a: float(jnp.exp(policy.log_prob(params, SEEN, jnp.array([a]))))
    between, atoms = integral(lambda a: 1.0, low, high, density)
    assert between + sum(density(bound) for bound in atoms) == pytest.approx(1, abs=1e-8)
    for bound in atoms:  # every action beyond a bound is the same to the environment
        assert density(bound) == density(bound + np.sign(bound) * 3)


@pytest.mark.parametrize(("low", "high"), BOUNDS.values(), ids=BOUNDS)
def test_the_score_has_the_same_mean_and_no_more_variance(float64, low, high):
    """E[score · f(clip(a))] is the same for both densities, the gradient of E[f(clip(a))]; the variance is smaller."""
    plain, policy, params, _ = policies(low, high)
    random = np.random.default_rng(0)
    quantiles = (np.arange(20_000) + random.random(20_000)) / 20_000
    actions = plain.act(params, SEEN, jnp.asarray(stats.norm.ppf(quantiles))[:, None])
    value = jnp.sin(3 * jnp.clip(actions[:, 0], low, high)) + 2

    def scores(one):
        each = jax.vmap(lambda a: ravel_pytree(jax.grad(one.log_prob)(params, SEEN, a))[0])(actions)
        return each * value[:, None]

    ours, theirs = scores(policy), scores(plain)
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=2e-3)
    assert float(ours.var(axis=0).sum()) <= float(theirs.var(axis=0).sum()) * (1 + 1e-9)
    if BOUNDS["both"] == (low, high):
        assert float(ours.var(axis=0).sum()) < 0.9 * float(theirs.var(axis=0).sum())


@pytest.mark.parametrize(("low", "high"), BOUNDS.values(), ids=BOUNDS)
def test_the_divergence(float64, low, high):
    """KL against quadrature; 0 at the same parameters; without bounds, that of the Gaussian."""
    plain, policy, params, other = policies(low, high)
    other = {**other, "log_sigma": other["log_sigma"] - 0.3}
    log = lambda who, a: float(policy.log_prob(who, SEEN, jnp.array([a])))
    ratio = lambda a: log(params, a) - log(other, a)
    between, atoms = integral(ratio, low, high, lambda a: np.exp(log(params, a)))
    expected = between + sum(np.exp(log(params, bound)) * ratio(bound) for bound in atoms)
    assert float(policy.kl(params, other, SEEN)) == pytest.approx(expected, abs=1e-8)
    assert float(policy.kl(params, params, SEEN)) == pytest.approx(0, abs=1e-12)
    if not atoms:
        assert float(policy.kl(params, other, SEEN)) == pytest.approx(float(plain.kl(params, other, SEEN)), abs=1e-12)
    else:
        assert float(policy.kl(params, other, SEEN)) < float(plain.kl(params, other, SEEN))


def test_far_beyond_a_bound_everything_is_finite():
    """In float32, with a mean 1000 deviations beyond a bound: no score, no divergence, no NaN."""
    _, policy, params, _ = policies(-1.0, 1.0)
    params = {**params, "log_sigma": jnp.array([-4.0])}
    for shift in (30.0, -30.0):
        far = {**params, "mean": [params["mean"][0], {**params["mean"][1], "bias": jnp.array([shift])}]}
        farther = {**far, "mean": [far["mean"][0], {**far["mean"][1], "bias": jnp.array([2 * shift])}]}
        score = ravel_pytree(jax.grad(policy.log_prob)(far, SEEN, policy.mode(far, SEEN)))[0]
        fisher = ravel_pytree(jax.jvp(jax.grad(lambda x: policy.kl(far, x, SEEN)), (far,), (params,))[1])[0]  # noqa: B023
        for found in (score, fisher, policy.kl(far, farther, SEEN)):
            np.testing.assert_allclose(found, 0, atol=1e-6)


def test_which_policies_are_censored():
    made = stormpg.policy_for(stormpg.make("pendulum"), censored=True)
    assert isinstance(made, Censored)
    assert made.bounds == ((-2.0,), (2.0,))
    again = from_description(stormpg.make("pendulum"), describe_policy(made))
    assert dataclasses.asdict(again) == dataclasses.asdict(made)
    assert "censored" not in describe_policy(stormpg.policy_for(stormpg.make("pendulum")))
    # No bounds; and rewards that depend on how far an action is beyond its bounds.
    for env in ("lqr", "mountain-car-continuous"):
        assert not isinstance(stormpg.policy_for(stormpg.make(env), censored=True), Censored)

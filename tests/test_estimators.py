"""Every estimator is exactly unbiased with every baseline, computed over all trajectories and batches in float64."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax.flatten_util import ravel_pytree

import stormpg
from stormpg.baselines import BASELINES
from stormpg.contract import Here
from stormpg.errors import InputError
from stormpg.estimators import Estimator, estimate, surrogate
from stormpg.theory.enumeration import enumerate_trajectories, expectation_over_batches, objective, sampled_by, small_chain
from stormpg.trajectories import Batch, Trajectories, mixture_log_prob

GAMMA = 0.9
PAIRS = [(name, baseline) for name, baselines in BASELINES.items() for baseline in baselines]
CASES = [(*pair, n, h) for pair in PAIRS for n, h in ([(1, 4)] if pair[1] == "none" else [(2, 3), (3, 2)])]
ESTIMATORS = {"gpomdp": stormpg.estimators.gpomdp, "reinforce": stormpg.estimators.reinforce, "pgt": stormpg.estimators.pgt}


def two_parameters(policy, scale: float = 1.0):
    template = policy.init(jax.random.key(0))
    flat, unravel = ravel_pytree(template)
    draws = scale * np.random.default_rng(1).normal(size=(2, len(flat)))
    return unravel(jnp.asarray(draws[0])), unravel(jnp.asarray(draws[1]))


@pytest.mark.parametrize("off_policy", [False, True], ids=["on", "off"])
@pytest.mark.parametrize(("name", "baseline", "n", "horizon"), CASES)
def test_unbiased(float64, name, baseline, n, horizon, off_policy):
    """E_{ξ'}[d^{ξ'}(ξ)] = ∇L(ξ). Leave-one-out baselines need several trajectories: all pairs and all triples are used."""
    policy, every = stormpg.softmax_table(3, 2), small_chain(horizon)
    params, other = two_parameters(policy)
    trajectories, probability = sampled_by(policy, other if off_policy else params, every)
    np.testing.assert_allclose(probability.sum(), 1.0, rtol=1e-12)
    estimator = ESTIMATORS[name](GAMMA, baseline)

    def mean(batch):
        return estimate(estimator, policy, params, batch, on_policy=not off_policy).gradient

    expected = jax.grad(lambda p: objective(policy, p, every, GAMMA))(params)
    found = expectation_over_batches(mean, trajectories, probability, n)
    np.testing.assert_allclose(ravel_pytree(found)[0], ravel_pytree(expected)[0], rtol=0, atol=1e-9)
    assert np.abs(ravel_pytree(expected)[0]).max() > 1e-2


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_mixture_is_unbiased(float64, name):
    """E[d^{mixture}(ξ)] = ∇L(ξ), over all pairs of trajectories that were sampled at two different parameters and pooled."""
    policy, every = stormpg.softmax_table(3, 2), small_chain(3)
    params, other = two_parameters(policy)
    third = jax.tree.map(lambda a, b: 0.3 * a - 0.8 * b, params, other)
    (ones, p), (twos, q) = (sampled_by(policy, who, every) for who in (other, third))
    here = Here(jax.random.key(0), jnp.asarray(0), params, policy, ESTIMATORS[name](GAMMA, "none"), False, 1)

    def pooled(i, j):
        one = lambda every, k, who: Batch(jax.tree.map(lambda x: x[k][None], every), who)
        both = here.pool((one(ones, i, other), one(twos, j, third)))
        return ravel_pytree(here.estimate(params, both).gradient)[0]

    i, j = (x.ravel() for x in jnp.meshgrid(jnp.arange(len(p)), jnp.arange(len(q)), indexing="ij"))
    found = (p[i] * q[j]) @ jax.jit(jax.vmap(pooled))(i, j)
    expected = ravel_pytree(jax.grad(lambda p: objective(policy, p, every, GAMMA))(params))[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_a_mixture_of_one_is_the_sampler(float64):
    """For a single batch, or several at the same parameters, the density of the mixture is the density of the sampler."""
    log_probs = -np.random.default_rng(0).random((1, 4, 5))
    np.testing.assert_allclose(mixture_log_prob(jnp.asarray(log_probs), jnp.ones(1)), log_probs[0], rtol=1e-12)
    twice = jnp.asarray(np.concatenate((log_probs, log_probs)))
    np.testing.assert_allclose(mixture_log_prob(twice, jnp.array([0.3, 0.7])), log_probs[0], rtol=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_shared_baseline_keeps_the_correction_unbiased(float64, name):
    """With the baseline of the on-policy term, the off-policy term is still ∇L(ξ_ref) in expectation."""
    policy, every = stormpg.softmax_table(3, 2), small_chain(3)
    here, there = two_parameters(policy)
    trajectories, probability = sampled_by(policy, here, every)
    estimator = ESTIMATORS[name](GAMMA, "optimal")

    def other_term(batch):
        first = estimate(estimator, policy, here, batch, on_policy=True)
        return estimate(estimator, policy, there, batch, first.baseline).gradient

    found = expectation_over_batches(other_term, trajectories, probability, 2)
    expected = jax.grad(lambda p: objective(policy, p, every, GAMMA))(there)
    np.testing.assert_allclose(ravel_pytree(found)[0], ravel_pytree(expected)[0], rtol=0, atol=1e-9)


def test_objective_agrees_with_dynamic_programming(float64):
    """Check the enumeration against backward recursion on the tables."""
    from stormpg.envs.chain import chain_tables

    tables, horizon = chain_tables(3, slip=0.3), 4
    policy = stormpg.softmax_table(3, 2)
    params, _ = two_parameters(policy)
    chosen = np.asarray(jax.nn.softmax(params["logits"], axis=1))
    value = np.zeros(3)
    for _ in range(horizon):
        to_come = tables.R + GAMMA * np.where(tables.terminal, 0.0, value)
        value = np.einsum("sa,sat,sat->s", chosen, tables.P, to_come)
    exact = enumerate_trajectories(tables, horizon)
    np.testing.assert_allclose(objective(policy, params, exact, GAMMA), tables.rho @ value, rtol=1e-12)


def variance(estimator: Estimator, n: int = 2) -> float:
    policy, every = stormpg.softmax_table(3, 2), small_chain(3)
    params, _ = two_parameters(policy, 0.3)
    trajectories, probability = sampled_by(policy, params, every)

    def moments(batch):
        d = ravel_pytree(estimate(estimator, policy, params, batch, on_policy=True).gradient)[0]
        return d, d * d

    mean, square = expectation_over_batches(moments, trajectories, probability, n)
    return float((square - mean**2).sum())


def test_gpomdp_has_less_variance_than_reinforce(float64):
    """§2.2: GPOMDP drops the rewards that came before an action."""
    assert variance(stormpg.estimators.gpomdp(GAMMA, "none")) < 0.9 * variance(stormpg.estimators.reinforce(GAMMA, "none"))


def test_on_policy_weights_are_one(float64):
    """d^{ξ}(ξ) ≡ d(ξ) for every estimator."""
    policy, every = stormpg.softmax_table(3, 2), small_chain(3)
    params, _ = two_parameters(policy)
    trajectories, _ = sampled_by(policy, params, every)
    for name, baseline in PAIRS:
        plain = ESTIMATORS[name](GAMMA, baseline)
        for estimator in (plain,) if baseline == "optimal" else (plain, surrogate(plain)):
            a = estimate(estimator, policy, params, trajectories)
            b = estimate(estimator, policy, params, trajectories, on_policy=True)
            np.testing.assert_allclose(a.weight, 1.0, rtol=1e-12)
            np.testing.assert_allclose(ravel_pytree(a.gradient)[0], ravel_pytree(b.gradient)[0], rtol=1e-10, atol=1e-14)


def test_gradient_against_the_formula(float64):
    """mean_i Σ_h w_h C_h (γ^h r_h − b_h), with NumPy loops, for the linear Gaussian policy of §2.3."""
    rng = np.random.default_rng(0)
    n, horizon, sigma = 4, 6, 0.7
    psi = lambda s: jnp.stack((s[0], s[1], s[0] * s[1]))
    policy = stormpg.gaussian_linear(psi, 3, 1, sigma=sigma)
    here, there = ({"mean": jnp.asarray(rng.normal(size=(3, 1)))} for _ in range(2))
    lengths = np.array([6, 3, 5, 1])
    mask = (np.arange(horizon) < lengths[:, None]).astype(float)
    s, a = rng.normal(size=(n, horizon, 2)), rng.normal(size=(n, horizon, 1))
    r = rng.normal(size=(n, horizon)) * mask

    def density(xi, i, h):
        features = np.array([s[i, h, 0], s[i, h, 1], s[i, h, 0] * s[i, h, 1]])
        gap = a[i, h, 0] - features @ np.asarray(xi["mean"])[:, 0]
        return -(gap**2) / (2 * sigma**2) - np.log(np.sqrt(2 * np.pi) * sigma), gap * features / sigma**2

    expected = np.zeros(3)
    for i in range(n):
        weight, score = 1.0, np.zeros(3)
        for h in range(horizon):
            if mask[i, h]:
                new, slope = density(there, i, h)
                weight, score = weight * np.exp(new - density(here, i, h)[0]), score + slope
            b = GAMMA**h * np.mean([r[j, h] for j in range(n) if j != i])
            expected += weight * score * (GAMMA**h * r[i, h] - b) / n
    old = np.array([[density(here, i, h)[0] for h in range(horizon)] for i in range(n)]) * mask
    batch = Trajectories(*(jnp.asarray(x) for x in (s, a, r, mask, old)))
    found = stormpg.gradient(stormpg.estimators.gpomdp(GAMMA), policy, there, batch)
    np.testing.assert_allclose(np.asarray(found["mean"])[:, 0], expected, rtol=1e-10)


@st.composite
def batches(draw):
    """Random trajectories of a table with 3 states and 2 actions, some padded. Only two shapes: each is compiled."""
    n, horizon = draw(st.sampled_from((1, 3))), 5
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = rng.integers(1, horizon + 1, n)
    mask = (np.arange(horizon) < lengths[:, None]).astype(np.float32)
    s, a = rng.integers(0, 3, (n, horizon)), rng.integers(0, 2, (n, horizon))
    r = (rng.normal(size=(n, horizon)) * mask).astype(np.float32)
    log_prob = (np.log(rng.uniform(0.2, 0.8, (n, horizon))) * mask).astype(np.float32)
    return Trajectories(*(jnp.asarray(x) for x in (s, a, r, mask, log_prob)))


POLICY = stormpg.softmax_table(3, 2)
PARAMS = {"logits": jnp.asarray(np.random.default_rng(3).normal(size=(3, 2)), jnp.float32)}
compiled = jax.jit(lambda estimator, batch: stormpg.gradient(estimator, POLICY, PARAMS, batch)["logits"])


def same(name, baseline, one, other):
    estimator = ESTIMATORS[name](GAMMA, baseline)
    np.testing.assert_allclose(compiled(estimator, one), compiled(estimator, other), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("name", "baseline"), PAIRS)
@settings(max_examples=20, deadline=None)
@given(batch=batches(), junk=st.integers(0, 2))
def test_padding_changes_nothing(name, baseline, batch, junk):
    """More padded steps do not change the gradient, whatever they contain."""
    longer = Trajectories(*(np.pad(x, ((0, 0), (0, 3))) for x in batch))
    same(name, baseline, batch, longer._replace(observation=np.where(longer.mask > 0, longer.observation, junk)))


@pytest.mark.parametrize(("name", "baseline"), PAIRS)
@settings(max_examples=20, deadline=None)
@given(batch=batches(), seed=st.integers(0, 1000))
def test_order_changes_nothing(name, baseline, batch, seed):
    order = np.random.default_rng(seed).permutation(batch.reward.shape[0])
    same(name, baseline, batch, Trajectories(*(np.asarray(x)[order] for x in batch)))


@pytest.mark.parametrize(("name", "baseline"), PAIRS)
@settings(max_examples=20, deadline=None)
@given(batch=batches(), action=st.integers(0, 1))
def test_masked_steps_do_not_count(name, baseline, batch, action):
    same(name, baseline, batch, batch._replace(action=np.where(batch.mask > 0, batch.action, action)))


@pytest.mark.parametrize("gamma", [0.0, -0.1, 1.01, float("nan")])
def test_gamma_is_checked(gamma):
    with pytest.raises(InputError, match="gamma"):
        stormpg.estimators.gpomdp(gamma)


def test_baselines_are_checked():
    with pytest.raises(InputError, match="did you mean 'optimal'"):
        stormpg.estimators.gpomdp(0.9, "optimol")
    with pytest.raises(InputError, match="goes with pgt"):
        stormpg.estimators.gpomdp(0.9, "value")

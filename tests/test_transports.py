"""Transports: their exact expectations over all batches, Hessian-vector products, and identities between trackers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import stormpg
from stormpg import estimators, rates, schedules, steps, trackers
from stormpg.algorithms import Algorithm
from stormpg.contract import Here
from stormpg.errors import InputError
from stormpg.pytrees import add
from stormpg.theory.enumeration import expectation_over_batches, objective, sampled_by, small_chain
from stormpg.trajectories import Batch, mixture_log_prob
from tests.test_estimators import ESTIMATORS, two_parameters

POLICY, GAMMA, N = stormpg.softmax_table(3, 2), 0.9, 2
EVERY = small_chain(3)
KINDS = [(name, baseline) for name in ESTIMATORS for baseline in ("none", "time")]


def at(params, estimator, large=False):
    return Here(jax.random.key(0), jnp.asarray(1), params, POLICY, estimator, large, N)


def exact(params):
    """∇L(ξ)."""
    return jax.grad(lambda x: objective(POLICY, x, EVERY, GAMMA))(params)


def close(found, expected, atol=1e-9):
    np.testing.assert_allclose(ravel_pytree(found)[0], ravel_pytree(expected)[0], rtol=1e-9, atol=atol)


@pytest.fixture
def setting(float64):
    """ξ_t, and a memory at ξ_ref with any c."""
    here, there = two_parameters(POLICY)
    c = jax.tree.map(lambda x: jnp.full_like(x, 0.3), here)
    return here, trackers.Memory(there, c)


def moved(here, memory):
    return add(exact(here), exact(memory.params), -1.0)


# ---- expectations given the past


@pytest.mark.parametrize(("name", "baseline"), KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_weights_are_unbiased(setting, name, baseline, alpha):
    """E[g_t] = α ∇L(ξ_t) + (1 − α) [c + ∇L(ξ_t) − ∇L(ξ_ref)]."""
    here, memory = setting
    taken, chance = sampled_by(POLICY, here, EVERY)
    tracker = trackers.storm(alpha)
    of = lambda batch: tracker.track(at(here, ESTIMATORS[name](GAMMA, baseline)), (Batch(batch, here),), memory).gradient
    expected = add(exact(here), add(memory.gradient, exact(memory.params), -1.0), 1 - alpha)
    close(expectation_over_batches(of, taken, chance, N), expected)


@pytest.mark.parametrize(("name", "baseline"), KINDS)
@pytest.mark.parametrize("b", [0.0, 0.3, 0.5])
def test_a_defensive_mixture_is_unbiased_and_bounded(setting, name, baseline, b):
    """Both terms, with trajectories drawn independently from the mixture. Weights are at most 1/(1 − b) and 1/b."""
    here, memory = setting
    (taken, p), (other, q) = (sampled_by(POLICY, params, EVERY) for params in (here, memory.params))
    mixed = taken._replace(log_prob=mixture_log_prob(jnp.stack([taken.log_prob, other.log_prob]), jnp.array([1 - b, b])))
    now = at(here, ESTIMATORS[name](GAMMA, baseline))
    of = lambda batch: trackers.defensive(b).carry(now, (Batch(batch, None),), memory)[:2]
    fresh, change = expectation_over_batches(of, mixed, (1 - b) * p + b * q, N)
    close(fresh, exact(here))
    close(change, moved(here, memory))
    weights = [np.exp(np.cumsum(one.log_prob - mixed.log_prob, axis=1)) for one in (taken, other)]
    assert weights[0].max() <= 1 / (1 - b) + 1e-9
    assert b == 0 or weights[1].max() <= 1 / b + 1e-9


def test_a_second_batch_is_independent_of_the_first(setting):
    """HSPGA: d(ξ_t) from one batch, Δ from the other, both unbiased."""
    here, memory = setting
    taken, chance = sampled_by(POLICY, here, EVERY)
    now, one = at(here, estimators.gpomdp(GAMMA)), jax.tree.map(lambda x: x[3:5], taken)
    transport = trackers.weighted(second=True)
    fresh = lambda batch: transport.carry(now, (Batch(batch, here), Batch(one, here)), memory).fresh
    change = lambda batch: transport.carry(now, (Batch(one, here), Batch(batch, here)), memory).change
    close(expectation_over_batches(fresh, taken, chance, N), exact(here))
    close(expectation_over_batches(change, taken, chance, N), moved(here, memory))


@pytest.mark.parametrize(("name", "baseline"), KINDS)
def test_hessian_products_are_unbiased(setting, name, baseline):
    """E[Ĥ(ξ_a) v] = ∇²L(ξ_a) v at any ξ_a, and its mean over a is ∇L(ξ_t) − ∇L(ξ_ref)."""
    here, memory = setting
    v = add(here, memory.params, -1.0)
    exactly = lambda a: jax.jvp(jax.grad(lambda x: objective(POLICY, x, EVERY, GAMMA)), (add(memory.params, v, a),), (v,))[1]
    point = add(memory.params, v, 0.3)
    taken, chance = sampled_by(POLICY, point, EVERY)
    now = at(here, ESTIMATORS[name](GAMMA, baseline))
    transport = trackers.hessian("none")
    of = lambda batch: transport.carry(now, (Batch(batch, point),), memory).change
    close(expectation_over_batches(of, taken, chance, N), exactly(0.3))
    nodes, shares = np.polynomial.legendre.leggauss(12)
    mean = sum(ravel_pytree(exactly((1 + node) / 2))[0] * share / 2 for node, share in zip(nodes, shares, strict=True))
    close(mean, ravel_pytree(moved(here, memory))[0])


def test_the_same_batch_gives_both_terms_of_ha_mbpg(setting):
    """d(ξ_t) on the batch sampled at ξ_a has weights, and is unbiased."""
    here, memory = setting
    point = add(memory.params, add(here, memory.params, -1.0), 0.6)
    taken, chance = sampled_by(POLICY, point, EVERY)
    now, transport = at(here, estimators.gpomdp(GAMMA)), trackers.hessian("same")
    of = lambda batch: transport.carry(now, (Batch(batch, point),), memory).fresh
    close(expectation_over_batches(of, taken, chance, N), exact(here))


def test_an_extrapolated_point(setting):
    """E[g_t] = α ∇L(ξ̃) + (1 − α) c with ξ̃ = ξ_t + (1 − α)/α (ξ_t − ξ_ref)."""
    here, memory = setting
    tracker, now = trackers.follow(0.4, trackers.Extrapolated()), at(here, estimators.gpomdp(GAMMA))
    (sample,) = tracker.wants(now, memory)
    close(sample.params, add(here, add(here, memory.params, -1.0), 1.5))
    taken, chance = sampled_by(POLICY, sample.params, EVERY)
    of = lambda batch: tracker.track(now, (Batch(batch, sample.params),), memory).gradient
    expected = jax.tree.map(lambda x, y: 0.4 * x + 0.6 * y, exact(sample.params), memory.gradient)
    close(expectation_over_batches(of, taken, chance, N), expected)


# ---- Hessian-vector products of a network


@pytest.mark.parametrize("horizon", [7, 130], ids=["short", "in blocks"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_hessian_products_against_finite_differences(float64, horizon, name):
    """Central differences of the weighted estimate, in float64 with a step of 1e-5."""
    env = stormpg.make("pendulum")
    policy = stormpg.policy_for(env, hidden=(5,))
    params = policy.init(jax.random.key(0))
    v = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), params)
    taken = stormpg.rollout(env, policy, params, jax.random.key(1), 3, horizon)
    estimator = ESTIMATORS[name](0.95, "time")
    now = Here(jax.random.key(0), jnp.asarray(1), params, policy, estimator, False, 3)
    found = ravel_pytree(jax.jit(lambda: now.hessian_product(Batch(taken, params), v))())[0]
    d = jax.jit(lambda scale: ravel_pytree(estimators.gradient(estimator, policy, add(params, v, scale), taken))[0])
    expected = (d(1e-5) - d(-1e-5)) / 2e-5
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * float(jnp.abs(expected).max()))


# ---- identities


def row(tracker, schedule, estimator=None):
    return Algorithm(estimator or estimators.gpomdp(0.95), tracker, schedule, steps.optax_step(0.01))


def same_run(one, other, **job):
    """Both train the same parameters from the same random numbers."""
    job = {"trajectories": 60, "seeds": 2, "horizon": 20} | job
    a, b = (stormpg.train("cartpole-continuous", x, **job) for x in (one, other))
    np.testing.assert_allclose(a.columns["return"], b.columns["return"], rtol=1e-5)
    for x, y in zip(jax.tree.leaves(a.states.params), jax.tree.leaves(b.states.params), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [trackers.storm(0.4), trackers.sarah(), trackers.svrg()], ids=["storm", "sarah", "svrg"])
def test_a_mixture_without_a_share_is_plain(plain):
    """b = 0 with the same random numbers."""
    schedule = schedules.every(4, 10, 5)
    other = trackers.follow(float(plain.alpha), trackers.defensive(0.0), remembers=plain.remembers)
    same_run(row(plain, schedule), row(other, schedule))


@pytest.mark.slow
def test_mars_with_scale_one_and_no_clip_is_storm():
    mars = trackers.follow(0.4, trackers.weighted(), scale=1.0, radius=1e9)
    same_run(row(trackers.storm(0.4), schedules.once(10, 5)), row(mars, schedules.once(10, 5)))


@pytest.mark.slow
def test_page_that_is_always_large_is_gpomdp():
    same_run(row(trackers.sarah(), schedules.coin(1.0, 5, 5)), row(trackers.plain(), schedules.always(5)))


@pytest.mark.slow
@pytest.mark.parametrize("transport", [trackers.Extrapolated(), trackers.Nothing()], ids=["extrapolated", "nothing"])
def test_alpha_one_is_plain(transport):
    same_run(row(trackers.follow(1.0, transport), schedules.once(5, 5)), row(trackers.plain(), schedules.always(5)))


def test_one_batch_twice_is_storm(setting):
    """HSPGA with one batch for both of its terms."""
    here, memory = setting
    taken = jax.tree.map(lambda x: x[4:9], sampled_by(POLICY, here, EVERY)[0])
    now, batch = at(here, estimators.gpomdp(GAMMA)), Batch(taken, here)
    two = trackers.follow(0.3, trackers.weighted(second=True)).track(now, (batch, batch), memory)
    close(two.gradient, trackers.storm(0.3).track(now, (batch,), memory).gradient)


def test_a_clip_before_the_memory(setting):
    """g_t = (1 − α) c + α e, with e = d + γ (1 − α)/α Δ shortened to the radius."""
    here, memory = setting
    taken = jax.tree.map(lambda x: x[4:9], sampled_by(POLICY, here, EVERY)[0])
    now, batch = at(here, estimators.gpomdp(GAMMA)), Batch(taken, here)
    made = trackers.weighted().carry(now, (batch,), memory)
    e = ravel_pytree(add(made.fresh, made.change, 0.5 * 0.8 / 0.2))[0]
    for radius in (0.1, 1e3):
        found = trackers.follow(0.2, scale=0.5, radius=radius).track(now, (batch,), memory).gradient
        expected = 0.8 * ravel_pytree(memory.gradient)[0] + 0.2 * e * min(1, radius / np.linalg.norm(e))
        np.testing.assert_allclose(ravel_pytree(found)[0], expected, rtol=1e-9)


def test_a_difference_of_batches(setting):
    """MARS without a second pass: Δ = d(ξ_t) − d(ξ_{t−1}), which needs no weights."""
    here, _ = setting
    taken = sampled_by(POLICY, here, EVERY)[0]
    first, second = (Batch(jax.tree.map(lambda x, i=i: x[i : i + 5], taken), here) for i in (2, 11))
    tracker, estimator = trackers.follow(0.25, trackers.Difference(), scale=0.1), estimators.gpomdp(GAMMA)
    start = tracker.init(here, lambda n=None: first)
    after = tracker.track(at(here, estimator, large=True), (first,), start).memory
    found = tracker.track(at(here, estimator), (second,), after)
    a, b = (estimators.gradient(estimator, POLICY, here, one.trajectories) for one in (first, second))
    close(found.gradient, jax.tree.map(lambda x, y: 0.25 * y + 0.75 * (x + 0.1 * (y - x)), a, b))
    close(found.memory.transport, b)


# ---- mixtures in the loops


@pytest.mark.slow
@pytest.mark.parametrize("where", ["cartpole-continuous", "gym:Pendulum-v1"])
def test_a_share_of_a_batch_is_sampled_elsewhere(where):
    """With b = ½ and no step at all, both parameters are the same, so all weights are 1. A run is reproducible."""
    pytest.importorskip("gymnasium")
    still = Algorithm(
        estimators.gpomdp(0.95), trackers.follow(0.5, trackers.defensive(0.5)), schedules.once(4, 4), steps.optax_step(1e-12)
    )
    result = stormpg.train(where, still, trajectories=16, seeds=2, horizon=10)
    np.testing.assert_allclose(result.columns["weight_max"], 1, rtol=1e-4)
    assert (result.columns["trajectories"].reshape(2, -1)[:, -1] == 16).all()
    moving = row(trackers.follow(0.5, trackers.defensive(0.5)), schedules.once(4, 4))
    testing = stormpg.train(where, moving, trajectories=16, seeds=2, horizon=10)
    assert testing.columns["weight_max"].max() <= 2 + 1e-5
    assert testing.columns["weight_max"].max() > 1 + 1e-4


def test_wrong_settings():
    with pytest.raises(InputError, match="b is 1"):
        trackers.defensive(1.0)
    with pytest.raises(InputError, match="fresh is 'other'"):
        trackers.hessian("other")
    with pytest.raises(InputError, match="remembers"):
        trackers.follow(0.1, remembers="nothing")
    with pytest.raises(InputError, match="alpha0 is 2"):
        rates.powers(2)

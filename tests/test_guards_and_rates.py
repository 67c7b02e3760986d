"""Guards of importance weights and rules for α and η, against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import estimators, guards, rates, schedules, steps, trackers
from stormpg.algorithms import Algorithm
from stormpg.contract import Moment
from stormpg.errors import InputError
from stormpg.theory.enumeration import expectation_over_batches, sampled_by, small_chain
from tests.test_estimators import two_parameters

POLICY, GAMMA = stormpg.softmax_table(3, 2), 0.9
GUARDS = {
    "upper clip": (lambda: guards.clip(high=1.1), lambda w: np.minimum(w, 1.1)),
    "two-sided clip": (lambda: guards.clip(0.8, 1.2), lambda w: np.clip(w, 0.8, 1.2)),
    "power mean": (lambda: guards.power_mean(0.3), lambda w: w / (0.7 + 0.3 * w)),
}


# ---- guards


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("weighting", ["cumulative", "trajectory", "step"])
def test_the_bias_of_a_guard_is_its_formula(float64, name, weighting):
    """E[d] = Σ_τ p(τ) Σ_h C_h f(w_h) γ^h r_h, and without the guard the same with w_h: computed by loops."""
    here, there = two_parameters(POLICY)
    taken, chance = sampled_by(POLICY, there, small_chain(3))
    guard, formula = GUARDS[name][0](), GUARDS[name][1]
    score = jax.vmap(jax.vmap(jax.grad(POLICY.log_prob), (None, 0, 0)), (None, 0, 0))(here, taken.observation, taken.action)
    scores = np.asarray(score["logits"]) * np.asarray(taken.mask)[:, :, None, None]
    under = [np.asarray(sampled_by(POLICY, params, small_chain(3))[0].log_prob) for params in (here, there)]
    expected = np.zeros((3, 2))
    for i, p in enumerate(np.asarray(chance)):
        ratio = np.exp(under[0][i] - under[1][i])
        for h in range(3):
            steps_of = {"cumulative": ratio[: h + 1], "trajectory": ratio, "step": None}[weighting]
            for t in range(h + 1):
                w = formula(np.prod(steps_of) if steps_of is not None else ratio[t])
                expected += p * scores[i, t] * w * GAMMA**h * float(taken.reward[i, h])
    estimator = estimators.gpomdp(GAMMA, "none", weighting=weighting, guard=guard)
    of = lambda batch: estimators.gradient(estimator, POLICY, here, batch)
    found = expectation_over_batches(of, taken, chance, 1)
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-9, atol=1e-12)


def test_self_normalised_weights(float64):
    """Divided by their mean over the trajectories that are there, at every step."""
    w = jnp.asarray(np.random.default_rng(0).lognormal(size=(4, 5)))
    present = jnp.array([[1.0], [1.0], [0.0], [1.0]])
    found = guards.self_normalised().apply(w, present)
    np.testing.assert_allclose(found, w / np.asarray(w)[[0, 1, 3]].mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(guards.self_normalised().apply(jnp.ones((3, 2)), jnp.ones((3, 1))), 1)


@pytest.mark.parametrize("guard", [*(make for make, _ in GUARDS.values()), guards.self_normalised])
def test_on_policy_a_guard_changes_nothing(float64, guard):
    here, _ = two_parameters(POLICY)
    batch = jax.tree.map(lambda x: x[5:12], sampled_by(POLICY, here, small_chain(3))[0])
    plain, guarded = (
        estimators.gradient(estimators.gpomdp(GAMMA, guard=one), POLICY, here, batch)["logits"] for one in (None, guard())
    )
    np.testing.assert_allclose(plain, guarded, rtol=1e-12)


def test_an_infinite_weight_stays_within_its_guard():
    w = jnp.array([[jnp.inf, 1e30, 0.0]], jnp.float32)
    np.testing.assert_allclose(guards.power_mean(0.5).apply(w, jnp.ones((1, 1))), [[2.0, 2.0, 0.0]], rtol=1e-5)
    np.testing.assert_allclose(guards.clip(0.5, 2.0).apply(w, jnp.ones((1, 1))), [[2.0, 2.0, 0.5]])


TRACKERS = {
    "storm": trackers.storm(0.5),
    "two batches": trackers.follow(0.5, trackers.weighted(second=True)),
    "defensive": trackers.follow(0.5, trackers.defensive(0.5)),
    "hessian": trackers.follow(0.5, trackers.hessian("same")),
    "gain": trackers.gain(),
    "window": trackers.window(2),
}


@pytest.mark.slow
@pytest.mark.parametrize("tracker", TRACKERS)
@pytest.mark.parametrize("guard", [guards.clip(0.8, 1.2), guards.self_normalised()], ids=["clip", "self-normalised"])
def test_any_guard_works_with_any_tracker(tracker, guard):
    row = Algorithm(estimators.gpomdp(0.95, guard=guard), TRACKERS[tracker], schedules.once(3, 3), steps.optax_step(0.01))
    result = stormpg.train("pendulum", row, trajectories=24, seeds=2, horizon=12)
    assert not result.columns["diverged"].any()


# ---- rates


def followed(rule, fresh, change, tracked):
    """α and the factor of η of all iterations, for these sequences of gradients."""
    memory, found = rule.init(jnp.zeros_like(fresh[0])), []
    for t, seen in enumerate(zip(fresh, change, tracked, strict=True)):
        moment = Moment(jax.random.key(0), jnp.asarray(t))
        alpha = rule.alpha(moment, memory)
        factor, memory = rule.after(moment, memory, rates.Seen(*map(jnp.asarray, seen)))
        found.append((float(alpha), float(factor)))
    return np.array(found).T


@pytest.fixture
def gradients(float64):
    """d_t, Δ_t and g_t of six iterations; Δ of the first is 0."""
    random = np.random.default_rng(0)
    fresh, change, tracked = random.normal(size=(3, 6, 4))
    change[0] = 0
    return fresh, change, tracked


def test_powers(gradients):
    alpha, factor = followed(rates.powers(0.8, 2 / 3, 0.5, 1.0), *gradients)
    t = np.arange(6)
    np.testing.assert_allclose(alpha, 0.8 * (t + 1) ** (-2 / 3))
    np.testing.assert_allclose(factor, (t + 1) ** -0.5)


@pytest.mark.parametrize("counts", [False, True])
def test_accumulated(gradients, counts):
    """IS-MBPG: η_t = k/(w + f A_t)^⅓ and α_{t+1} = c η_t², clipped; the first α is 1. A trap: α must not stay at 1."""
    rule = rates.accumulated(0.7, 2.0, 3.0, 1 / 3, 0.3, 0.9, 0.5, counts=counts)
    alpha, factor = followed(rule, *gradients)
    total = np.arange(1, 7) if counts else np.cumsum((gradients[0] ** 2).sum(axis=1))
    eta = 0.7 / (2 + 0.5 * total) ** (1 / 3)
    np.testing.assert_allclose(factor, eta)
    np.testing.assert_allclose(alpha, [1, *np.clip(3 * eta**2, 0.3, 0.9)[:-1]])
    assert (alpha[1:] < 1).all()


def test_storm_plus(gradients):
    fresh, _, tracked = gradients
    alpha, factor = followed(rates.storm_plus(), *gradients)
    following = (1 + np.cumsum((fresh**2).sum(axis=1))) ** (-2 / 3)
    np.testing.assert_allclose(alpha, [1, *following[:-1]])
    np.testing.assert_allclose(factor, np.cumsum((tracked**2).sum(axis=1) / following) ** (-1 / 3))


@pytest.mark.parametrize("norms", [False, True])
def test_meta_storm(gradients, norms):
    """The sum is over ‖d_{t−1}(ξ_{t−1}) − d_t(ξ_{t−1})‖², where d_t(ξ_{t−1}) = d_t(ξ_t) − Δ_t; or over ‖d_t‖²."""
    fresh, change, tracked = gradients
    alpha, factor = followed(rates.meta_storm(0.3, 2.0, 0.5, norms), *gradients)
    differences = np.concatenate(([0], ((fresh[:-1] - (fresh - change)[1:]) ** 2).sum(axis=1)))
    following = (1 + np.cumsum((fresh**2).sum(axis=1) if norms else differences) / 2) ** (-2 / 3)
    np.testing.assert_allclose(alpha, [1, *following[:-1]])
    np.testing.assert_allclose(factor, following**0.35 / (0.5 + np.cumsum((tracked**2).sum(axis=1))) ** 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [rates.powers(), rates.accumulated(), rates.storm_plus(), rates.meta_storm()])
@pytest.mark.parametrize("transport", [None, trackers.hessian(), trackers.Extrapolated()], ids=["weighted", "hessian", "igt"])
def test_any_rule_works_with_any_transport(rule, transport):
    row = Algorithm(
        estimators.gpomdp(0.95),
        trackers.follow(transport=transport, rates=rule),
        schedules.once(3, 3),
        steps.optax_step(1e-3, "sgd"),
    )
    result = stormpg.train("pendulum", row, trajectories=30, seeds=2, horizon=12)
    assert not result.columns["diverged"].any()
    alpha = result.columns["alpha"].reshape(2, -1)
    assert (alpha[:, 0] == 1).all()
    assert (alpha[:, 2:] < 1).all()


def test_wrong_settings():
    for bad in (lambda: guards.clip(1.5, 2.0), lambda: guards.power_mean(1.5), lambda: rates.meta_storm(0.7)):
        with pytest.raises(InputError):
            bad()
    with pytest.raises(InputError, match="weighting"):
        estimators.gpomdp(0.9, weighting="none")

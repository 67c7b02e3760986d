"""The surrogate of SVRPO: its objective, its gradient and the line search, checked against NumPy loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import schedules, steps, trackers
from stormpg.algorithms import Algorithm
from stormpg.contract import Here
from stormpg.errors import InputError
from stormpg.estimators import estimate, surrogate
from stormpg.trajectories import Batch, Trajectories
from tests.test_estimators import ESTIMATORS, GAMMA

SIGMA = 0.7
CASES = [(name, baseline, 6) for name in ESTIMATORS for baseline in ("none", "time")] + [("gpomdp", "time", 130)]  # uses blocks


@pytest.fixture
def policy(float64):
    return stormpg.gaussian_linear(lambda s: s, 2, 1, sigma=SIGMA)


def log_pi(xi, s, a) -> float:
    return -((a - xi @ s) ** 2) / (2 * SIGMA**2) - np.log(np.sqrt(2 * np.pi) * SIGMA)


def batch_of(horizon: int, sampler: np.ndarray) -> Trajectories:
    """Four trajectories of different lengths, with the log-probabilities of ξ' = `sampler`."""
    rng = np.random.default_rng(0)
    lengths = np.array([horizon, horizon // 2, horizon - 1, 1])
    mask = (np.arange(horizon) < lengths[:, None]).astype(float)
    s, a, r = (rng.normal(size=(4, horizon, *shape)) for shape in ((2,), (1,), ()))
    old = [[log_pi(sampler, s[i, t], a[i, t, 0]) * mask[i, t] for t in range(horizon)] for i in range(4)]
    return Trajectories(*(jnp.asarray(x) for x in (s, a, r * mask, mask, old)))


def formula(name: str, baseline: str, xi: np.ndarray, batch: Trajectories) -> tuple[float, np.ndarray]:
    """mean_i Σ_t ρ_t c_t and its derivative mean_i Σ_t ρ_t c_t S_t, with ρ_t = π_ξ/π_ξ' of one step."""
    s, a, r, mask, old = (np.asarray(x) for x in batch)
    n, horizon = r.shape
    discounted = [[GAMMA**k * r[i, k] for k in range(horizon)] for i in range(n)]
    signal = {  # x_k of each step: equation (5), R(τ) at the last step, the reward-to-go
        "gpomdp": discounted,
        "reinforce": [[0.0] * (horizon - 1) + [sum(row)] for row in discounted],
        "pgt": [[sum(row[k:]) for k in range(horizon)] for row in discounted],
    }[name]
    value, slope = 0.0, np.zeros_like(xi)
    for i in range(n):
        less = [
            signal[i][k] - (np.mean([signal[j][k] for j in range(n) if j != i]) if baseline == "time" else 0.0)
            for k in range(horizon)
        ]
        for t in range(horizon):
            if mask[i, t]:
                c = less[t] if name == "pgt" else sum(less[t:])
                ratio = np.exp(log_pi(xi, s[i, t], a[i, t, 0]) - old[i, t])
                value += ratio * c / n
                slope += ratio * c * (a[i, t, 0] - xi @ s[i, t]) * s[i, t] / SIGMA**2 / n
    return value, slope


def objective_at(policy, estimator, params, batch):
    """The objective that a trust-region step at ξ_t = `params` increases."""
    here = Here(jax.random.key(0), jnp.asarray(0), params, policy, estimator, True, 4)
    return steps.surrogate_on(here, Batch(batch, params)).objective


@pytest.mark.slow
@pytest.mark.parametrize(("name", "baseline", "horizon"), CASES)
def test_objective_and_gradient_against_the_formula(policy, name, baseline, horizon):
    """The line search increases the objective whose gradient is g_t: at ξ_t and elsewhere, on- and off-policy."""
    here, there = np.array([0.3, -0.2]), np.array([0.1, 0.4])
    batch, estimator = batch_of(horizon, here), surrogate(ESTIMATORS[name](GAMMA, baseline))
    tree = lambda xi: {"mean": jnp.asarray(xi)[:, None]}
    gradient = jax.jit(lambda params: estimate(estimator, policy, params, batch).gradient["mean"][:, 0])
    for current in (here, there):  # a snapshot's batch is also used at other parameters
        search = jax.jit(jax.value_and_grad(objective_at(policy, estimator, tree(current), batch)))
        for xi in (here, there):
            value, slope = formula(name, baseline, xi, batch)
            found, climb = search(tree(xi))
            np.testing.assert_allclose(found, value, rtol=1e-9)
            np.testing.assert_allclose(climb["mean"][:, 0], slope, rtol=1e-9)
            np.testing.assert_allclose(gradient(tree(xi)), slope, rtol=1e-9)
    with pytest.raises(AssertionError):  # the weights matter at `there`
        np.testing.assert_allclose(formula(name, baseline, here, batch)[1], slope, rtol=1e-2)


def test_fitted_values_have_an_objective(policy):
    """The baseline "value" has one value for each step, like "time"."""
    here, there = ({"mean": jnp.asarray(xi)[:, None]} for xi in ([0.3, -0.2], [0.1, 0.4]))
    batch, estimator = batch_of(6, np.array([0.3, -0.2])), surrogate(stormpg.estimators.pgt(GAMMA, "value"))
    objective = objective_at(policy, estimator, here, batch)
    for xi in (here, there):
        found = estimate(estimator, policy, xi, batch).gradient["mean"]
        np.testing.assert_allclose(jax.grad(objective)(xi)["mean"], found, rtol=1e-9)


def test_a_baseline_for_each_parameter_has_none():
    """No scalar objective has the gradient with the baseline "optimal", so every combination that needs one is rejected."""
    with pytest.raises(InputError, match=r"'optimal' has one value for each parameter.*use 'time' or 'none'"):
        stormpg.svrpo(baseline="optimal")
    free = Algorithm(stormpg.estimators.gpomdp(0.9, "optimal"), trackers.plain(), schedules.always(4), steps.natural_gradient())
    with pytest.raises(InputError, match="no surrogate objective"):
        stormpg.train("cartpole-continuous", free, trajectories=8, seeds=1, horizon=5)


@pytest.mark.slow
def test_best_is_credited_with_its_own_returns():
    """A subset of the snapshot's trajectories may have a larger mean, but says nothing about ξ_t, so it does not count."""
    result = stormpg.train("cartpole-continuous", stormpg.svrpo(S0=8, B=2, m=4), trajectories=16, seeds=3, horizon=100)
    table = result.columns
    for seed, best in enumerate(np.asarray(result.states.best_return)):
        own = (table["seed"] == seed) & (table["large"])
        assert own.sum() == 2
        assert best == np.float32(table["return"][own].max())
        assert table["return"][table["seed"] == seed].max() > best  # a subset had a larger mean

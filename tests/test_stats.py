"""Curves and intervals over seeds, against SciPy, against what they promise, and against rliable's numbers."""

import numpy as np
import pytest
import scipy.stats

from stormpg import stats

TABLE = {
    "iteration": np.array([0, 1, 2, 0, 1]),
    "trajectories": np.array([4, 6, 8, 4, 8]),
    "return": np.array([1.0, 2.0, 4.0, 10.0, 20.0]),
}


def test_curves_give_each_trajectory_its_batchs_return():
    found = stats.curves(TABLE, np.array([1, 4, 5, 6, 7, 8]))
    np.testing.assert_allclose(found, [[1, 1, 2, 2, 4, 4], [10, 10, 20, 20, 20, 20]])


def test_curves_average_over_a_window():
    found = stats.curves(TABLE, np.array([2, 8]), window=4)
    np.testing.assert_allclose(found, [[1, (2 * 2 + 2 * 4) / 4], [10, 20]])


def test_interval_covers_the_mean_as_often_as_it_says(monkeypatch):
    monkeypatch.setattr(stats, "RESAMPLES", 300)
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(150):
        found = stats.interval(rng.normal(size=(30, 1)))
        covered.append(found.low[0] <= 0 <= found.high[0])
    assert 0.86 < np.mean(covered) <= 1.0


@pytest.mark.parametrize("statistic", [np.mean, stats.iqm])
def test_interval_is_scipys(statistic):
    values = np.random.default_rng(1).normal(size=(25, 3))
    found = stats.interval(values, statistic, seed=5)
    theirs = scipy.stats.bootstrap(
        (values,), statistic, axis=0, n_resamples=stats.RESAMPLES, batch=50, method="percentile", rng=np.random.default_rng(5)
    )
    np.testing.assert_allclose(found.low, theirs.confidence_interval.low)
    np.testing.assert_allclose(found.high, theirs.confidence_interval.high)
    assert found.draws.shape == (stats.RESAMPLES, 3)
    np.testing.assert_allclose(found.estimate, statistic(values, axis=0))


def test_percentiles_are_scipys_where_all_is_finite():
    values = np.random.default_rng(2).normal(size=(40, 1))
    found = stats.interval(values)
    again = stats.percentiles(found.estimate[0], found.draws[:, 0])
    assert again.low <= found.low[0] <= again.low + 0.02
    assert again.high - 0.02 <= found.high[0] <= again.high


def test_percentiles_know_never_and_nothing():
    assert stats.percentiles(5.0, np.array([1.0] * 90 + [np.inf] * 10)).high == np.inf
    assert np.isnan(stats.percentiles(5.0, np.array([1.0, np.nan])).low)


def test_a_resample_draws_within_its_group():
    """Two groups that do not vary by themselves: no resample mixes them, so the interval has no width."""
    found = stats.stratified([np.zeros(5), np.full(15, 4.0)])
    assert found.estimate == found.low == found.high == 3.0


def test_one_run_has_no_interval():
    found = stats.interval(np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(found.low, found.high)


def test_first_reach():
    grid = np.array([10, 20, 30, 40])
    assert stats.first_reach(np.array([1, 5, 3, 9]), grid, 5) == 20
    np.testing.assert_array_equal(stats.first_reach(np.array([[1, 1, 1, 9], [1, 1, 1, 1]]), grid, 5), [40, np.inf])


def test_probability_of_improvement():
    assert stats.probability_of_improvement(np.array([3.0, 4.0]), np.array([1.0, 2.0])).estimate == 1
    assert stats.probability_of_improvement(np.array([1.0, 1.0]), np.array([1.0, 1.0])).estimate == 0.5
    found = stats.probability_of_improvement(np.array([1.0, 3.0, 5.0]), np.array([2.0, 3.0]))
    assert found.estimate == pytest.approx((0 + 0 + 1 + 0.5 + 1 + 1) / 6)
    assert found.low <= found.estimate <= found.high


def test_profile():
    found = stats.profile(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 2.0, 9.0]))
    np.testing.assert_allclose(found.estimate, [1, 0.5, 0])


def test_the_numbers_of_rliable():
    """rliable 1.2.0 (numpy 2, pandas 2) on the same scores: interquartile mean and its stratified interval from 20,000
    resamples, probability of improvement, performance profile."""
    rng = np.random.default_rng(7)
    scores = rng.normal(size=(12, 3)) * [1, 2, 3] + [0, 1, 2]  # runs of three tasks
    other = rng.normal(size=(9, 3)) * [1, 2, 3] + [0.3, 0.5, 2.5]
    found = stats.stratified(list(scores.T), stats.iqm)
    assert found.estimate == pytest.approx(-0.030198031974938904, abs=1e-12)
    assert found.low == pytest.approx(-0.5299217, abs=0.06)
    assert found.high == pytest.approx(0.53126181, abs=0.06)
    each = [stats.probability_of_improvement(scores[:, task], other[:, task]).estimate for task in range(3)]
    assert each[0] == pytest.approx(0.37962962962962965, abs=1e-12)
    assert np.mean(each) == pytest.approx(0.2808641975308642, abs=1e-12)
    np.testing.assert_allclose(stats.profile(scores[:, 0], np.linspace(-2, 4, 5)).estimate, [1, 0.5, 0, 0, 0])

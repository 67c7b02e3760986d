"""Curves and intervals over seeds, compared with SciPy, with their nominal coverage, and with rliable."""

import numpy as np
import pytest
import scipy.stats

from stormpg import statistics

TABLE = {
    "iteration": np.array([0, 1, 2, 0, 1]),
    "trajectories": np.array([4, 6, 8, 4, 8]),
    "return": np.array([1.0, 2.0, 4.0, 10.0, 20.0]),
}


def test_curves_give_each_trajectory_its_batchs_return():
    found = statistics.curves(TABLE, np.array([1, 4, 5, 6, 7, 8]))
    np.testing.assert_allclose(found, [[1, 1, 2, 2, 4, 4], [10, 10, 20, 20, 20, 20]])


def test_curves_average_over_a_window():
    found = statistics.curves(TABLE, np.array([2, 8]), window=4)
    np.testing.assert_allclose(found, [[1, (2 * 2 + 2 * 4) / 4], [10, 20]])


@pytest.mark.parametrize("seeds", [6, 30])
def test_interval_covers_the_mean_as_often_as_it_says(seeds):
    """2000 means of normal numbers: at 95 % the standard error is half a percent. Plain percentiles of six seeds cover 87 %."""
    found = statistics.interval(np.random.default_rng(0).normal(size=(seeds, 2000)), seed=1)
    covered = np.mean((found.low <= 0) & (found.high >= 0))
    assert 0.93 < covered < 0.97


def test_expanded_levels_are_students():
    """For a mean of normal numbers, the expanded interval equals Student's, up to the randomness of resamples."""
    assert statistics.expanded() == statistics.expanded(1) == statistics.LEVEL
    assert (
        statistics.LEVEL
        < statistics.expanded(30, 30)
        < statistics.expanded(30)
        < statistics.expanded(10)
        < statistics.expanded(4)
        < 1
    )
    values = np.random.default_rng(3).normal(size=8)
    error = values.std() / 8**0.5  # the exact standard error of the resamples' means
    reach = scipy.stats.norm.isf((1 - statistics.expanded(8)) / 2) * error
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(statistics.LEVEL)
    assert values.mean() + reach == pytest.approx(theirs.high)
    assert statistics.expanded(1000, 1000) == pytest.approx(statistics.LEVEL, abs=1e-3)


def test_a_resample_chooses_its_own_best():
    """The best run is chosen among the runs drawn, so a resample without the overall best run uses another one."""
    runs = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 2.0]])
    best = statistics.best_mean(1)
    np.testing.assert_array_equal(best(runs), [5.0, 2.0])
    np.testing.assert_array_equal(best(runs[[[0, 1, 1], [2, 0, 0]]], axis=1), [[1.0, 1.0], [5.0, 2.0]])
    found = statistics.interval(runs, best)
    share = lambda value: np.mean((found.draws == value).all(axis=1))
    assert share([5.0, 2.0]) == pytest.approx(1 - (2 / 3) ** 3, abs=0.05)
    assert share([1.0, 1.0]) == pytest.approx((2 / 3) ** 3 - (1 / 3) ** 3, abs=0.05)
    assert statistics.best_mean(2)(runs)[0] == 3.0
    assert statistics.best_mean(9)(runs)[0] == 2.0


def test_streams_are_independent_and_the_same_everywhere():
    assert statistics.stream("a", "b") == 6463353407833682387
    assert len({statistics.stream("a", "b"), statistics.stream("ab"), statistics.stream("b", "a"), statistics.stream("a")}) == 4
    values = np.random.default_rng(0).normal(size=(30, 1))
    one, other = (statistics.interval(values, seed=statistics.stream(name)).draws[:, 0] for name in ("storm-pg", "svrpg"))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.1


@pytest.mark.parametrize("statistic", [np.mean, statistics.iqm])
def test_interval_is_scipys_at_the_expanded_level(statistic):
    values = np.random.default_rng(1).normal(size=(25, 3))
    found = statistics.interval(values, statistic, seed=5)
    theirs = scipy.stats.bootstrap(
        (values,),
        statistic,
        axis=0,
        n_resamples=statistics.RESAMPLES,
        confidence_level=statistics.expanded(25),
        method="percentile",
        rng=np.random.default_rng(5),
    )
    np.testing.assert_allclose(found.low, theirs.confidence_interval.low)
    np.testing.assert_allclose(found.high, theirs.confidence_interval.high)
    assert found.draws.shape == (statistics.RESAMPLES, 3)
    np.testing.assert_allclose(found.estimate, statistic(values, axis=0))


def test_percentiles_are_scipys_where_all_is_finite():
    values = np.random.default_rng(2).normal(size=(40, 1))
    found = statistics.interval(values)
    again = statistics.percentiles(found.estimate[0], found.draws[:, 0], 40)
    assert again.low <= found.low[0] <= again.low + 0.02
    assert again.high - 0.02 <= found.high[0] <= again.high
    plain = statistics.percentiles(found.estimate[0], found.draws[:, 0])
    assert again.low < plain.low < plain.high < again.high


def test_percentiles_know_never_and_nothing():
    assert statistics.percentiles(5.0, np.array([1.0] * 90 + [np.inf] * 10)).high == np.inf
    assert np.isnan(statistics.percentiles(5.0, np.array([1.0, np.nan])).low)


def test_a_resample_draws_within_its_group():
    """Two groups without variation within each: no resample mixes them, so the interval has zero width."""
    found = statistics.stratified([np.zeros(5), np.full(15, 4.0)])
    assert found.estimate == found.low == found.high == 3.0


def test_one_run_has_no_interval():
    found = statistics.interval(np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(found.low, [1.0, 2.0])
    np.testing.assert_array_equal(found.high, [1.0, 2.0])


def test_first_reach():
    grid = np.array([10, 20, 30, 40])
    assert statistics.first_reach(np.array([1, 5, 3, 9]), grid, 5) == 20
    two = np.array([[1, 1, 1, 9], [1, 1, 1, 1]])
    np.testing.assert_array_equal(statistics.first_reach(two, grid, 5), [40, np.inf])
    np.testing.assert_array_equal(statistics.first_reach(two, grid, [10, 1]), [np.inf, 10])


def test_probability_of_improvement():
    assert statistics.probability_of_improvement(np.array([3.0, 4.0]), np.array([1.0, 2.0])).estimate == 1
    assert statistics.probability_of_improvement(np.array([1.0, 1.0]), np.array([1.0, 1.0])).estimate == 0.5
    found = statistics.probability_of_improvement(np.array([1.0, 3.0, 5.0]), np.array([2.0, 3.0]))
    assert found.estimate == pytest.approx((0 + 0 + 1 + 0.5 + 1 + 1) / 6)
    assert found.low <= found.estimate <= found.high


def test_profile():
    found = statistics.profile(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 2.0, 9.0]))
    np.testing.assert_allclose(found.estimate, [1, 0.5, 0])


def test_the_numbers_of_rliable():
    """Compare with rliable 1.2.0 (numpy 2, pandas 2) on the same scores: interquartile mean and its stratified interval from
    20,000 resamples, probability of improvement, performance profile."""
    rng = np.random.default_rng(7)
    scores = rng.normal(size=(12, 3)) * [1, 2, 3] + [0, 1, 2]  # runs of three tasks
    other = rng.normal(size=(9, 3)) * [1, 2, 3] + [0.3, 0.5, 2.5]
    found = statistics.stratified(list(scores.T), statistics.iqm)
    assert found.estimate == pytest.approx(-0.030198031974938904, abs=1e-12)
    plain = statistics.percentiles(found.estimate, found.draws)  # rliable does not expand its intervals
    assert plain.low == pytest.approx(-0.5299217, abs=0.04)
    assert plain.high == pytest.approx(0.53126181, abs=0.04)
    assert found.low < plain.low < plain.high < found.high
    each = [statistics.probability_of_improvement(scores[:, task], other[:, task]).estimate for task in range(3)]
    assert each[0] == pytest.approx(0.37962962962962965, abs=1e-12)
    assert np.mean(each) == pytest.approx(0.2808641975308642, abs=1e-12)
    np.testing.assert_allclose(statistics.profile(scores[:, 0], np.linspace(-2, 4, 5)).estimate, [1, 0.5, 0, 0, 0])

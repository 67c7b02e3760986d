"""Curves and intervals over seeds."""

import numpy as np

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


def test_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(150):
        found = stats.mean_interval(rng.normal(size=(30, 1)), resamples=300)
        covered.append(found.low[0] <= 0 <= found.high[0])
    assert 0.86 < np.mean(covered) <= 1.0


def test_one_run_has_no_interval():
    found = stats.mean_interval(np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(found.low, found.high)


def test_first_reach():
    assert stats.first_reach(np.array([1, 5, 3, 9]), np.array([10, 20, 30, 40]), 5) == 20
    assert stats.first_reach(np.array([1.0]), np.array([10]), 5) is None

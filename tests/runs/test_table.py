"""The table of metrics, with one row for each iteration of each run."""

import jax
import numpy as np

import stormpg
from stormpg.engine.metrics import Row
from stormpg.runs.table import NAMES, RECORDED, Table, mean_return

LIVE = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1]], bool)  # [iterations, runs]


def rows(live):
    numbers = np.arange(live.size).reshape(live.shape)
    return Row(
        live,
        numbers % 2 == 0,
        numbers + 1,
        10 * numbers,
        *(numbers * (k + 0.5) for k in range(6)),
        numbers % 3 == 0,
        {"mine": numbers / 7},
    )


def test_every_column_is_what_a_loop_over_the_rows_gives():
    algorithms = [stormpg.make_algorithm("storm-pg", eta=eta) for eta in (0.1, 0.2, 0.3)]
    for live in (LIVE, np.ones_like(LIVE)):
        recorded, expected = rows(live), {name: [] for name in (*NAMES, "mine")}
        for run in range(3):
            trajectories = steps = 0
            for iteration, i in enumerate(np.nonzero(live[:, run])[0]):
                trajectories, steps = trajectories + recorded.batch[i, run], steps + recorded.steps[i, run]
                now = {"env": "e", "algorithm": "storm-pg", "setting": run, "seed": 7, "iteration": iteration}
                now |= {"trajectories": trajectories, "steps": steps}
                now |= {name: getattr(recorded, field)[i, run] for name, field in RECORDED.items()}
                now["mine"] = recorded.info["mine"][i, run]
                for name in expected:
                    expected[name].append(now[name])
        part = lambda *where, recorded=recorded: jax.tree.map(lambda x: x[where], recorded)
        blocks = [[part(slice(2), slice(2)), part(slice(2, None), slice(2))]]
        blocks.append([part(slice(None), [2, 2])])  # the second run only pads the block
        table = Table("e", algorithms, [7], blocks)
        assert tuple(table) == tuple(expected)
        assert len(table) == len(expected)
        for name in expected:
            np.testing.assert_array_equal(table[name], expected[name], name)


def test_the_mean_return_of_the_last_trajectories():
    columns = {
        "iteration": np.array([0, 1, 2, 0, 1]),
        "trajectories": np.array([30, 40, 45, 10, 40]),
        "return": np.array([1.0, 5.0, 9.0, 2.0, 6.0]),
    }
    np.testing.assert_allclose(mean_return(columns, 10), [(5 * 5 + 5 * 9) / 10, 6.0])
    np.testing.assert_allclose(mean_return(columns, 20), [(5 * 1 + 10 * 5 + 5 * 9) / 20, 6.0])
    np.testing.assert_allclose(mean_return(columns, 35), [(20 * 1 + 10 * 5 + 5 * 9) / 35, (5 * 2 + 30 * 6) / 35])
    np.testing.assert_allclose(mean_return(columns), [(30 * 1 + 10 * 5 + 5 * 9) / 45, (10 * 2 + 30 * 6) / 40])

"""Studies: units that are kept, protocols, claims with known answers, equal tuning, robustness, variance."""

import json
import os
import shutil

import numpy as np
import pytest

import stormpg
from stormpg.columns import mean_return
from stormpg.errors import InputError
from stormpg.experiments import claims, comparison, protocols, robustness, tuning, variance, workers
from stormpg.experiments.content import simple
from stormpg.experiments.paper import FIGURES
from stormpg.experiments.reproduction import judge_figure, sensitivity_rows
from stormpg.experiments.study import claim_folder
from stormpg.experiments.units import Unit, compute_unit, keep_unit, split_settings
from stormpg.experiments.workshop import Workshop
from stormpg.stats import Interval

pytestmark = pytest.mark.slow

GRID = protocols.grid_for(4000)
SMALL = Unit(
    "runs/a",
    "cartpole-continuous",
    "storm-pg",
    ({"S0": 4, "B": 2, "eta": 0.01}, {"S0": 4, "B": 2, "eta": 0.02}),
    8,
    2,
    horizon=6,
)


def table(runs: np.ndarray, grid: np.ndarray = GRID) -> dict[str, np.ndarray]:
    """The table of runs whose return at each point of the grid is given."""
    seeds, points = runs.shape
    return {
        "setting": np.zeros(seeds * points, int),
        "seed": np.repeat(np.arange(seeds), points),
        "iteration": np.tile(np.arange(points), seeds),
        "trajectories": np.tile(grid, seeds),
        "return": runs.ravel(),
    }


def ramp(reach: float, top: float = 100.0, seeds: int = 12, noise: float = 0.0) -> dict[str, np.ndarray]:
    """Runs that rise in a line to `top` at `reach` trajectories, and stay."""
    spread = 1 + noise * np.random.default_rng(int(reach)).normal(size=(seeds, 1))
    return table(np.minimum(GRID / (reach * spread), 1.0) * top)


def test_a_unit_is_run_once_and_read_again(tmp_path, monkeypatch):
    first = Workshop(tmp_path).run([SMALL])[0]
    monkeypatch.setattr("stormpg.experiments.units.train", None)  # whoever trains now fails
    again = Workshop(tmp_path).run([SMALL])[0]
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert [set(part["setting"]) for part in split_settings(again, 2)] == [{0}, {1}]


def test_processes_do_what_threads_do(tmp_path, monkeypatch):
    by_threads = Workshop(tmp_path / "threads").run([SMALL])[0]
    monkeypatch.setattr(workers.Here, "in_groups", False)
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # which it may add to
    told = []
    by_processes = Workshop(tmp_path / "processes", lambda *about: told.append(about)).run([SMALL])[0]
    for name in by_threads:
        np.testing.assert_array_equal(by_threads[name], by_processes[name])
    assert told == [(SMALL.folder, 1, 1)]


def test_a_unit_with_other_settings_is_refused(tmp_path):
    keep_unit(SMALL, tmp_path, compute_unit(SMALL))
    other = Unit(**{**SMALL.__dict__, "trajectories": 10})
    with pytest.raises(InputError, match="another trajectories: 8; expected 10"):
        Workshop(tmp_path).run([other])


def test_what_was_interrupted_is_run_again(tmp_path):
    part = tmp_path / "runs" / ".a.part"
    part.mkdir(parents=True)
    (part / "config.json").write_text("half")
    keep_unit(SMALL, tmp_path, compute_unit(SMALL))
    assert not part.exists()
    assert (tmp_path / "runs" / "a" / "summary.json").exists()


def test_a_report_does_not_train(tmp_path):
    with pytest.raises(InputError, match="is missing"):
        Workshop(tmp_path, train=False).run([SMALL])


def test_a_folder_of_another_study_is_refused(tmp_path):
    claim_folder(tmp_path / "new", {"kind": "reproduce", "seeds": 3}, [])
    claim_folder(tmp_path / "new", {"kind": "reproduce", "seeds": 3}, [])
    with pytest.raises(InputError, match="seeds = 3; asked for 4"):
        claim_folder(tmp_path / "new", {"kind": "reproduce", "seeds": 4}, [])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("")
    with pytest.raises(InputError, match="holds other files"):
        claim_folder(tmp_path / "full", {"kind": "reproduce"}, [])


def test_the_papers_protocol_is_a_selection():
    runs = np.arange(30.0)[:, None] * np.ones(len(GRID))
    best = protocols.curve(table(runs), 4000, protocols.PROTOCOLS["paper"])
    assert best.interval.estimate[-1] == np.mean(np.arange(20, 30))
    everyone = protocols.curve(table(runs), 4000, protocols.PROTOCOLS["all"])
    assert everyone.interval.estimate[-1] == pytest.approx(14.5)
    assert len(everyone.runs) == 30


def judged(**runs) -> dict[str, dict[str, str]]:
    curves = protocols.curves_of({name.replace("_", "-"): columns for name, columns in runs.items()}, {}, 4000)
    return {row["id"].split("@")[0]: row["results"]["all"] for row in judge_figure(FIGURES[0], curves)}


def test_claims_whose_answer_is_known():
    """The paper's own numbers, then the opposite order, then two methods that cannot be told apart."""
    rows = judged(gpomdp=ramp(3000), svrpg=ramp(1500), srvr_pg=ramp(1500), storm_pg=ramp(480))
    assert {row["verdict"] for row in rows.values()} == {claims.HOLDS}
    assert rows["cart-pole/storm-pg/lead/gpomdp"]["figure"] == "2500"
    rows = judged(gpomdp=ramp(500), svrpg=ramp(1500), srvr_pg=ramp(1500), storm_pg=ramp(3000))
    assert rows["cart-pole/storm-pg/lead/gpomdp"]["verdict"] == claims.FAILS
    assert rows["cart-pole/storm-pg/within-500"]["verdict"] == claims.FAILS
    rows = judged(gpomdp=ramp(3000), svrpg=ramp(801, noise=0.3), srvr_pg=ramp(1500), storm_pg=ramp(800, noise=0.3))
    assert rows["cart-pole/storm-pg/lead/svrpg"]["verdict"] == claims.UNCLEAR


def test_never_is_not_before_never():
    """Where neither reaches the maximum there is no lead; where one never does, it is behind."""
    low = ramp(1000, top=50.0)
    rows = judged(gpomdp=low, svrpg=low, srvr_pg=ramp(1500), storm_pg=ramp(480))
    assert rows["cart-pole/svrpg/lead/gpomdp"]["verdict"] == claims.UNCLEAR
    assert rows["cart-pole/storm-pg/lead/gpomdp"] == {"figure": "∞", "interval": "∞ to ∞", "verdict": claims.HOLDS}


def test_a_budget_too_small_is_not_judged():
    curves = protocols.curves_of({name: ramp(50) for name in FIGURES[0].algorithms}, {}, 400)
    rows = judge_figure(FIGURES[0], curves)
    assert {verdict: n for verdict, n in claims.count_verdicts(rows, "all").items() if n} == {claims.UNMEASURED: len(rows)}


def test_mountain_car_claims():
    grid = protocols.grid_for(1500)

    def rise(reach: float, last: float = -60.0) -> dict[str, np.ndarray]:
        return table(np.tile(-830 + np.minimum(grid / reach, 1.0) * (last + 830), (6, 1)), grid)

    runs = {"gpomdp": rise(3000, -400.0), "svrpg": rise(1300), "srvr-pg": rise(1400), "storm-pg": rise(300)}
    rows = judge_figure(FIGURES[2], protocols.curves_of(runs, {}, 1500))
    assert {row["results"]["all"]["verdict"] for row in rows} == {claims.HOLDS}
    runs["storm-pg"] = table(np.where(grid > 1000, -400.0, np.tile(rise(300)["return"][: len(grid)], (6, 1))), grid)
    rows = {
        row["id"].split("@")[0]: row["results"]["all"]["verdict"]
        for row in judge_figure(FIGURES[2], protocols.curves_of(runs, {}, 1500))
    }
    assert rows["mountain-car/storm-pg/ahead-at-200/svrpg"] == claims.HOLDS


@pytest.mark.parametrize("points", [4, 8])
def test_every_algorithm_gets_the_same_number_of_configurations(points):
    sizes = {len(tuning.space_for(name, points)) for name in stormpg.ALGORITHMS}
    assert sizes == {3 * points}


def test_the_best_setting_is_found_and_fresh_seeds_are_fresh():
    units = tuning.tuning_units("cartpole-continuous", "gpomdp", 4, 4000, 3, {})
    assert tuning.TUNING_SEED + 100 < tuning.FRESH_SEED
    tables = []
    for shape in range(3):
        parts = [table(np.full((3, len(GRID)), 10.0 * shape - setting)) for setting in range(4)]
        for setting, part in enumerate(parts):
            part["setting"][:] = setting
        tables.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    best, areas = tuning.best_setting(units, tables)
    assert best == units[2].settings[0]
    assert max(areas) == areas[8] == 20.0


def test_area_counts_trajectories_not_iterations():
    runs = {
        "iteration": np.array([0, 1, 0, 1]),
        "trajectories": np.array([30, 40, 10, 40]),
        "return": np.array([1.0, 5.0, 2.0, 6.0]),
    }
    np.testing.assert_allclose(mean_return(runs), [(30 * 1 + 10 * 5) / 40, (10 * 2 + 30 * 6) / 40])


def test_the_share_of_good_settings():
    curves = np.zeros((2, 2, 5, 3))
    curves[0, 0, :, -1], curves[0, 1, :, -1], curves[1, 0, :, -1] = 100, 96, 94
    assert robustness.good_share(curves).estimate == 0.5
    narrow, wide = (Interval(np.asarray(x), np.asarray(x), np.asarray(x), np.full(10, x)) for x in (0.2, 0.6))
    shares = {(name, b): wide if name == "storm-pg" else narrow for name in robustness.METHODS for b in (False, True)}
    rows = sensitivity_rows("cartpole-continuous", shares)
    assert len(rows) == 4
    assert {row["results"]["all"]["verdict"] for row in rows} == {claims.HOLDS}


def test_grids_are_one_batch_where_the_rows_are_floats():
    momentum, batch = robustness.grids("cartpole-continuous", "storm-pg", 100, 2, {})
    assert len(momentum.units()) == 1
    assert len(momentum.units()[0].settings) == len(robustness.MOMENTA) * len(robustness.RATES)
    assert [unit.settings[0]["B"] for unit in batch.units()] == list(robustness.BATCHES)


def test_variance_of_a_plain_estimator_has_no_bias_and_falls_with_the_batch(monkeypatch):
    """On a small chain: the bias is within the noise, and four times the batch has about a quarter of the variance."""
    monkeypatch.setattr(variance, "RESAMPLES", 400)
    env = stormpg.make("chain")
    few, many = (variance.along(env, stormpg.make_algorithm("gpomdp", S0=S0, eta=1e-6), [S0], 4, 4, 3000) for S0 in (10, 40))
    assert few["variance"] == few["plain"]
    assert abs(few["bias"][0]) < 0.1 * few["variance"][0]
    assert 3 < few["variance"][0] / many["variance"][0] < 5.3


def test_a_memory_of_the_truth_removes_variance():
    """STORM-PG at ξ_t = ξ_{t−1}: both terms cancel but for α d(ξ_t), so the variance is α² of the plain one's."""
    env = stormpg.make("chain")
    found = variance.along(env, stormpg.storm_pg(alpha=0.3, eta=1e-7, S0=200, B=5), [200], 4, 4, 1000)
    assert found["variance"][0] == pytest.approx(0.09 * found["plain"][0], rel=1e-2)


def test_json_holds_no_nan():
    assert (
        json.dumps(simple({"a": np.array([1.0, np.nan, np.inf]), "b": np.int64(3)}), allow_nan=False)
        == '{"a": [1.0, null, null], "b": 3}'
    )


def test_a_comparison_leaves_a_page_and_goes_on(tmp_path, monkeypatch):
    wanted = comparison.Comparison("lqr", ("gpomdp", "storm-pg"), 60, 3, horizon=6)
    shop = Workshop(tmp_path / "study")
    data = comparison.compare(shop, wanted, False, ["stormpg compare lqr"])
    files = {"report.html", "tables.md", "claims.json", "figure1.png", "figure1.pdf", "experiment.json", "runs"}
    assert {f.name for f in shop.root.iterdir()} == files
    assert list(data["environments"][0]["algorithms"]) == ["gpomdp", "storm-pg"]
    shutil.rmtree(shop.root / "runs" / "lqr" / "gpomdp")
    again = comparison.compare(shop, wanted, False, ["stormpg compare lqr"])
    assert again["environments"] == data["environments"]
    monkeypatch.setattr("stormpg.experiments.units.train", None)
    runs = [shop.root / "runs" / "lqr" / name for name in ("gpomdp", "storm-pg")]
    reported = comparison.report_runs(runs, tmp_path / "again", ["stormpg report"])
    assert reported["environments"][0]["algorithms"] == data["environments"][0]["algorithms"]


def test_two_runs_of_one_name_keep_two_names():
    assert comparison.unique("a", {}) == "a"
    assert comparison.unique("a", {"a": 1, "a (2)": 1}) == "a (3)"

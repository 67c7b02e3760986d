"""Studies: stored units, protocols, claims with known answers, equal tuning, robustness, variance."""

import functools
import json
import os
import shutil

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import stormpg
from stormpg.errors import InputError
from stormpg.paper import FIGURES
from stormpg.reproduce import quantities, robustness, variance
from stormpg.reproduce.reproduction import judge_figure, sensitivity_rows
from stormpg.runs.table import mean_return
from stormpg.statistics import iqm, percentiles
from stormpg.studies import comparison, equal_tuning, protocols, verdicts, workers
from stormpg.studies.report_content import simple
from stormpg.studies.study import claimed
from stormpg.studies.work_units import Unit, compute_unit, keep_unit, split_settings
from stormpg.studies.workspace import Workspace

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


STUDY_PARTS = {
    "tuning": "tuning/*/*/*/config.json",
    "tuned": "runs/*/*-tuned/config.json",
    "given": "runs/*/*[!d]/config.json",
}


def table(runs: np.ndarray, grid: np.ndarray = GRID) -> dict[str, np.ndarray]:
    """The table of metrics of runs with the given returns at the points of the grid."""
    seeds, points = runs.shape
    return {
        "setting": np.zeros(seeds * points, int),
        "seed": np.repeat(np.arange(seeds), points),
        "iteration": np.tile(np.arange(points), seeds),
        "trajectories": np.tile(grid, seeds),
        "return": runs.ravel(),
    }


def ramp(reach: float, top: float = 100.0, seeds: int = 12, noise: float = 0.0) -> dict[str, np.ndarray]:
    """Runs that rise linearly to `top` at `reach` trajectories, and then stay constant."""
    spread = 1 + noise * np.random.default_rng(int(reach)).normal(size=(seeds, 1))
    return table(np.minimum(GRID / (reach * spread), 1.0) * top)


def test_a_unit_is_run_once_and_read_again(tmp_path, monkeypatch):
    first = Workspace(tmp_path).run([SMALL])[0]
    monkeypatch.setattr("stormpg.studies.work_units.train", None)  # any training now fails
    again = Workspace(tmp_path).run([SMALL])[0]
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert [set(part["setting"]) for part in split_settings(again, 2)] == [{0}, {1}]


def test_processes_do_what_threads_do(tmp_path, monkeypatch):
    by_threads = Workspace(tmp_path / "threads").run([SMALL])[0]
    monkeypatch.setattr(workers.ThisMachine, "in_groups", False)
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # restored afterwards: flags may be added to it
    told = []
    by_processes = Workspace(tmp_path / "processes", lambda *about: told.append(about)).run([SMALL])[0]
    for name in by_threads:
        np.testing.assert_array_equal(by_threads[name], by_processes[name])
    assert told == [(SMALL.folder, 1, 1)]


def test_a_unit_with_other_settings_is_refused(tmp_path):
    keep_unit(SMALL, tmp_path, compute_unit(SMALL))
    other = Unit(**{**SMALL.__dict__, "trajectories": 10})
    with pytest.raises(InputError, match="another trajectories: 8; expected 10"):
        Workspace(tmp_path).run([other])


def test_what_was_interrupted_is_run_again(tmp_path):
    part = tmp_path / "runs" / ".a.part"
    part.mkdir(parents=True)
    (part / "config.json").write_text("half")
    keep_unit(SMALL, tmp_path, compute_unit(SMALL))
    assert not part.exists()
    assert (tmp_path / "runs" / "a" / "summary.json").exists()


def test_a_report_does_not_train(tmp_path):
    with pytest.raises(InputError, match="is missing"):
        Workspace(tmp_path, train=False).run([SMALL])


def test_a_folder_of_another_study_is_refused(tmp_path):
    new, about = Workspace(tmp_path / "new"), {"kind": "reproduce", "seeds": 3}
    for _ in range(2):
        with claimed(new, about, []):
            assert (tmp_path / "new" / "experiment.json").exists()
    with pytest.raises(InputError, match="seeds = 3; asked for 4"), claimed(new, about | {"seeds": 4}, []):
        pass
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("")
    with pytest.raises(InputError, match="holds other files"), claimed(Workspace(tmp_path / "full"), about, []):
        pass


def test_a_study_is_one_process_at_a_time(tmp_path):
    """Only one process can run a study. Another can write its report at the same time."""
    about = {"kind": "reproduce", "seeds": 3}
    with claimed(Workspace(tmp_path), about, []):
        with pytest.raises(InputError, match="another process is writing"), claimed(Workspace(tmp_path), about, []):
            pass
        with claimed(Workspace(tmp_path, train=False), about, []):
            pass


def test_the_papers_protocol_is_a_selection():
    runs = np.arange(30.0)[:, None] * np.ones(len(GRID))
    best = protocols.curve(runs, GRID, protocols.PROTOCOLS["paper"], "task", "a")
    assert best.interval.estimate[-1] == np.mean(np.arange(20, 30))
    assert sorted(best.runs[:, 0]) == list(range(20, 30))
    assert best.interval.low[-1] < 22 < 25 < best.interval.high[-1]  # of the ten runs alone it would be 22.6 to 26.4
    everyone = protocols.curve(runs, GRID, protocols.PROTOCOLS["all"], "task", "a")
    assert everyone.interval.estimate[-1] == pytest.approx(14.5)
    assert len(everyone.runs) == 30
    assert best.seeds == everyone.seeds == 30


def test_algorithms_and_environments_are_resampled_independently():
    """The same runs under different names: resample k of one is independent of resample k of another."""
    columns = table(np.random.default_rng(0).normal(size=(30, len(GRID))))
    runs = {"a": columns, "b": columns}
    found = [protocols.curves_of(env, runs, 4000, runs, 4000) for env in ("here", "there")]
    for key in protocols.PROTOCOLS:
        ends = [one[key][name].interval.draws[:, -1] for one in found for name in runs]
        assert np.abs(np.corrcoef(ends) - np.eye(4)).max() < 0.15, key
    again = protocols.curves_of("here", {"a": columns}, 4000)["paper"]["a"].interval.draws
    np.testing.assert_array_equal(again, found[0]["paper"]["a"].interval.draws)


def test_a_threshold_varies_with_the_resample():
    """Seeds that differ only in height: each curve reaches 99 % of its own final value at the same point."""
    heights = np.linspace(50, 150, 12)[:, None]
    curves = protocols.curves_of("task", {"storm-pg": table(np.minimum(GRID / 1000, 1.0) * heights)}, 4000)["all"]
    assert np.ptp(curves["storm-pg"].interval.draws[:, -1]) > 20
    found = quantities.reaches_maximum("storm-pg")(curves)
    assert found.low == found.estimate == found.high
    found = quantities.reasonable("storm-pg")(curves)
    assert found.low == found.estimate == found.high
    flat = {"storm-pg": table(np.full((12, len(GRID)), 5.0))}
    assert np.isnan(quantities.reasonable("storm-pg")(protocols.curves_of("task", flat, 4000)["all"]).low)


def test_tuned_runs_have_a_budget_of_their_own():
    short = protocols.grid_for(1000)
    tuned = {name: table(np.tile(np.minimum(short / 400, 1.0), (6, 1)), short) for name in FIGURES[0].algorithms}
    curves = protocols.curves_of("task", {name: ramp(50) for name in tuned}, 4000, tuned, 1000)
    assert [curves[key]["storm-pg"].grid[-1] for key in ("all", "tuned")] == [4000, 1000]
    results = {row["id"].split("@")[0]: row["results"] for row in judge_figure(FIGURES[0], curves)}
    assert results["cart-pole/storm-pg/within-500"].keys() == protocols.PROTOCOLS.keys()
    assert "tuned" not in results["cart-pole/storm-pg/lead/svrpg"]  # this claim needs 1500 trajectories


def test_the_number_of_claims_is_said():
    rows = judge_figure(FIGURES[0], protocols.curves_of("task", {name: ramp(50) for name in FIGURES[0].algorithms}, 4000))
    told = verdicts.multiplicity([*rows, {"results": {"all": {"verdict": verdicts.HOLDS}}}], {"all": "(b) IQM", "tuned": "(c)"})
    assert "(b) IQM: 10 claims tested, 10 decided, about 0.5 to be expected by chance, 10 decided alike" in told
    assert "(c)" not in told
    rows[0]["results"]["all"].update(verdict=verdicts.UNCLEAR, unanimous=False)
    rows[1]["results"]["all"].update(unanimous=False)
    assert "10 claims tested, 9 decided, about 0.5 to be expected by chance, 8 decided alike" in verdicts.multiplicity(
        rows, {"all": "(b)"}
    )
    assert verdicts.multiplicity([], {"all": "(b)"}) == ""


def judged(**runs) -> dict[str, dict[str, str]]:
    curves = protocols.curves_of("task", {name.replace("_", "-"): columns for name, columns in runs.items()}, 4000)
    return {row["id"].split("@")[0]: row["results"]["all"] for row in judge_figure(FIGURES[0], curves)}


def test_claims_whose_answer_is_known():
    """The numbers of the paper, then the opposite order, then two methods that cannot be distinguished."""
    rows = judged(gpomdp=ramp(3000), svrpg=ramp(1500), srvr_pg=ramp(1500), storm_pg=ramp(480))
    assert {row["verdict"] for row in rows.values()} == {verdicts.HOLDS}
    assert rows["cart-pole/storm-pg/lead/gpomdp"]["figure"] == "2500"
    rows = judged(gpomdp=ramp(500), svrpg=ramp(1500), srvr_pg=ramp(1500), storm_pg=ramp(3000))
    assert rows["cart-pole/storm-pg/lead/gpomdp"]["verdict"] == verdicts.FAILS
    assert rows["cart-pole/storm-pg/within-500"]["verdict"] == verdicts.FAILS
    rows = judged(gpomdp=ramp(3000), svrpg=ramp(801, noise=0.3), srvr_pg=ramp(1500), storm_pg=ramp(800, noise=0.3))
    assert rows["cart-pole/storm-pg/lead/svrpg"]["verdict"] == verdicts.UNCLEAR


def test_never_is_not_before_never():
    """If neither method reaches the maximum, there is no lead. If only one never reaches it, that one is behind."""
    low = ramp(1000, top=50.0)
    rows = judged(gpomdp=low, svrpg=low, srvr_pg=ramp(1500), storm_pg=ramp(480))
    assert rows["cart-pole/svrpg/lead/gpomdp"]["verdict"] == verdicts.UNCLEAR
    ahead = {"figure": "∞", "interval": "∞ to ∞", "verdict": verdicts.HOLDS, "unanimous": True}
    assert rows["cart-pole/storm-pg/lead/gpomdp"] == ahead


def test_a_resample_in_which_neither_gets_there_is_a_tie():
    """Such a resample counts as no lead, and the other resamples still give an interval."""
    grid, late, early, top = np.array([1, 2, 3]), *np.array([[0.0, 0, 100], [0, 100, 100], [100, 100, 100]])
    curve = lambda *draws: protocols.Curve(
        np.array(draws), grid, percentiles(draws[0], np.array(draws)), 30, np.arange(len(draws))
    )
    rest = {"gpomdp": curve(late, late / 2), "svrpg": curve(top, top)}
    found = quantities.lead("storm-pg", "gpomdp")({**rest, "storm-pg": curve(early, early / 2)})
    assert found.draws.tolist() == [1.0, 0.0]
    assert (found.estimate, found.low, found.high) == (1, 0, 1)


def test_a_budget_too_small_is_not_judged():
    curves = protocols.curves_of("task", {name: ramp(50) for name in FIGURES[0].algorithms}, 400)
    rows = judge_figure(FIGURES[0], curves)
    assert {verdict: n for verdict, n in verdicts.count_verdicts(rows, "all").items() if n} == {verdicts.UNMEASURED: len(rows)}


def test_mountain_car_claims():
    grid = protocols.grid_for(1500)

    def rise(reach: float, last: float = -60.0) -> dict[str, np.ndarray]:
        return table(np.tile(-830 + np.minimum(grid / reach, 1.0) * (last + 830), (6, 1)), grid)

    runs = {"gpomdp": rise(3000, -400.0), "svrpg": rise(1300), "srvr-pg": rise(1400), "storm-pg": rise(300)}
    rows = judge_figure(FIGURES[2], protocols.curves_of("task", runs, 1500))
    assert {row["results"]["all"]["verdict"] for row in rows} == {verdicts.HOLDS}
    runs["storm-pg"] = table(np.where(grid > 1000, -400.0, np.tile(rise(300)["return"][: len(grid)], (6, 1))), grid)
    rows = {
        row["id"].split("@")[0]: row["results"]["all"]["verdict"]
        for row in judge_figure(FIGURES[2], protocols.curves_of("task", runs, 1500))
    }
    assert rows["mountain-car/storm-pg/ahead-at-200/svrpg"] == verdicts.HOLDS
    assert rows["mountain-car/storm-pg/stable-by-600"] == verdicts.HOLDS  # it never falls below its final value
    assert rows["mountain-car/svrpg/late"] == verdicts.FAILS
    assert rows["mountain-car/gpomdp/does-not-converge"] == verdicts.HOLDS


@pytest.mark.parametrize("points", [4, 8])
def test_every_algorithm_gets_the_same_number_of_configurations(points):
    sizes = {len(equal_tuning.space_for(name, points)) for name in stormpg.ALGORITHMS}
    assert sizes == {3 * points}


def tuning_tables(scores: np.ndarray) -> list[dict[str, np.ndarray]]:
    """The tables of three seeds for each shape and setting, with the given returns."""
    tables = []
    for shape in scores:
        parts = [table(np.full((3, len(GRID)), score)) for score in shape]
        for setting, part in enumerate(parts):
            part["setting"][:] = setting
        tables.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return tables


def test_the_best_setting_is_found():
    units = equal_tuning.tuning_units("cartpole-continuous", "gpomdp", 4, 4000, 3, {})
    best, areas = equal_tuning.best_setting(units, tuning_tables(10.0 * np.arange(3)[:, None] - np.arange(4)))
    assert best == units[2].settings[0]
    assert max(areas) == areas[8] == 20.0


def test_a_setting_that_diverged_is_never_the_best():
    units = equal_tuning.tuning_units("cartpole-continuous", "gpomdp", 4, 4000, 3, {})
    scores = np.full((3, 4), -5.0)
    scores[0, 0], scores[1, 1], scores[2, 2], scores[2, 3] = np.nan, np.inf, -np.inf, -4.0
    assert equal_tuning.best_setting(units, tuning_tables(scores))[0] == units[2].settings[3]
    with pytest.raises(InputError, match="none of the 12 configurations of gpomdp on cartpole-continuous has a finite mean"):
        equal_tuning.best_setting(units, tuning_tables(np.full((3, 4), np.nan)))


def test_tuning_sees_the_whole_of_what_is_shown_on_seeds_that_it_does_not_show(tmp_path, monkeypatch):
    wanted = comparison.Comparison("chain", ("gpomdp", "storm-pg"), 60, 3, horizon=6)
    data = comparison.compare(Workspace(tmp_path), wanted, True, [])
    assert data["environments"][0]["algorithms"]["gpomdp"]["curves"]["tuned"]["grid"][-1] == 60
    configs = {part: [json.loads(f.read_text()) for f in tmp_path.glob(glob)] for part, glob in STUDY_PARTS.items()}
    assert {part: len(found) for part, found in configs.items()} == {"tuning": 5, "tuned": 2, "given": 2}
    assert {config["trajectories"] for found in configs.values() for config in found} == {60}
    assert {config["horizon"] for found in configs.values() for config in found} == {6}
    # A report can still be written for a folder of an earlier version, which tuned on fewer trajectories.
    shutil.rmtree(tmp_path / "tuning")
    units = [unit for name in wanted.algorithms for unit in equal_tuning.tuning_units("chain", name, 4, 40, 2, {}, 6)]
    Workspace(tmp_path).run(units)
    monkeypatch.setattr("stormpg.studies.work_units.train", None)
    with pytest.raises(InputError, match="another trajectories: 40; expected 60"):
        comparison.compare(Workspace(tmp_path), wanted, True, [])
    chosen = [row["settings"] for row in data["settings"] if row["protocol"] == "(c) tuned"]
    monkeypatch.setattr("stormpg.studies.study.best_setting", lambda search, tables: (chosen.pop(0), []))
    again = comparison.compare(Workspace(tmp_path, train=False), wanted, True, [])
    assert again["environments"] == data["environments"]
    seeds = {part: {seed for config in found for seed in config["seeds"]} for part, found in configs.items()}
    assert not seeds["tuning"] & (seeds["tuned"] | seeds["given"])


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
    random = np.random.default_rng(0).normal(scale=0.02, size=(3, 1000))
    narrow, alike, wide = (percentiles(x, x + noise) for x, noise in zip((0.2, 0.21, 0.6), random, strict=True))
    shares = {(name, b): wide if name == "storm-pg" else narrow for name in robustness.METHODS for b in (False, True)}
    rows = sensitivity_rows("cartpole-continuous", shares, 10)
    assert len(rows) == 4
    assert {row["results"]["all"]["verdict"] for row in rows} == {verdicts.HOLDS}
    rows = sensitivity_rows("cartpole-continuous", shares | {("storm-pg", True): alike, ("storm-pg", False): alike}, 10)
    assert {row["results"]["all"]["verdict"] for row in rows} == {verdicts.UNCLEAR}
    shares |= {("storm-pg", True): narrow, ("svrpg", True): wide}
    rows = {row["id"]: row["results"]["all"]["verdict"] for row in sensitivity_rows("cartpole-continuous", shares, 10)}
    assert rows["robustness/svrpg/B@cartpole-continuous"] == verdicts.FAILS


def test_grids_are_one_batch_where_the_rows_are_floats():
    momentum, batch = robustness.grids("cartpole-continuous", "storm-pg", 100, 2, {})
    assert len(momentum.units()) == 1
    assert len(momentum.units()[0].settings) == len(robustness.MOMENTA) * len(robustness.RATES)
    assert [unit.settings[0]["B"] for unit in batch.units()] == list(robustness.BATCHES)


def test_variance_of_a_plain_estimator_has_no_bias_and_falls_with_the_batch(monkeypatch):
    """On a small chain: the bias is within the noise, and a four times larger batch has about a quarter of the variance."""
    monkeypatch.setattr(variance, "RESAMPLES", 400)
    env = stormpg.make("chain")
    algorithm = stormpg.make_algorithm("gpomdp", S0=10, eta=1e-6)
    four = stormpg.make_algorithm("gpomdp", S0=40, eta=1e-6)
    few, many = variance.along(env, algorithm, [10], 4, 4, 3000), variance.along(env, four, [40], 4, 4, 3000)
    # The same quantity from separate batches, with the public functions.
    policy = stormpg.policy_for(env)

    @jax.jit
    def sampled(params, key):
        batch = stormpg.rollout(env, policy, params, key, 10, env.horizon)
        return ravel_pytree(stormpg.gradient(algorithm.estimator, policy, params, batch))[0]

    trained, keys = stormpg.train(env, algorithm, 10, 4), jax.random.split(jax.random.key(9), 400)
    spreads = [
        np.asarray(jax.lax.map(functools.partial(sampled, trained.params("last", seed=seed)), keys)).var(axis=0, ddof=1).sum()
        for seed in range(4)
    ]
    assert few["variance"][0] == pytest.approx(iqm(np.array(spreads)), rel=0.2)
    assert abs(few["bias"][0]) < 0.1 * few["variance"][0]
    assert 3 < few["variance"][0] / many["variance"][0] < 5.3


def test_a_memory_of_the_truth_removes_variance():
    """STORM-PG at ξ_t = ξ_{t−1}: both terms cancel except α d(ξ_t), so the variance is α² times that of the plain estimate."""
    env = stormpg.make("chain")
    found = variance.along(env, stormpg.storm_pg(alpha=0.3, eta=1e-7, S0=200, B=5), [200], 4, 4, 1000)
    assert found["variance"][0] == pytest.approx(0.09 * found["plain"][0], rel=1e-2)


def test_json_holds_no_nan():
    assert (
        json.dumps(simple({"a": np.array([1.0, np.nan, np.inf]), "b": np.int64(3)}), allow_nan=False)
        == '{"a": [1.0, null, null], "b": 3}'
    )


def test_a_comparison_leaves_a_page_and_goes_on(tmp_path, monkeypatch):
    wanted = comparison.Comparison("chain", ("gpomdp", "storm-pg"), 60, 3, horizon=6)
    workspace = Workspace(tmp_path / "study")
    data = comparison.compare(workspace, wanted, False, ["stormpg compare chain"])
    files = {"report.html", "tables.md", "claims.json", "figure1.png", "figure1.pdf", "experiment.json", "runs"}
    assert {f.name for f in workspace.root.iterdir()} == files | {".lock"}
    assert list(data["environments"][0]["algorithms"]) == ["gpomdp", "storm-pg"]
    shutil.rmtree(workspace.root / "runs" / "chain" / "gpomdp")
    again = comparison.compare(workspace, wanted, False, ["stormpg compare chain"])
    assert again["environments"] == data["environments"]
    monkeypatch.setattr("stormpg.studies.work_units.train", None)
    runs = [workspace.root / "runs" / "chain" / name for name in ("gpomdp", "storm-pg")]
    reported = comparison.report_runs(runs, tmp_path / "again", ["stormpg report"])
    assert reported["environments"][0]["algorithms"] == data["environments"][0]["algorithms"]


def test_two_runs_of_one_name_keep_two_names():
    assert comparison.unique("a", {}) == "a"
    assert comparison.unique("a", {"a": 1, "a (2)": 1}) == "a (3)"

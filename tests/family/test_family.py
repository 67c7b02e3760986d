"""The comparison of the family: its cells, scores, gains and report."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import stormpg
from stormpg.cli import app
from stormpg.errors import InputError
from stormpg.family import authors, cells, claims, rows, scores, suite, summary, tasks
from stormpg.family.cells import Cell, Runs, Size
from stormpg.studies import workers
from stormpg.studies.equal_tuning import FRESH_SEED, best_setting
from stormpg.studies.workers import Processes
from stormpg.studies.workspace import Workspace
from tests import small

LQR = next(task for task in tasks.TASKS if task.env == "lqr")._replace(trajectories=40)
SMALL = Size(seeds=2, configurations=3, tuning_seeds=2)


# ---- What is compared


def test_all_algorithms_are_in_it():
    """All but three that precede STORM-PG and are in the reproduction."""
    assert set(stormpg.ALGORITHMS) - set(rows.ROWS) == {"reinforce", "pgt", "svrpo"}
    assert len(set(rows.ROWS)) == len(rows.ROWS)


def test_all_built_in_tasks_are_in_it():
    """And four of Gymnasium. The chain, on which everything is exact, is for tests."""
    inside = {task.env for task in tasks.TASKS if not task.outside}
    assert inside == set(stormpg.ENVIRONMENTS) - {"chain"}
    assert len([task for task in tasks.TASKS if task.outside]) == 4


def test_published_settings_can_be_run():
    for of_tasks in authors.SETTINGS.values():
        for env in of_tasks:
            assert env == authors.EVERYWHERE or env in {task.env for task in tasks.TASKS}
    for cell in suite.Suite().cells().values():
        cell.given().algorithms()
        cell.tuning().algorithms()
        assert cell.task.trajectories >= cell.given().algorithms()[0].schedule.S0


def test_the_parts_of_a_cell_have_equally_many_runs():
    """So that they share a compiled program."""
    for size in (suite.INSIDE,):
        assert size.seeds == size.configurations * size.tuning_seeds


def test_claims_are_about_rows_and_tasks():
    names, envs = set(rows.ROWS), {task.env for task in tasks.TASKS}
    for env, claim in claims.all_claims():
        assert env in envs
        assert set(claim.id.split("/")[1:]) <= names


# ---- Cells


def test_a_cell_is_tuned_on_other_seeds_than_it_shows(tmp_path):
    cell = Cell("harpg", LQR, SMALL)
    made = cells.compute(cell)
    cells.keep(cell, tmp_path, made)
    assert cells.is_stored(cell, tmp_path)
    found = cells.read(cell, tmp_path)
    assert set(found.given["seed"]) == {0, 1}
    assert set(found.tuning["seed"]) == {1000, 1001}
    assert set(found.tuned["seed"]) == {FRESH_SEED, FRESH_SEED + 1}
    best, areas = best_setting([cell.tuning()], [found.tuning])
    assert len(areas) == 3
    assert dict(found.chosen) == dict(best)
    again = stormpg.train("lqr", stormpg.harpg(**found.chosen), trajectories=40, seeds=2, seed=FRESH_SEED)
    np.testing.assert_allclose(found.tuned["return"], again.columns["return"], rtol=1e-5)


def test_a_cell_that_always_diverges_is_shown_with_its_default():
    cell = Cell("storm-plus", LQR, SMALL)
    table = {"setting": np.repeat([0, 1, 2], 2), "return": np.full(6, np.nan), "trajectories": np.full(6, 40)}
    table |= {"seed": np.tile([1000, 1001], 3), "iteration": np.zeros(6, int), "steps": np.full(6, 40)}
    assert cell.tuned(table).settings == ({},)


# ---- Scores and gains


def table(levels):
    """The table of runs with constant returns, two iterations each."""
    count = len(levels)
    return {
        "setting": np.zeros(2 * count, int),
        "seed": np.repeat(np.arange(count), 2),
        "iteration": np.tile([0, 1], count),
        "trajectories": np.tile([10, 20], count),
        "steps": np.tile([10, 20], count),
        "return": np.repeat(np.asarray(levels, float), 2),
    }


def made(**levels):
    """Cells of one task, from the level of each seed."""
    parts = {name.replace("_", "-"): table(values) for name, values in levels.items()}
    return {(LQR.env, name): Runs(one, one, one, {}) for name, one in parts.items()}


def test_gains_are_differences_of_scores():
    random = np.random.default_rng(0)
    noise = lambda: random.normal(size=16)
    runs = made(
        storm_pg=-10 + noise(), same=-10 + noise(), better=-6 + noise(), worse=-14 + noise(), broken=np.full(16, -np.inf)
    )
    names = [name for _, name in runs]
    found = scores.scores([LQR], names, runs, "tuned")
    scale = scores.scale_of(LQR, runs)
    assert scale.high == LQR.best
    np.testing.assert_allclose(scale.low, runs[LQR.env, "storm-pg"].given["return"].mean())
    expected = {"same": scores.OPEN, "better": scores.GAINS, "worse": scores.LOSES, "broken": scores.LOSES}
    for name, verdict in expected.items():
        gain = scores.gain(found, [LQR], name, "storm-pg")
        assert gain.verdict == verdict, name
    better = scores.gain(found, [LQR], "better", "storm-pg").interval
    assert better.low < 4 / (LQR.best + 10) < better.high
    assert float(found[LQR.env, "broken"].interval.estimate) == scores.LOWEST


def test_sentences_say_what_is_gained():
    def gains(given, tuned):
        low = {scores.GAINS: 0.1, scores.OPEN: -0.1, scores.LOSES: -0.3}
        one = lambda verdict: scores.Gain(scores.Interval(*(np.asarray(low[verdict] + x) for x in (0.1, 0.0, 0.15, 0.0))))
        return {(part, "sharp", r): one(v) for part, v in (("given", given), ("tuned", tuned)) for r in rows.REFERENCES}

    assert summary.sentence("sharp", gains(scores.OPEN, scores.LOSES)).startswith("sharp gains nothing here")
    assert summary.sentence("sharp", gains(scores.OPEN, scores.GAINS)).startswith("sharp gains: ")
    assert summary.sentence("sharp", gains(scores.LOSES, scores.GAINS)).startswith("sharp gains in one comparison and loses")


def test_tolerance_is_the_share_near_the_best():
    near, far = LQR.best - 1.0, -100.0
    tuning = table([near, near, far, far])
    tuning["setting"] = np.repeat([0, 1, 2, 3], 2)
    runs = {(LQR.env, "storm-pg"): Runs(table([-20.0, -20.0]), tuning, tuning, {})}
    assert float(scores.tolerance([LQR], runs, "storm-pg", {LQR.env: 4}).estimate) == 0.5


# ---- The whole


@pytest.mark.slow
def test_the_suite_in_small(tmp_path, monkeypatch):
    """It asks for processes, resumes, writes its report, and rebuilds it without training.

    Its parts run in this process, which keeps its programs. The next test runs parts in processes.
    """
    asked = []
    small.family(monkeypatch)
    monkeypatch.setattr(workers, "Processes", lambda: asked.append(1) or workers.ThisMachine())
    arguments = ["compare", "cartpole", "--suite", "family", "--algorithms", "storm-pg,window-npg,page-pg"]
    arguments += ["--seeds", "2", "--trajectories", "50", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert asked
    output = " ".join(done.output.split())
    assert "page-pg learns faster" in output
    assert "Claims of the authors on cartpole" in output
    assert "In words" not in output  # a table of sentences is too wide for a terminal
    page = (tmp_path / "report.html").read_text()
    assert "Equally tuned, with 2 seeds in JAX, of 1 task " in page
    assert "Averaged over tasks, the successors of STORM-PG score " in page
    assert '<th scope="col">The authors say</th>' in page
    names = {"report.html", "tables.md", "claims.json", "scores.json", "curves.json", "map1.png", "map2.png"}
    assert names <= {file.name for file in tmp_path.iterdir()}
    found = json.loads((tmp_path / "scores.json").read_text())
    assert set(found["sentences"]) == {"page-pg"}
    assert set(found["scores"]["tuned"]["page-pg"]) == {"cartpole"}
    times = {file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/**/*.parquet")}
    assert len(times) == 3 * 2
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert times == {file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/**/*.parquet")}


def test_what_the_suite_refuses(tmp_path):
    def refused(*arguments):
        done = CliRunner().invoke(app, ["compare", *arguments, "--out", str(tmp_path / "new")])
        assert isinstance(done.exception, InputError)
        assert not (tmp_path / "new").exists()
        return str(done.exception)

    assert "no environment is given" in refused()
    assert "famly" in refused("--suite", "famly")
    assert "leave out --tune" in refused("--suite", "family", "--tune")
    assert "the suite has no window-npg" in refused("--suite", "family", "--algorithms", "storm-pg")
    assert "chain" in refused("chain", "--suite", "family")
    with pytest.raises(InputError, match="nonsense"):
        suite.check(suite.Suite(algorithms=("storm-pg", "window-npg", "nonsense")))


@pytest.mark.slow
def test_processes_find_what_one_process_finds(tmp_path):
    """Parts run in processes of their own, each with its share of the cores."""
    some = [Cell(name, LQR, SMALL) for name in ("storm-pg", "page-pg")]
    suite.run_cells(Workspace(tmp_path / "apart", workers=Processes()), some)
    suite.run_cells(Workspace(tmp_path / "here"), some)
    for cell in some:
        apart, here = (cells.read(cell, tmp_path / where) for where in ("apart", "here"))
        np.testing.assert_allclose(apart.tuned["return"], here.tuned["return"], rtol=1e-4)

"""tune: spaces, objectives, packs, interrupted generations, storages, bad input."""

import gc
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import stormpg
from stormpg.algorithms import ALGORITHMS
from stormpg.algorithms.settings import Choices, Range
from stormpg.errors import InputError, PartsFailed
from stormpg.runs.table import mean_return
from stormpg.statistics import iqm
from stormpg.studies.workspace import Workspace
from stormpg.tune import halving, packed_trials, search
from stormpg.tune.objective import Objective, objective
from stormpg.tune.packed_trials import packed, run_pack
from stormpg.tune.plan import Problem, Search
from stormpg.tune.space import distributions, read_space, space_for, within
from stormpg.tune.storage import close, open_study
from tests.conftest import killed_after

SEEDS = (1000, 1001, 1002, 1003)
PROBLEM = Problem("chain", "storm-pg", 60, SEEDS, 5, Objective())
SPACE = {"eta": Range(0.001, 0.5, log=True), "alpha": Range(0.1, 1.0)}
FIXED = {"S0": 4, "B": 2}
SEARCH = Search(PROBLEM, SPACE, FIXED, {"eta": 0.01, "alpha": 0.9}, trials=6, generation=4)


def settings(**some):
    return {**FIXED, "eta": 0.05, "alpha": 0.5, **some}


def study_in(folder, wanted=SEARCH, name="s"):
    return open_study(f"sqlite:///{folder / 'study.db'}", name, wanted.about(), "maximize")


def told(study):
    return [(t.number, t.state.name, t.params, t.values, t.intermediate_values) for t in study.get_trials(deepcopy=False)]


# ---- Spaces and objectives


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_has_a_space_whose_corners_run(name):
    space = space_for(name, gaussian=True)
    assert {"sigma"} < set(space)
    assert {"S0", "B"} & set(space)
    assert len(space) >= 3
    ends = lambda values: values.values[:: len(values.values) - 1] if isinstance(values, Choices) else values[:2]
    for end in range(2):
        chosen = {key: ends(values)[end] for key, values in space.items() if key != "sigma"}
        stormpg.make_algorithm(name, **chosen)
    assert set(distributions(space)) == set(space)


def test_a_space_from_a_file(tmp_path):
    file = tmp_path / "space.toml"
    file.write_text('[eta]\nlow = 1e-3\nhigh = 1\nlog = true\n[B]\nlow = 1\nhigh = 4\n[baseline]\nchoices = ["none", "time"]\n')
    space = read_space(file, "storm-pg")
    assert space == {"eta": Range(0.001, 1.0, True), "B": Range(1, 4), "baseline": Choices(("none", "time"))}
    assert [type(d).__name__[:3] for d in distributions(space).values()] == ["Flo", "Int", "Cat"]
    assert within(space, "eta", 0.5)
    assert not within(space, "B", 9)
    assert not within(space, "m", 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[etaa]\nlow = 1\nhigh = 2", "'etaa', which storm-pg and its policy do not have: did you mean 'eta'"),
        ("[m]\nlow = 1\nhigh = 2", "'m', which storm-pg"),
        ("[eta]\nlow = 2\nhigh = 1", "expected low < high"),
        ("[eta]\nlow = 0\nhigh = 1\nlog = true", "low > 0 if log is true"),
        ("[eta]\nlow = 1", "expected low and high"),
        ("[eta]\nchoices = []", "choices, a list"),
        ("[B]\nlow = 1.5\nhigh = 3", "B is 1.5; expected a whole number"),
        ("[baseline]\nlow = 1\nhigh = 2", "expected choices"),
        ("eta = 3", "expected low and high"),
        ("", "names no setting"),
        ("[", "is not TOML"),
    ],
)
def test_bad_spaces(tmp_path, text, words):
    file = tmp_path / "space.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=words.replace("[", r"\[")):
        read_space(file, "storm-pg")


def test_objectives():
    """Two seeds with four batches of 10: the returns of one are 0, 1, 2, 3, those of the other are lower by 1."""
    columns = {
        "iteration": np.tile(np.arange(4), 2),
        "trajectories": np.tile([10, 20, 30, 40], 2),
        "return": np.array([0.0, 1, 2, 3, -1, 0, 1, 2]),
    }
    assert Objective().of_seeds(columns, 40).tolist() == [1.5, 0.5]
    assert Objective("last").of_seeds(columns, 40).tolist() == [1.5, 0.5]  # the window of 50 covers the whole run
    reach = Objective("threshold", 1.0)
    assert reach.direction == "minimize"
    # 1.0 is the mean of the first thirty trajectories of the first seed; the second reaches only 0.5
    assert reach.of_seeds(columns, 40).tolist() == [30, 40]
    with pytest.raises(InputError, match="go together"):
        objective("threshold", None)
    with pytest.raises(InputError, match="go together"):
        objective("area", 3.0)
    with pytest.raises(InputError, match="unknown objective 'aera'"):
        objective("aera", None)


# ---- Packs


def test_trials_of_one_shape_are_packed():
    trials = [settings(eta=0.1), settings(B=3), settings(alpha=0.2), settings(B=3, eta=0.2)]
    assert packed(PROBLEM, trials) == [[0, 2], [1, 3]]
    many = PROBLEM._replace(seeds=tuple(range(16)))
    assert packed(many, [settings(eta=0.1 + i) for i in range(6)]) == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.slow
def test_a_packed_trial_is_the_trial_alone():
    """The random numbers are the same: results are equal up to rounding in the first iterations, and close at the end."""
    problem = PROBLEM._replace(env="cartpole-continuous", horizon=20)
    trials = [settings(eta=0.01), settings(eta=0.02, sigma=0.5), settings(alpha=0.9, sigma=0.7)]
    for name, budget, near in (("the first iterations", 10, 1e-5), ("a whole run", 60, 0.05)):
        together = run_pack(problem._replace(trajectories=budget), trials, None, None, [])
        for one, value in zip(trials, together.values, strict=True):
            algorithm, policy = packed_trials.trial(problem, one)
            alone = stormpg.train(problem.env, algorithm, budget, list(SEEDS), horizon=20, policy=policy)
            assert value == pytest.approx(float(iqm(mean_return(alone.columns))), rel=near), name


def test_a_pack_that_pauses_is_the_pack_in_one_go():
    trials = [settings(eta=eta) for eta in (0.01, 0.05, 0.2)]
    whole = run_pack(PROBLEM, trials, None, None, [])
    part = run_pack(PROBLEM, trials, 20, None, [])
    assert part.values != whole.values
    rest = run_pack(PROBLEM, [trials[2], trials[0]], None, part.reached, [2, 0])
    assert rest.values == [whole.values[2], whole.values[0]]


# ---- Generations


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of the uninterrupted search."""
    folder = tmp_path_factory.mktemp("whole")
    search.run(Workspace(folder), SEARCH, study_in(folder), alone=True)
    return folder


@pytest.mark.slow
def test_a_search(whole):
    study = study_in(whole)
    trials = study.get_trials()
    assert len(trials) == 6
    assert [t.user_attrs["generation"] for t in trials] == [0] * 4 + [1] * 2
    assert trials[0].params == {"eta": 0.01, "alpha": 0.9}
    states = [t.state.name for t in trials]
    assert states[:4].count("COMPLETE") == 1
    assert states[:4].count("PRUNED") == 3
    assert all(set(t.intermediate_values) <= {15, 30, 60} for t in trials)
    pruned = {len(t.intermediate_values) for t in trials[:4] if t.state.name == "PRUNED"}
    assert pruned == {1, 2}
    assert not (whole / "trials").exists()
    again = study_in(whole)
    search.run(Workspace(whole), SEARCH, again, alone=True)
    assert told(again) == told(study)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 4])
def test_an_interrupted_search_is_the_search_in_one_go(tmp_path, whole, after):
    """The search is stopped after some packs and resumed. The trials are the same."""
    parts = tmp_path

    def stop(name, done, of):
        stop.count += 1
        if stop.count > after:
            raise KeyboardInterrupt

    stop.count = 0
    with pytest.raises(KeyboardInterrupt):
        search.run(Workspace(parts, stop), SEARCH, study_in(parts), alone=True)
    assert any(t.state.name == "RUNNING" for t in study_in(parts).get_trials())
    search.run(Workspace(parts), SEARCH, study_in(parts), alone=True)
    assert told(study_in(parts)) == told(study_in(whole))


@pytest.mark.slow
def test_a_search_killed_while_it_asks(tmp_path, whole, monkeypatch):
    """A trial is either stored completely or not at all."""
    import optuna

    parts = tmp_path
    study, real, calls = study_in(parts), optuna.Study.add_trial, []

    def dying(self, trial):
        calls.append(trial)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(self, trial)

    with monkeypatch.context() as patch:
        patch.setattr(study, "add_trial", dying.__get__(study))
        with pytest.raises(KeyboardInterrupt):
            search.run(Workspace(parts), SEARCH, study, alone=True)
    assert [set(t.params) for t in study.get_trials()] == [set(SPACE)] * 2
    search.run(Workspace(parts), SEARCH, study_in(parts), alone=True)
    assert told(study_in(parts)) == told(study_in(whole))


def test_what_is_kept_of_other_trials_is_not_read(tmp_path):
    """Files of different trials, for example of another study in the same folder, are ignored."""
    study_in(tmp_path)
    file = tmp_path / "trials" / "0" / "0" / "0"
    other = run_pack(PROBLEM, [settings(eta=0.3)], 15, None, [])
    halving.keep(file, [settings(eta=0.3)], other)
    assert halving.read(file, [settings(eta=0.3)]) == other
    assert halving.read(file, [settings(eta=0.4)]) is None


@pytest.mark.slow
def test_a_search_with_an_environment_outside_jax(tmp_path):
    problem = Problem("gym:CartPole-v1", "storm-pg", 12, (1000, 1001), 6, Objective())
    wanted = Search(problem, SPACE, FIXED, {}, trials=2, generation=2)
    study = study_in(tmp_path, wanted)
    search.run(Workspace(tmp_path), wanted, study, alone=True)
    assert sorted(t.state.name for t in study.get_trials()) == ["COMPLETE", "PRUNED"]


@pytest.mark.slow
def test_values_that_are_no_numbers(tmp_path, monkeypatch):
    """Trials whose values are NaN or infinite rank last, and are reported as failed."""
    real = halving.run_pack

    def spoiled(problem, trials, *more):
        found = real(problem, trials, *more)
        bad = [one["alpha"] < 0.5 for one in trials]
        spoil = lambda values, by: [by if one else value for one, value in zip(bad, values, strict=True)]
        return found._replace(values=spoil(found.values, float("nan")), so_far=spoil(found.so_far, float("-inf")))

    monkeypatch.setattr(halving, "run_pack", spoiled)
    study = study_in(tmp_path, Search(**{**SEARCH.__dict__, "halving": False}))
    search.run(Workspace(tmp_path), Search(**{**SEARCH.__dict__, "halving": False}), study, alone=True)
    for t in study.get_trials():
        assert t.state.name == ("FAIL" if t.params["alpha"] < 0.5 else "COMPLETE")
    columns = {
        "iteration": np.arange(2),
        "trajectories": np.array([10, 100]),
        "return": np.array([-np.inf, 1.0]),
    }
    assert mean_return(columns, 50) == [1.0]
    assert Objective().on_the_way(columns) == -np.inf


@pytest.mark.slow
def test_trials_that_cannot_run_are_told_as_failed(tmp_path):
    """One of two choices has a first batch larger than the budget. The other trials continue."""
    wanted = Search(PROBLEM, {"eta": SPACE["eta"], "S0": Choices((4, 1000))}, {"B": 2}, {}, trials=8, generation=8)
    study = study_in(tmp_path, wanted)
    search.run(Workspace(tmp_path), wanted, study, alone=True)
    states = {t.params["S0"]: set() for t in study.get_trials()}
    for t in study.get_trials():
        states[t.params["S0"]].add(t.state.name)
    assert states[1000] == {"FAIL"}
    assert states[4] <= {"COMPLETE", "PRUNED"}
    errors = {t.user_attrs.get("error") for t in study.get_trials() if t.state.name == "FAIL"}
    assert all("S0 = 1000" in error for error in errors)


@pytest.mark.slow
def test_a_pack_that_keeps_failing_does_not_stop_the_others(tmp_path, monkeypatch):
    wanted = Search(PROBLEM, {"eta": SPACE["eta"], "B": Choices((2, 3))}, {"S0": 4}, {}, trials=6, generation=6)
    tried = []

    def broken(problem, trials, *more):
        tried.append(trials[0]["B"])
        if trials[0]["B"] == 3:
            raise RuntimeError("out of luck")
        return run_pack(problem, trials, *more)

    monkeypatch.setattr(halving, "run_pack", broken)
    study = study_in(tmp_path, wanted)
    search.run(Workspace(tmp_path), wanted, study, alone=True)
    by_B = {B: {t.state.name for t in study.get_trials() if t.params["B"] == B} for B in (2, 3)}
    assert by_B[3] == {"FAIL"}
    assert "COMPLETE" in by_B[2]
    assert tried.count(3) == 2
    error = next(t.user_attrs["error"] for t in study.get_trials() if t.state.name == "FAIL")
    assert "out of luck" in error
    assert "'B': 3" in error


@pytest.mark.slow
def test_a_unit_that_keeps_failing_is_named_and_the_others_are_kept(tmp_path):
    from stormpg.studies.workspace import Part

    kept, tries = [], []

    def fail():
        tries.append(1)
        raise ZeroDivisionError("no luck")

    parts = {
        "good": Part(lambda: 3, kept.append),
        "bad": Part(fail, kept.append, "eta = 7"),
        "late": Part(lambda: 4, kept.append),
    }
    with pytest.raises(PartsFailed, match=r"1 of 3 parts .* bad eta = 7 ZeroDivisionError: no luck"):
        Workspace(tmp_path).do(parts, 3, group=1)
    assert kept == [3, 4]
    assert len(tries) == 2


@pytest.mark.slow
def test_memory_does_not_grow_with_finished_trials(tmp_path, programs_are_dropped):
    """Arrays of later generations replace earlier ones."""
    live = []

    def count(name, done, of):
        live.append(sum(x.nbytes for x in jax.live_arrays()))

    wanted = Search(**{**SEARCH.__dict__, "trials": 40, "halving": False})
    gc.freeze()  # existing objects are not scanned after each generation
    try:
        search.run(Workspace(tmp_path, count), wanted, study_in(tmp_path, wanted), alone=True)
    finally:
        gc.unfreeze()
    assert len(live) == 10
    assert max(live[5:]) <= max(live[:5]) * 1.01


# ---- Storages


def test_a_study_of_something_else_is_refused(tmp_path):
    study_in(tmp_path)
    other = Search(**{**SEARCH.__dict__, "problem": PROBLEM._replace(algorithm="gpomdp")})
    with pytest.raises(InputError, match="the study 's' has 'algorithm' = 'storm-pg'; asked for 'gpomdp'"):
        study_in(tmp_path, other)


def test_storages_that_cannot_be_used(tmp_path):
    for url in ("sqlite:////no/such/folder/study.db", "postgresql+psycopg://me:secret@127.0.0.1:1/x", "nonsense", "what://x"):
        with pytest.raises(InputError, match="cannot be used") as caught:
            open_study(url, "s", SEARCH.about(), "maximize")
        assert "secret" not in str(caught.value)


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory):
    """A temporary PostgreSQL server on loopback."""
    import glob
    import shutil
    import socket

    found = sorted(glob.glob("/usr/lib/postgresql/*/bin")) or [os.path.dirname(shutil.which("initdb") or "")]
    if not os.path.exists(os.path.join(found[-1], "initdb")):
        pytest.skip("no PostgreSQL server is installed: make test installs it where it may")
    import tempfile

    folder = tempfile.mkdtemp(prefix="pg")  # other users cannot enter pytest's folders
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if user:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = lambda *command: subprocess.run([*user, *command], check=True, capture_output=True, cwd="/")
    run(f"{found[-1]}/initdb", "-D", f"{folder}/data", "-U", "me", "--auth=trust", "--no-sync")
    options = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder}"
    run(f"{found[-1]}/pg_ctl", "-D", f"{folder}/data", "-o", options, "-w", "-l", f"{folder}/log", "start")
    yield f"postgresql+psycopg://me@127.0.0.1:{port}/postgres"
    run(f"{found[-1]}/pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_searches_in_postgresql(tmp_path, whole, postgresql):
    """The trials equal those of an SQLite file. Several folders can share a study at the same time."""
    folders = [tmp_path / name for name in ("there", "one", "other")]
    for folder in folders:
        folder.mkdir()
    there, *together = folders
    remote = open_study(postgresql, "s", SEARCH.about(), "maximize")
    search.run(Workspace(there), SEARCH, remote, alone=True)
    assert told(remote) == told(study_in(whole))
    shared = [open_study(postgresql, "shared", SEARCH.about(), "maximize") for _ in together]
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(search.run, Workspace(folder), SEARCH, study, alone=False)
            for folder, study in zip(together, shared, strict=True)
        ]
        for job in jobs:
            job.result(timeout=200)
    trials = shared[0].get_trials()
    assert 6 <= len(trials) <= 10  # both may start the last generation
    assert all(t.state.is_finished() for t in trials)
    drawn = [t.params["eta"] for t in trials if t.params != {"eta": 0.01, "alpha": 0.9}]
    assert len(set(drawn)) == len(drawn)
    assert len({t.user_attrs["owner"] for t in trials}) == 2
    search.run(Workspace(together[0]), SEARCH, shared[0], alone=False)
    assert len(shared[0].get_trials()) == len(trials)
    for study in (remote, *shared):
        close(study)


# ---- The command


SMALL = [
    "tune",
    "chain",
    "--algorithm",
    "storm-pg",
    "--trials",
    "4",
    "--generation",
    "4",
    "--seeds",
    "2",
    "--trajectories",
    "40",
    "--S0",
    "4",
    "--B",
    "2",
]
SMALL += ["--fresh-seeds", "2", "--horizon", "5"]


@pytest.fixture
def no_figures(monkeypatch):
    """A function that turns off figures, which are the same each time."""
    from stormpg.report import charts, figures

    return lambda: [monkeypatch.setattr(module, "save", lambda *_: None) for module in (charts, figures)]


@pytest.mark.slow
def test_the_command(tmp_path, command, no_figures):
    folder = tmp_path / "tuning"

    def last(*arguments):
        code, out, err = command(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out.splitlines()[-1])

    found = last(*SMALL, "--out", "tuning")
    assert set(found["fresh"]) == {"tuned", "default"}
    for name in ("best.toml", "report.html", "search.png", "search.pdf", "figure1.png", "tables.md", "study.db"):
        assert (folder / name).stat().st_size > 0, name
    no_figures()
    assert last(*SMALL, "--out", "tuning") == found
    found = last(*SMALL, "--trials", "6", "--out", "tuning", "--storage", "")  # more trials; an empty address means none
    page = (folder / "report.html").read_text()
    better = "(better|worse|not clearly better or worse)"
    assert re.search(rf"The best setting, of trial \d+, is {better} than the default one on 2 seeds", page)
    (folder / "report.html").unlink()
    assert last("report", "tuning") == found
    assert abs(len((folder / "report.html").read_text()) - len(page)) < 500  # apart from the command
    assert last("train", "--config", "tuning/best.toml", "--seeds", "2")["seeds"] == 2


@pytest.mark.slow
def test_passwords_are_not_written(tmp_path, command, postgresql):
    url = postgresql.replace("me@", "me:geheim@")
    code, out, err = command(*SMALL, "--storage", url, "--out", "tuning")
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert code == 0, err
    assert len(written) > 10
    assert not any(b"geheim" in file.read_bytes() for file in written)
    assert "geheim" not in err + out


def test_addresses_without_secrets():
    from stormpg.runs.options import without_secrets

    assert (
        without_secrets("--storage=postgresql://me:secret@host:5/x?password=y --out z")
        == "--storage=postgresql://host:5/x --out z"
    )
    assert without_secrets("sqlite:////a/b.db") == "sqlite:////a/b.db"


# The command, which prints a line when trials are stored.
PROGRAM = """
import sys
from stormpg import cli
from stormpg.tune import halving
keep = halving.keep
def told(file, *more):
    keep(file, *more)
    print("kept", flush=True)
halving.keep = told
cli.main()
"""


@pytest.mark.slow
def test_the_command_killed_and_given_again(tmp_path, command, no_figures):
    """SIGKILL in the middle. The repeated command ends with the trials of an uninterrupted one."""
    no_figures()
    more = [*SMALL, "--trials", "8"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command(*more, "--out", "whole")[0] == 0
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *more, "--out", "parts"], stdout=subprocess.PIPE, text=True)
    with killed_after(process):
        assert "kept\n" in process.stdout
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    assert not (parts / "best.toml").exists()
    assert command(*more, "--out", "parts")[0] == 0
    import optuna

    of = lambda folder: told(optuna.load_study(study_name="chain-storm-pg", storage=f"sqlite:///{folder / 'study.db'}"))
    assert of(parts) == of(whole)
    assert (parts / "best.toml").read_text() == (whole / "best.toml").read_text()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--workers", "ray://127.0.0.1:1"], "no Ray cluster answers at ray://127.0.0.1:1"),
        (["--workers", "dask"], "workers is 'dask'; expected ray"),
        (["--storage", "postgresql+psycopg://127.0.0.1:1/x"], "cannot be used"),
        (["--objective", "threshold"], "go together"),
        (["--space", "space.toml"], "'etaa', which storm-pg"),
        (["--algorithm", "storm-gp"], "did you mean 'storm-pg'"),
        (["--trajectories", "3"], "the first batch takes S0 = 4"),
        (["--horizon", "0"], "horizon is 0"),
        (["--seed", "-1"], "a seed of at least 0"),
        (["--seeds", "1001"], "expected 2 to 1000 seeds"),
        (["--objective", "threshold", "--threshold", "nan"], "expected a finite number"),
        (["--space", "sigma.toml"], "the policy softmax-table has no setting 'sigma'"),
        (["--space", "infinite.toml"], "expected finite numbers"),
        (["--space", "negative.toml"], "the space has eta = -2.0, which cannot be run"),
        (["--config", "outside.toml"], "leave async_envs and env_timeout out"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(tmp_path, more, words, command):
    files = {
        "space.toml": "[etaa]\nlow = 1\nhigh = 2",
        "sigma.toml": "[sigma]\nlow = 0.1\nhigh = 2",
        "infinite.toml": "[eta]\nlow = 0.1\nhigh = inf",
        "negative.toml": "[eta]\nlow = -2\nhigh = -1",
        "outside.toml": "async_envs = false",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, _, err = command(*SMALL, *more, "--out", "tuning")
    assert code == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "tuning").exists()

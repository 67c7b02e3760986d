"""Identity of runs: the same run is resumed in any process; a different run is refused and the difference is named."""

import dataclasses
import json
import runpy
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import stormpg
from stormpg import trackers
from stormpg.errors import InputError
from stormpg.runs.checkpoints import CheckpointInterval, owned
from stormpg.runs.identity import describe, describe_all, difference

JOB = {"env": "cartpole-continuous", "trajectories": 3000, "seeds": 2, "horizon": 5}
STORM = stormpg.storm_pg(S0=4, B=2)


def heavy_ball(rate):
    return optax.sgd(rate, momentum=0.9)


def lighter_ball(rate):
    return optax.sgd(rate, momentum=0.8)


def of_closure(momentum):
    return lambda rate: optax.sgd(rate, momentum=momentum)


class Own:
    """A custom policy: N(scale · tanh(ξs), 1)."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def init(self, key):
        return jnp.zeros((4, 1))

    def mode(self, params, observation):
        return self.scale * jnp.tanh(observation @ params)

    def sample(self, params, key, observation):
        return self.mode(params, observation) + jax.random.normal(key, (1,))

    def log_prob(self, params, observation, action):
        return -((action - self.mode(params, observation)) ** 2).sum() / 2


def other_step(key, state, action):
    return stormpg.make("cartpole-continuous").step(key, state, 2 * action)


CARTPOLE = stormpg.make("cartpole-continuous")
UNREGISTERED = dataclasses.replace(STORM, name="custom", note=type(STORM.note)({}))
OTHERS = {  # what is stored, what is requested, and the word that names the difference
    "tracker": ({"algorithm": STORM}, {"algorithm": dataclasses.replace(STORM, tracker=trackers.storm(0.5))}, "tracker.alpha"),
    "unregistered": (
        {"algorithm": UNREGISTERED},
        {"algorithm": dataclasses.replace(UNREGISTERED, step=stormpg.steps.optax_step(0.5))},
        "step.eta",
    ),
    "optimiser": (
        {"algorithm": stormpg.storm_pg(S0=4, B=2, optimizer=heavy_ball)},
        {"algorithm": stormpg.storm_pg(S0=4, B=2, optimizer=lighter_ball)},
        "heavy_ball",
    ),
    "closure": (
        {"algorithm": stormpg.storm_pg(S0=4, B=2, optimizer=of_closure(0.9))},
        {"algorithm": stormpg.storm_pg(S0=4, B=2, optimizer=of_closure(0.8))},
        "closure.momentum",
    ),
    "policy": ({"policy": Own(1.0)}, {"policy": Own(2.0)}, "scale"),
    "environment": ({"env": CARTPOLE}, {"env": dataclasses.replace(CARTPOLE, step=other_step)}, "step"),
    "steps": ({}, {"steps": 100}, "steps"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_run_is_refused_and_the_difference_named(tmp_path, case):
    stored, asked, word = OTHERS[case]
    job = {**JOB, "algorithm": STORM, "out": tmp_path}
    stormpg.train(**job | stored, progress=lambda now: False)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.*")}
    with pytest.raises(InputError, match="holds a run") as caught:
        stormpg.train(**job | asked, resume=True)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.*")} == before
    assert stormpg.train(**job | stored, resume=True).complete


SCRIPT = """
import sys, optax, stormpg
def mine(rate):
    return optax.sgd(rate, momentum=MOMENTUM)
MOMENTUM = 0.9
resume = sys.argv[2] == "resume"
stop = None if resume else lambda now: False
r = stormpg.train("cartpole-continuous", stormpg.storm_pg(S0=4, B=2, optimizer=mine), 3000, 2, horizon=5,
                  out=sys.argv[1], resume=resume, progress=stop)
print(r.complete)
"""


@pytest.mark.slow
def test_the_same_functions_in_another_process(tmp_path, monkeypatch, capsys):
    """Functions are identified by their source, not by their address. Changing a constant they use changes their identity."""
    script, folder = tmp_path / "script.py", str(tmp_path / "run")

    def run(how, text):
        script.write_text(text)
        monkeypatch.setattr(sys, "argv", ["script.py", folder, how])
        runpy.run_path(str(script), run_name="__main__")

    run("start", SCRIPT)
    assert capsys.readouterr().out == "False\n"
    with pytest.raises(InputError, match="MOMENTUM"):
        run("resume", SCRIPT.replace("0.9", "0.8"))
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script), folder, "resume"], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
    with pytest.raises(InputError, match=r"optimizer = __main__\.mine, a function"):
        stormpg.runs.run_folder.Run(tmp_path / "run").algorithms()


def test_descriptions_are_plain_and_do_not_depend_on_the_process():
    things = [stormpg.storm_pg(), stormpg.svrpo(), stormpg.policy_for(CARTPOLE, normalise=True), CARTPOLE, jnp.arange(40.0)]
    for thing in things:
        text = json.dumps(describe(thing))
        assert "0x" not in text
        assert json.loads(text) == describe(thing)
    recursive = lambda n: recursive(n - 1)
    assert describe(recursive)
    assert difference(describe(STORM), describe(STORM)) is None


@pytest.mark.slow
def test_the_state_of_an_environment_is_no_part_of_it(tmp_path):
    """A run is resumed even if its environment was used in between."""
    import gymnasium

    class Walk(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(-9, 9, (1,)), gymnasium.spaces.Discrete(2)

        def __init__(self) -> None:
            self.position = np.zeros(1, np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.position = self.np_random.normal(size=1).astype(np.float32)
            return self.position, {}

        def step(self, action):
            self.position = self.position + action - 0.5
            return self.position, 1.0, False, False, {}

    job = {"algorithm": STORM, "trajectories": 30, "seeds": 1, "horizon": 5}
    stop = lambda now: False
    played = Walk()
    for env in (played, lambda **settings: type(played)()):
        with warnings.catch_warnings(action="ignore", category=stormpg.StormpgWarning):  # about one environment for a batch
            stormpg.train(env, **job, out=tmp_path / str(callable(env)), progress=stop)
            assert stormpg.train(env, **job, out=tmp_path / str(callable(env)), resume=True).complete


def test_several_settings_are_told_apart():
    several = describe_all([stormpg.storm_pg(alpha=a) for a in (0.1, 0.2, 0.3)])
    assert [several[f"{where}tracker.alpha"] for where in ("", "[1].", "[2].")] == [
        repr(float(np.float32(a))) for a in (0.1, 0.2, 0.3)
    ]
    assert len(several) == len(describe(stormpg.storm_pg())) + 2


def test_a_finished_run_is_returned(tmp_path, command):
    job = {**JOB, "algorithm": STORM, "trajectories": 20, "out": tmp_path / "run"}
    first = stormpg.train(**job)
    again = stormpg.train(**job, resume=True)
    assert again.complete
    for name, column in first.columns.items():
        np.testing.assert_array_equal(again.columns[name], column, name)
    jax.tree.map(np.testing.assert_array_equal, first.states.params, again.states.params)
    code, out, err = command("train", "--resume", str(tmp_path / "run"))
    assert (code, err) == (0, "")
    assert "is finished" in out


def test_a_folder_that_another_writes_to(tmp_path, command):
    """The error is one line, and the files of the other process are not touched."""
    with owned(tmp_path / "run"), pytest.raises(InputError, match="another process is writing"):
        stormpg.train(**JOB, algorithm=STORM, out=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


WRITER = "from stormpg import cli; input(); cli.main()"
SHORT = ("train", "cartpole-continuous", "--trajectories", "20", "--seeds", "2", "--horizon", "5")
SHORT += ("--algorithm", "storm-pg", "--S0", "4", "--B", "2")


@pytest.mark.slow
def test_two_writers_on_one_folder(tmp_path):
    """One pair of writers. benchmarks/writers.py runs fifty pairs."""
    folder = tmp_path / "run"
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, *SHORT, "--eta", eta, "--out", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for eta in ("0.01", "0.02")
    ]  # fmt: skip
    for one in pair:
        one.stdin.write("\n")
        one.stdin.flush()
    said = [one.communicate(timeout=200)[1] for one in pair]
    assert sorted(one.returncode for one in pair) == [0, 2]
    winner, loser = (0, 1) if pair[0].returncode == 0 else (1, 0)
    assert said[loser].count("\n") == 1
    assert json.loads((folder / "config.json").read_text())["settings"][0]["eta"] == (0.01, 0.02)[winner]
    assert stormpg.runs.run_folder.is_whole(folder)


def test_checkpoints_of_an_older_format(tmp_path, monkeypatch):
    """Checkpoints of format 2, which counted no steps, are read. A future format is refused with a one-line message."""
    from stormpg import files
    from stormpg.runs import checkpoints

    job = {**JOB, "algorithm": STORM}
    stormpg.train(**job, out=tmp_path / "whole")
    stormpg.train(**job, out=tmp_path / "run", progress=lambda now: False, checkpoint=CheckpointInterval(None, None))
    (file,) = (tmp_path / "run").glob("checkpoint-*")
    tensors, about = files.read_tensors(file)
    rewrite = lambda kept, number: files.write_tensors(file, kept, {**about, "format": number})
    rewrite(tensors, "99")
    with pytest.raises(InputError, match="has the format 99; this version reads 2, 3 and 4"):
        stormpg.train(**job, out=tmp_path / "run", resume=True)
    assert file.exists()
    rewrite({name: value for name, value in tensors.items() if not name.endswith("states/steps")}, "2")
    stormpg.train(**job, out=tmp_path / "run", resume=True)
    for name in ("metrics.parquet", "state.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert checkpoints.FORMATS == ("2", "3", "4")


def test_checkpoints_of_windows_that_held_logarithms(tmp_path):
    """Their rows go on as those of an uninterrupted run, up to rounding."""
    from stormpg import files

    job = {**JOB, "algorithm": stormpg.rt_pg(K=3, B=2)}
    whole = stormpg.train(**job)
    stormpg.train(**job, out=tmp_path, progress=lambda now: False, checkpoint=CheckpointInterval(None, None))
    (file,) = tmp_path.glob("checkpoint-*")
    tensors, about = files.read_tensors(file)
    older = {name: value for name, value in tensors.items() if "/ratios/" not in name}
    older |= {
        name.removesuffix("/cumulative"): np.log(np.maximum(value, 1e-30))
        for name, value in tensors.items()
        if name.endswith("/ratios/cumulative")
    }
    assert len(older) < len(tensors)
    files.write_tensors(file, older, about)
    resumed = stormpg.train(**job, out=tmp_path, resume=True)
    np.testing.assert_allclose(resumed.columns["return"], whole.columns["return"], rtol=1e-4)


def test_a_folder_without_identity_is_resumed_with_a_warning(tmp_path):
    """The folder is as earlier versions wrote it."""
    from stormpg.files import read_tensors, write_json, write_tensors
    from stormpg.runs.checkpoints import fingerprint

    job = {**JOB, "algorithm": STORM}
    stormpg.train(**job, out=tmp_path, progress=lambda now: False, checkpoint=CheckpointInterval(None, None))
    config = json.loads((tmp_path / "config.json").read_text())
    older = {name: value for name, value in config.items() if name not in ("identity", "steps")} | {"format": 2}
    write_json(tmp_path / "config.json", older)
    (file,) = tmp_path.glob("checkpoint-*")
    tensors, about = read_tensors(file)
    write_tensors(file, tensors, {**about, "run": fingerprint(older)})
    with pytest.warns(UserWarning, match="older version"):
        assert stormpg.train(**job, out=tmp_path, resume=True).complete


def test_folders_are_not_opened_where_the_system_cannot(tmp_path, monkeypatch):
    """Windows cannot open folders. Files are written anyway."""
    import os

    from stormpg import files

    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *a: (_ for _ in ()).throw(PermissionError()) if Path(path).is_dir() else real(path, *a)
    )
    files.write_text(tmp_path / "a", "b")
    assert (tmp_path / "a").read_text() == "b"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"seeds": [2**31]}, "seed is 2147483648"), ({"trajectories": 2**31}, "trajectories is 2147483648"),
     ({"seed": 2**31 - 1, "seeds": 2}, "seed is 2147483648"), ({"steps": 0}, "steps is 0")],
)  # fmt: skip
def test_numbers_that_32_bits_do_not_hold(arguments, message):
    with pytest.raises(InputError, match=message):
        stormpg.train(**{**JOB, **arguments}, algorithm=STORM)


FORMAT_3 = Path(__file__).parents[1] / "data" / "format-3"


def test_runs_of_format_3(tmp_path):
    """Format 3 predates the memory of schedules. A finished run is read; an unfinished run is resumed with a warning."""
    assert len(stormpg.load(FORMAT_3 / "finished").columns["return"]) == 58
    shutil.copytree(FORMAT_3 / "unfinished", tmp_path / "run")
    begun = stormpg.load(tmp_path / "run")
    assert not begun.complete
    assert 0 < begun.columns["trajectories"].max() < 60
    with pytest.warns(stormpg.StormpgWarning, match="older version"):
        resumed = stormpg.resume(tmp_path / "run")
    whole = stormpg.train("chain", resumed.algorithms[0], trajectories=60, seeds=2, horizon=4)
    np.testing.assert_array_equal(resumed.columns["large"], whole.columns["large"])
    np.testing.assert_allclose(resumed.columns["return"], whole.columns["return"], rtol=1e-5)
    assert resumed.columns["trajectories"].max() == whole.columns["trajectories"].max()


def test_a_setting_that_is_new_has_its_default_in_older_runs(tmp_path):
    """So that a run of an earlier version is resumed, unless another value is asked for."""
    job = {"env": "lqr", "trajectories": 80, "seeds": 2, "horizon": 3, "out": tmp_path / "run"}
    stormpg.train(algorithm=stormpg.svrpg(), **job)
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    for settings in config["settings"]:
        del settings["self_normalised"]
    file.write_text(json.dumps(config))
    assert stormpg.train(algorithm=stormpg.svrpg(), **job, resume=True).complete
    with pytest.raises(stormpg.InputError, match="self_normalised = False; asked for True"):
        stormpg.train(algorithm=stormpg.svrpg(self_normalised=True), **job, resume=True)

"""Checkpoints: a run interrupted at any point, in any way, resumes bit for bit."""

import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import stormpg
from stormpg import cli, files
from stormpg.engine import compiled_loop
from stormpg.errors import InputError
from stormpg.machine.xla import Program
from stormpg.runs import checkpoints
from stormpg.runs.checkpoints import CheckpointInterval

pytestmark = pytest.mark.slow

RUN = {"env": "cartpole-continuous", "trajectories": 60, "seeds": 3, "horizon": 5}
ALGORITHM = stormpg.svrpg(S0=4, B=2, m=2)
FINAL = ("metrics.parquet", "policy.safetensors", "state.safetensors")
OFTEN = CheckpointInterval(None, 1)


long = compiled_loop.chunk
# A separate function, traced with the length below: JAX caches the traces of each function.
short = Program(functools.wraps(long.function)(lambda *all: long.function(*all)), long.options, long.static_argnames)


@pytest.fixture
def few_units(monkeypatch):
    """Chunks of two units, so that a small run has many chunks."""
    monkeypatch.setattr(compiled_loop, "CHUNK", 2)
    monkeypatch.setattr(compiled_loop, "LONGER", 1)
    monkeypatch.setattr(compiled_loop, "chunk", short)


def same(one: Path, other: Path) -> None:
    for name in FINAL:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def interrupted(folder: Path, chunks: int, **more) -> stormpg.Result:
    """Train, and stop after the given number of chunks."""
    left = iter(range(chunks))
    return stormpg.train(
        **RUN, algorithm=ALGORITHM, out=folder, progress=lambda now: next(left, None) is not None, checkpoint=OFTEN, **more
    )


@pytest.mark.parametrize("algorithm", ["storm-pg", "svrpg", "gpomdp"])
def test_stopped_and_resumed_is_as_if_never_stopped(few_units, tmp_path, algorithm):
    sizes = {"storm-pg": {"B": 2}, "svrpg": {"B": 2, "m": 2}, "gpomdp": {}}[algorithm] | {"S0": 4}
    job = {**RUN, "algorithm": stormpg.make_algorithm(algorithm, **sizes)}
    stormpg.train(**job, out=tmp_path / "whole")
    calls = iter(range(2))
    first = stormpg.train(**job, out=tmp_path / "parts", progress=lambda now: next(calls, None) is not None)
    assert not first.complete
    assert not (tmp_path / "parts" / "summary.json").exists()
    assert stormpg.train(**job, out=tmp_path / "parts", resume=True).complete
    same(tmp_path / "whole", tmp_path / "parts")
    assert not list((tmp_path / "parts").glob("checkpoint*"))
    assert stormpg.train(**job, out=tmp_path / "parts", resume=True).complete  # nothing is left to do


@pytest.fixture(scope="module")
def of_short_chunks(tmp_path_factory):
    """Two read-only folders: the uninterrupted run and the stopped run."""
    folder = tmp_path_factory.mktemp("short")

    def make() -> Path:
        if not (folder / "stopped").exists():
            stormpg.train(**RUN, algorithm=ALGORITHM, out=folder / "whole")
            interrupted(folder / "stopped", 3)
        return folder

    return make


@pytest.fixture
def stopped(few_units, of_short_chunks, tmp_path) -> Path:
    """A copy of the stopped run, next to a copy of the uninterrupted one."""
    for name in ("whole", "stopped"):
        shutil.copytree(of_short_chunks() / name, tmp_path / name)
    return tmp_path / "stopped"


def test_the_two_last_are_kept(few_units, tmp_path):
    interrupted(tmp_path, 4)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2
    assert not list(tmp_path.glob(".*part"))


@pytest.mark.parametrize("harm", ["truncated", "flipped", "foreign", "empty", "nonsense"])
def test_a_harmed_checkpoint_is_named_and_the_one_before_it_used(stopped, tmp_path, harm):
    newest = max(stopped.glob("checkpoint-*"), key=checkpoints.number_of)
    content = bytearray(newest.read_bytes())
    if harm == "truncated":
        del content[len(content) // 2 :]
    if harm == "flipped":
        content[-5] ^= 1
    if harm == "empty":
        content.clear()
    if harm == "nonsense":
        content = bytearray(random.Random(0).randbytes(5000))
    if harm == "foreign":
        stormpg.train(
            **RUN, algorithm=stormpg.svrpg(S0=4, B=2, m=2, eta=0.5), out=tmp_path / "other", progress=lambda now: False
        )
        content = bytearray(next((tmp_path / "other").glob("checkpoint-*")).read_bytes())
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match=newest.name):
        stormpg.train(**RUN, algorithm=ALGORITHM, out=stopped, resume=True)
    same(stopped, tmp_path / "whole")


def test_a_run_is_resumed_as_it_was_begun(stopped):
    with pytest.raises(InputError, match="holds a run with trajectories = 60; asked for 70"):
        stormpg.train(**{**RUN, "trajectories": 70}, algorithm=ALGORITHM, out=stopped, resume=True)
    with pytest.raises(InputError, match="already holds a run"):
        stormpg.train(**RUN, algorithm=ALGORITHM, out=stopped)


def test_the_second_process_is_refused(stopped):
    with checkpoints.owned(stopped), pytest.raises(InputError, match="another process is writing"):
        stormpg.train(**RUN, algorithm=ALGORITHM, out=stopped, resume=True)


STORM = ("--algorithm", "storm-pg", "--S0", "4", "--B", "2")
COMMAND = ("train", "cartpole-continuous", "--trajectories", "9000", "--seeds", "2", "--horizon", "20", *STORM)


def start(folder: Path, *arguments: str, first: str = "pass", env: dict | None = None) -> subprocess.Popen:
    """Start the command in a separate process, which executes `first` before anything else."""
    words = arguments or (*COMMAND, "--out", str(folder), "--checkpoint-iterations", "1")
    code = f"import sys; from stormpg import cli; {first}; sys.argv = ['stormpg', *{list(words)}]; cli.main()"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def end(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def wait_for_a_checkpoint(folder: Path) -> None:
    for _ in range(1200):
        if list(folder.glob("checkpoint-*")):
            return
        time.sleep(0.05)
    raise AssertionError("no checkpoint was written within a minute")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["stormpg", *COMMAND, "--out", str(folder)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert not stop.value.code
    return folder


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_as_the_whole_run(tmp_path, whole):
    """Three SIGKILLs in a row. benchmarks/stop.py makes a hundred stops of all kinds."""
    rng, folder = random.Random(0), tmp_path / "run"
    process = start(folder)
    for _ in range(3):
        wait_for_a_checkpoint(folder)
        time.sleep(rng.uniform(0, 0.3))
        process.kill()
        end(process)
        process = start(folder, "train", "--resume", str(folder), "--checkpoint-iterations", "1")
    assert end(process)[0] == 0  # it may have finished before the last kill
    same(folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_leaves_with_the_usual_code(tmp_path, whole, number, code, command):
    folder = tmp_path / "run"
    process = start(folder)
    wait_for_a_checkpoint(folder)
    process.send_signal(number)
    found, out, err = end(process)
    assert (found, err) == (code, "")
    assert f"--resume {folder}" in out.replace("\n", "")
    assert command("train", "--resume", str(folder))[0] == 0
    same(folder, whole)


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_the_last_good_checkpoint(tmp_path, whole):
    """Files may not grow beyond the size of the first checkpoints: one line, exit code 2, and readable checkpoints remain."""
    folder = tmp_path / "run"
    # Compiled programs are read from the cache of the whole run but not written: they exceed the size limit.
    environment = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000"}
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))"
    code, _, err = end(start(folder, first=limit, env=environment))
    assert code == 2, err
    assert err.count("\n") == 1
    assert "cannot be written (File too large)" in err
    left = list(folder.glob("checkpoint-*"))
    assert left
    for file in left:
        files.read_tensors(file)
    assert not list(folder.glob(".*part"))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user, who may not write")
def test_a_folder_that_turns_read_only(tmp_path):
    """Run as an unprivileged user, because root can write anywhere."""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    folder = tmp_path / "run"
    # Import everything needed before dropping privileges: other users may not be able to read the project.
    nobody = "import os, optax, safetensors.numpy, polars, stormpg.envs; os.setgid(65534); os.setuid(65534)"
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false", "STORMPG_FUSED": "0"}  # without files read later
    process = start(folder, first=nobody, env=environment)
    wait_for_a_checkpoint(folder)
    folder.chmod(0o555)
    code, _, err = end(process)
    folder.chmod(0o755)
    assert code == 2, err
    assert err.count("\n") == 1, err
    assert "cannot be written (Permission denied)" in err
    files.read_tensors(max(folder.glob("checkpoint-*"), key=checkpoints.number_of))


def test_resume_takes_no_other_settings(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["stormpg", "train", "--resume", str(tmp_path), "--eta", "0.1"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "leave out --eta" in capsys.readouterr().err


def test_runs_of_the_first_format_still_load():
    """The run was written by a version without checksums and checkpoints."""
    folder = Path(__file__).parents[1] / "data" / "format-1"
    assert json.loads((folder / "config.json").read_text())["format"] == 1
    agent = stormpg.Agent.load(folder)
    assert agent.predict(np.zeros(4)).shape == (1,)
    assert stormpg.runs.run_folder.read_metrics(folder)["trajectories"].max() == 12

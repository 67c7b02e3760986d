"""Logs contain the same values as the table of metrics."""

import csv
import os
import sqlite3
import subprocess
import sys

import numpy as np
import polars
import pytest

from stormpg import cli

pytestmark = pytest.mark.slow
STORM = ("--algorithm", "storm-pg", "--S0", "4", "--B", "2")
TRAIN = ("train", "cartpole-continuous", "--trajectories", "40", "--seeds", "2", "--horizon", "8", *STORM)


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["stormpg", *TRAIN, "--out", str(tmp_path / "run"), *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code or 0, capsys.readouterr().err

    return run


def events(folder):
    """Return the scalars of TensorBoard's event files as (tag, step, value), read directly from the records."""
    import struct

    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(folder.glob("events*")):
        content, at = file.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = Event.FromString(content[at + 12 : at + 12 + length])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            at += 16 + length
    return found


def test_csv_and_tensorboard_at_once(run, tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    assert run("--log", "csv", "--log", "tensorboard") == (0, "")
    table = polars.read_parquet(tmp_path / "run" / "metrics.parquet")
    with (tmp_path / "run" / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(table)
    for seed in (0, 1):
        mine = table.filter(polars.col("seed") == seed)
        logged = [row for row in rows if row["run"] == f"seed-{seed}"]
        np.testing.assert_allclose([float(r["mean_return"]) for r in logged], mine["return"], rtol=1e-6)
        np.testing.assert_array_equal([int(r["trajectories"]) for r in logged], mine["trajectories"])
        shown = [e for e in events(tmp_path / "run" / "tensorboard" / f"seed-{seed}") if e[0] == "mean_return"]
        np.testing.assert_array_equal([step for _, step, _ in shown], mine["trajectories"])
        np.testing.assert_allclose([value for *_, value in shown], mine["return"], rtol=1e-6)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_log_that_is_not_installed_says_what_to_install(run, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    code, err = run("--log", name)
    assert code == 2
    assert f"pip install 'stormpg[{name}]'" in err
    assert not (tmp_path / "run").exists()


def in_a_process(folder, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process, because these packages keep their settings for the lifetime of the process."""
    command = [sys.executable, "-m", "stormpg", *TRAIN, "--out", str(folder / "run"), *arguments]
    return subprocess.run(
        command,
        env=os.environ | {"HOME": str(folder), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_weights_and_biases(tmp_path):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed; `make adapters` has it")
    done = in_a_process(tmp_path, "--log", "wandb", WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    (record,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    assert b"seed-0/mean_return" in record.read_bytes()


def test_weights_and_biases_without_an_account(tmp_path):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed; `make adapters` has it")
    done = in_a_process(tmp_path, "--log", "wandb", WANDB_MODE="online", WANDB_API_KEY="")
    assert done.returncode == 2
    assert "--log wandb could not be opened" in done.stderr


def test_mlflow(tmp_path):
    pytest.importorskip("mlflow", reason="MLflow is not installed; `make adapters` has it")
    done = in_a_process(tmp_path, "--log", "mlflow")
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "run" / "mlflow.db") as database:
        logged = database.execute("SELECT value FROM metrics WHERE key = 'seed-0/mean_return' ORDER BY step").fetchall()
    mine = polars.read_parquet(tmp_path / "run" / "metrics.parquet").filter(polars.col("seed") == 0)
    np.testing.assert_allclose([value for (value,) in logged], mine["return"], rtol=1e-6)


def test_an_unknown_log(run):
    code, err = run("--log", "tensorbord")
    assert code == 2
    assert "did you mean 'tensorboard'" in err

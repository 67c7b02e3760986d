"""Several devices in one process, and several hosts with one process each: which devices are used, and equal results.

The tests use separate processes, because the number of devices is fixed when JAX starts. A CPU simulates any number of devices.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

import stormpg
from stormpg.runs import run_folder
from tests.conftest import killed_after

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

# Five runs in three blocks, on any number of devices, in many short chunks. Executes the jobs of each line on stdin.
PROGRAM = """
import json, sys
from pathlib import Path
import jax, stormpg
from stormpg.engine import compiled_loop
from stormpg.engine.budget import Budget
from stormpg.runs import checkpoints, run_folder
from stormpg.runs.training import RunOptions
from stormpg.train import check_training

root, seeds = Path(sys.argv[1]), int(sys.argv[2])
compiled_loop.cores = lambda: 3
compiled_loop.CHUNK, compiled_loop.LONGER = 2, 1
chunk, used = compiled_loop.CompiledLoop.chunk, []

def recorded(self, *arguments):
    (device,) = {device for leaf in jax.tree.leaves(arguments) for device in leaf.devices()}
    used.append(device.id)
    return chunk(self, *arguments)

compiled_loop.CompiledLoop.chunk = recorded
env, algorithm = stormpg.make("chain"), stormpg.storm_pg(S0=4, B=2)
job = dict(env=env, algorithm=algorithm, trajectories=60, seeds=seeds, horizon=6)
for line in sys.stdin:
    found = {}
    for name in line.split():
        do, _, folder = name.partition(":")
        used.clear()
        if do == "whole":
            result = stormpg.train(**job, out=root / folder)
        elif do == "begin":
            calls = iter(range(4))
            go_on = lambda now: next(calls, None) is not None
            result = stormpg.train(**job, out=root / folder, progress=go_on, checkpoint=checkpoints.CheckpointInterval(None, 1))
            assert not result.complete
        elif do == "resume":
            result = stormpg.train(**job, out=root / folder, resume=True)
        elif do == "before":
            mine = check_training(env, [algorithm], [stormpg.policy_for(env)], list(range(seeds)), 6)
            result = mine.run(Budget(60), RunOptions(before=mine.run(Budget(60), RunOptions(pause=20))))
            run_folder.save(result, root / folder)
        elif do == "chosen":
            with jax.default_device(jax.local_devices()[1]):
                result = stormpg.train(**job, out=root / folder)
        found[name] = sorted(set(used))
        ends = jax.tree.leaves(result.states)
        assert len({device for leaf in ends for device in leaf.devices()}) == 1
        assert not any(leaf.committed for leaf in ends)
    print(json.dumps(found), flush=True)
"""


def environment(devices: int) -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


@contextlib.contextmanager
def machine(devices: int, folder: Path, seeds: int = 5) -> Iterator[Callable[..., dict[str, list[int]]]]:
    """A process with this number of devices. Call the yielded function with jobs: it returns the devices used by each."""
    call = [sys.executable, "-c", PROGRAM, str(folder), str(seeds)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(call, env=environment(devices), text=True, **pipes)

    def used(*what: str) -> dict[str, list[int]]:
        process.stdin.write(" ".join(what) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        return json.loads(line)

    with killed_after(process):
        yield used
        _, said = process.communicate()
        assert process.returncode == 0, said


def test_runs_are_the_same_on_several_devices(tmp_path):
    """Uninterrupted, resumed by a process with more or fewer devices, or continued from a result."""
    with machine(1, tmp_path) as one, machine(2, tmp_path) as two:
        assert one("whole:one", "begin:from-one") == {"whole:one": [0], "begin:from-one": [0]}
        places = two("whole:two", "begin:from-two", "resume:from-one", "before:before", "chosen:chosen")
        assert places.pop("chosen:chosen") == [1]
        assert set(map(tuple, places.values())) == {(0, 1)}
        assert one("resume:from-two") == {"resume:from-two": [0]}
    for name in ("two", "from-one", "from-two", "before", "chosen"):
        for file in ("metrics.parquet", "policy.safetensors", "state.safetensors"):
            assert (tmp_path / name / file).read_bytes() == (tmp_path / "one" / file).read_bytes(), (name, file)


def test_more_devices_than_runs(tmp_path):
    with machine(8, tmp_path, seeds=3) as eight:
        assert eight("whole:eight") == {"whole:eight": [0, 1, 2]}


def hosts(folder: Path, processes: int) -> str:
    """Run examples/hosts.py as several hosts with two devices each, all on this machine. Return the output of the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    call = [sys.executable, str(ROOT / "examples" / "hosts.py"), "--coordinator", address, "--processes", str(processes)]
    call += ["--seeds", "5", "--trajectories", "60", "--horizon", "30", "--out", str(folder)]
    running = [
        subprocess.Popen(
            [*call, "--process", str(k)], env=environment(2), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for k in range(processes)
    ]
    try:
        said = [process.communicate(timeout=240) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * processes, said
    return said[0][0]


def test_hosts_share_the_seeds(tmp_path):
    """Each seed is trained once, and equals the same seed in one process that trains all of them, up to rounding."""
    printed = hosts(tmp_path / "shared", 2)
    folders = [tmp_path / "shared" / f"host-{k}" for k in range(2)]
    assert [run_folder.read_config(folder)["seeds"] for folder in folders] == [[0, 2, 4], [1, 3]]
    assert all(f"seed {seed}:" in printed for seed in range(5))
    (algorithm,) = run_folder.Run(folders[0]).algorithms()
    with jax.default_device(jax.devices("cpu")[0]):
        alone = stormpg.train("cartpole-continuous", algorithm, 60, 5, horizon=30).columns
    for folder in folders:
        table = run_folder.read_metrics(folder)
        for seed in run_folder.read_config(folder)["seeds"]:
            for column in ("return", "steps", "gradient_norm"):
                one, other = (columns[column][columns["seed"] == seed][:10] for columns in (table, alone))
                np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-5)

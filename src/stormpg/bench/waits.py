"""Startup and command times: the import, a first call and whole commands, with an empty and a filled compilation cache."""

import sys
import tempfile
from pathlib import Path

from stormpg.bench.measure import BenchTable, Process, Row, Tell, alone, python

IMPORT = "import time; began = time.perf_counter(); import stormpg; print(time.perf_counter() - began)"
CALL = (
    "import stormpg, time; from stormpg.machine.xla import keep_programs; keep_programs(); began = time.perf_counter()\n"
    "stormpg.train('cartpole-continuous', 'storm-pg', 1000, 1); print(time.perf_counter() - began)"
)
TRAIN = [sys.executable, "-m", "stormpg", "train", "cartpole-continuous", "--algorithm", "storm-pg"]
COMMANDS = {
    "stormpg train cartpole-continuous --algorithm storm-pg --trajectories 1000 --seeds 1": [
        *TRAIN,
        "--trajectories",
        "1000",
        "--seeds",
        "1",
    ],
    "stormpg train cartpole-continuous --algorithm storm-pg --trajectories 1000 (30 seeds)": [*TRAIN, "--trajectories", "1000"],
}


def waits(quick: bool, rounds: int, tell: Tell) -> BenchTable:
    """Seconds and peak memory of processes. Each round runs with an empty cache, then again with the cache that this left."""
    found: dict[str, list[Process]] = {}

    def note(name: str, process: Process, inside: bool = False) -> None:
        seconds = float(process.last_line) if inside else process.seconds
        found.setdefault(name, []).append(process._replace(seconds=seconds))

    commands = dict(list(COMMANDS.items())[: 1 if quick else 2])
    for number in range(rounds):
        tell(f"startup and command times, {number + 1} of {rounds}")
        note("import stormpg", alone(python(IMPORT)), inside=True)
        with tempfile.TemporaryDirectory() as cache:
            for how in ("cold", "warm"):
                note(f"first call of train(), one seed, {how}", alone(python(CALL), cache), inside=True)
        for name, command in commands.items():
            with tempfile.TemporaryDirectory() as cache:
                for how in ("cold", "warm"):
                    note(f"{name}, {how}", alone(command, cache))
    if not quick:
        tell("stormpg reproduce")
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "stormpg", "reproduce", "--out", str(Path(cache) / "results")]
            note("stormpg reproduce, cold", alone(command, cache))
    rows = [
        Row(name, [p.seconds for p in processes], {"megabytes": max(p.megabytes for p in processes)})
        for name, processes in found.items()
    ]
    note_text = "STORM-PG. Cold: empty compilation cache. Warm: the same again; calls in Python use `keep_programs()`."
    return BenchTable("waits", "Startup and command times", "seconds", rows, note_text, "lower")

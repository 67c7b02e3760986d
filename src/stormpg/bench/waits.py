"""What a person waits for: an import, a first call, whole commands, with nothing compiled before and with all of it."""

import sys
import tempfile
from pathlib import Path

from stormpg.bench.measure import BenchTable, Process, Row, Tell, alone, python

IMPORT = "import time; began = time.perf_counter(); import stormpg; print(time.perf_counter() - began)"
CALL = (
    "import stormpg, time; from stormpg.machine.xla import keep_programs; keep_programs(); began = time.perf_counter()\n"
    "stormpg.train('cartpole-continuous', 'storm-pg', 1000, 1); print(time.perf_counter() - began)"
)
TRAIN = [sys.executable, "-m", "stormpg", "train", "cartpole-continuous"]
COMMANDS = {
    "stormpg train cartpole-continuous --trajectories 1000 --seeds 1": [*TRAIN, "--trajectories", "1000", "--seeds", "1"],
    "stormpg train cartpole-continuous --trajectories 1000 (30 seeds)": [*TRAIN, "--trajectories", "1000"],
}


def waits(quick: bool, rounds: int, tell: Tell) -> BenchTable:
    """Seconds, each round with an empty cache and then again with what that left; the peak memory of the process."""
    found: dict[str, list[Process]] = {}

    def note(name: str, process: Process, inside: bool = False) -> None:
        seconds = float(process.last_line) if inside else process.seconds
        found.setdefault(name, []).append(process._replace(seconds=seconds))

    commands = dict(list(COMMANDS.items())[: 1 if quick else 2])
    for number in range(rounds):
        tell(f"what a person waits for, {number + 1} of {rounds}")
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
    note_text = "Cold: nothing compiled before; warm: the same again, a call in Python after `keep_programs()`. STORM-PG."
    return BenchTable("waits", "What a person waits for", "seconds", rows, note_text, "lower")

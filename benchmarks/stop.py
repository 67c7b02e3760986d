"""Stop every long command and call at random times, resume it, and compare it byte for byte with an uninterrupted one.

python -m benchmarks.stop [STOPS]        100 by default: SIGINT, SIGTERM, SIGKILL, and an exception in a callback

The table shows the longest time from the signal to the end of the process. A stop waits for the current chunk, or for a
compilation in progress.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

BOOM = 3  # exit code of a child whose callback raised
SIZES = ("--trajectories", "3000", "--seeds", "2", "--horizon", "20")
SMALL = ("--S0", "4", "--B", "2")
RUN = ("metrics.parquet", "policy.safetensors")


class Kind(NamedTuple):
    """A long command or call: how to start and resume it, the files it writes, and its share of all stops."""

    start: Callable[[Path], Sequence[str]]
    resume: Callable[[Path], Sequence[str]]
    leaves: Callable[[Path], list[Path]]
    share: int  # in percent
    callback: bool = False  # whether it takes a callback


def command(*words: str) -> Callable[[Path], list[str]]:
    return lambda folder: [sys.executable, "-m", "stormpg", *words, "--out", str(folder)]


def call(name: str) -> Callable[[Path], list[str]]:
    return lambda folder: [sys.executable, "-m", "benchmarks.stop", "child", name, str(folder)]


def run_files(folder: Path) -> list[Path]:
    return [folder / name for name in RUN]


def study_files(folder: Path) -> list[Path]:
    """The files of all runs, and the tables of the report."""
    return [*sorted(path for name in RUN for path in folder.glob(f"**/{name}")), folder / "tables.md"]


TRAIN = command("train", "cartpole-continuous", "--algorithm", "storm-pg", *SIZES, *SMALL, "--checkpoint-iterations", "1")
COMPARE = command("compare", "cartpole-continuous", "--algorithms", "gpomdp,svrpg,storm-pg", *SIZES)
TUNE = command(
    "tune",
    "cartpole-continuous",
    "--algorithm",
    "storm-pg",
    "--trials",
    "8",
    "--generation",
    "4",
    "--fresh-seeds",
    "2",
    *SIZES,
    *SMALL,
)
REPRODUCE = command("reproduce", "--trajectories", "100", "--seeds", "2")

KINDS = {
    "stormpg train": Kind(
        TRAIN, lambda folder: [sys.executable, "-m", "stormpg", "train", "--resume", str(folder)], run_files, 30
    ),
    "train()": Kind(call("train"), call("train"), run_files, 30, callback=True),
    "Agent.learn()": Kind(call("agent"), call("agent"), run_files, 20, callback=True),
    "stormpg compare": Kind(COMPARE, COMPARE, study_files, 10),
    "stormpg tune": Kind(TUNE, TUNE, study_files, 6),
    "stormpg reproduce": Kind(REPRODUCE, REPRODUCE, study_files, 4),
}


def main() -> None:
    stops, rng = int(sys.argv[1]) if len(sys.argv) > 1 else 100, random.Random(0)
    table = Table("what", "how", "stops", "equal", "longest s")
    different = 0
    with tempfile.TemporaryDirectory() as root:
        for name, kind in KINDS.items():
            whole = Path(root) / "whole" / name.replace(" ", "-")
            for again in range(2):  # the second time, its programs are in the cache, as in all later runs
                began = time.monotonic()
                folder = whole if again == 0 else whole.with_suffix(".again")
                subprocess.run(kind.start(folder), check=True, stdout=subprocess.DEVNULL)
                usual = time.monotonic() - began
            counts: dict[str, list[float]] = {}
            equal: dict[str, int] = {}
            for number in range(max(round(kind.share * stops / 100), 1)):
                ways = ["SIGINT", "SIGTERM", "SIGKILL", *(["exception"] if kind.callback else [])]
                way = ways[number % len(ways)]
                folder = Path(root) / name.replace(" ", "-") / str(number)
                seconds = stopped_once(kind, folder, way, usual, rng)
                finish(kind, folder)
                same = all(
                    a.read_bytes() == (folder / a.relative_to(whole)).read_bytes() for a in kind.leaves(whole)
                )  # all files of the uninterrupted one
                counts.setdefault(way, []).append(seconds)
                equal[way] = equal.get(way, 0) + same
            for way, times in counts.items():
                row = (name, way, str(len(times)), str(equal[way]), f"{max(times):.1f}")
                table.add_row(*row)
                print(*row, sep=" | ", flush=True)
                different += len(times) - equal[way]
    Console().print(table)
    print(f"{different} differences")
    sys.exit(different > 0)


def stopped_once(kind: Kind, folder: Path, way: str, usual: float, rng: random.Random) -> float:
    """Start it again until a stop comes before its end. Return the seconds from the signal to the end of the process."""
    while True:
        moment = rng.uniform(0.2, 1.0) * usual
        words = [*kind.start(folder), *([str(moment)] if way == "exception" else [])]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began = time.monotonic()
        if way != "exception":
            time.sleep(moment)
            began = time.monotonic()
            process.send_signal(getattr(signal, way))
        code = process.wait()
        seconds = 0.0 if way == "exception" else time.monotonic() - began
        expected = {"SIGINT": 130, "SIGTERM": 143, "SIGKILL": -9, "exception": BOOM}[way]
        done = any((folder / name).exists() for name in ("summary.json", "report.html"))  # it was already finishing
        early = code in (-2, -15) or (code == 1 and not folder.exists())  # killed by the signal itself, before training started
        if code == expected or (early and not done):
            return seconds
        assert code == 0 or done, f"{' '.join(words)} ended with {code} after {way}"
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def finish(kind: Kind, folder: Path) -> None:
    """Resume it to its end, or start it if it had not yet created its folder."""
    begun = any((folder / name).exists() for name in ("config.json", "experiment.json"))
    subprocess.run((kind.resume if begun else kind.start)(folder), check=True, stdout=subprocess.DEVNULL)


class Boom(Exception):
    """The exception raised by the callback."""


def child(name: str, folder: Path, moment: float | None) -> None:
    """A call in Python, as in a user's script. It resumes an existing run."""
    import stormpg
    from stormpg.machine.xla import keep_programs

    keep_programs()
    began = time.monotonic()

    def callback(now: Any) -> None:
        if moment is not None and time.monotonic() - began > moment:
            raise Boom

    algorithm = stormpg.storm_pg(S0=4, B=2)
    try:
        if name == "train":
            resume = (folder / "config.json").exists()
            often = stormpg.runs.checkpoints.CheckpointInterval(None, 1)
            job: dict[str, Any] = {"trajectories": 3000, "seeds": 2, "horizon": 20, "checkpoint": often}
            stormpg.train("cartpole-continuous", algorithm, out=folder, resume=resume, progress=callback, **job)
        else:
            held = (folder / "summary.json").exists()
            agent = stormpg.Agent.load(folder) if held else stormpg.Agent("cartpole-continuous", algorithm, horizon=20)
            done = 0 if agent.result is None else int(agent.result.states.trajectories[0])
            if done < 6000:
                agent.learn(6000 - done, callback=lambda now: (agent.save(folder), callback(now))[1], out=folder)
    except Boom:
        sys.exit(BOOM)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else None)
    else:
        main()

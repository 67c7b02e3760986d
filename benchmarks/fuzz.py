"""Fuzz every kind of file that the program reads with ten thousand damaged and malicious files.

python -m benchmarks.fuzz [CASES] [--templates FOLDER] [--first NUMBER] [--log FILE]

No case may cause a traceback, a hang, or excessive memory use. Small runs and studies are made once (kept in FOLDER if given,
otherwise in a temporary folder), and must be accepted unchanged. A case copies one of them, damages one of its files
(benchmarks/mutations.py) and passes it to a command or a reader, in a process whose time and memory are measured. Most cases
draw no figures and use few resamples; one in SLOW_EVERY does everything. The exit code is 1 if anything failed.
"""

import argparse
import collections
import contextlib
import dataclasses
import faulthandler
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.mutations import PLANTED, mutate

WORKERS = 2
CHUNK = 200  # cases per process
SECONDS, MEGABYTES = 20, 1024  # the limits of CPU time per case and of memory per process
SLOW_EVERY = 25


class Reached(BaseException):
    """Raised when everything has been read and training would start."""


def peak_memory() -> float:
    """The peak memory of this process in megabytes. (`ru_maxrss` would be inherited from the parent process.)"""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def command(*arguments: str) -> None:
    """Run the command in this process."""
    from stormpg import cli

    sys.argv = ["stormpg", *arguments]
    cli.main()


def resume(folder: Path) -> None:
    from stormpg.runs.training import Training

    def reached(*arguments: Any, **named: Any) -> None:
        raise Reached

    before = Training.run
    Training.run = reached  # type: ignore[method-assign,assignment]
    try:
        command("train", "--resume", str(folder))
    finally:
        Training.run = before  # type: ignore[method-assign]


def load(folder: Path) -> None:
    import stormpg

    agent = stormpg.Agent.load(folder)
    agent.predict([0.0] * agent.env.observation_space.shape[0])
    assert agent.metrics.height


def film(folder: Path) -> None:
    from stormpg.films import render
    from stormpg.runs import run_folder

    render.parameters(run_folder.Run(folder), "best", None)


def job(folder: Path) -> None:
    from stormpg.runs.options import Job

    Job({"env": "pendulum"}, folder / "job.toml")


def space(folder: Path) -> None:
    from stormpg.tune.space import distributions, read_space

    distributions(read_space(folder / "space.toml", "storm-pg"))


def owner(folder: Path) -> None:
    from stormpg.tune.search import owner_of

    owner_of(folder)


DRIVERS: dict[str, Callable[[Path], None]] = {
    "report of runs": lambda folder: command("report", str(folder), "--out", str(folder / "report")),
    "report": lambda folder: command("report", str(folder)),
    "evaluate": lambda folder: command("evaluate", str(folder), "--episodes", "2"),
    "bench --load": lambda folder: command("bench", "--load", str(folder / "result.json"), "--tables", "limit"),
    "bench --against": lambda folder: command(
        *("bench", "--load", str(folder / "good.json"), "--against", str(folder / "result.json"), "--tables", "limit")
    ),
    "resume": resume,
    "Agent.load": load,
    "render": film,
    "job": job,
    "space": space,
    "owner": owner,
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of file: its template folder, a pattern of file names, the drivers that read it, and its share of the cases."""

    name: str
    folder: str
    files: str
    drivers: tuple[str, ...]
    share: int = 4


KINDS = (
    Kind("config.json", "run", "config.json", ("report of runs", "evaluate", "Agent.load", "render"), 12),
    Kind("config.json, gym:", "gym", "config.json", ("evaluate", "Agent.load", "render"), 6),
    Kind("config.json, unfinished", "begun", "config.json", ("resume",), 8),
    Kind("checkpoint-*.safetensors", "begun", "checkpoint-*.safetensors", ("resume",), 8),
    Kind("metrics.parquet", "run", "metrics.parquet", ("report of runs", "Agent.load"), 10),
    Kind("summary.json", "run", "summary.json", ("report of runs", "Agent.load"), 4),
    Kind("state.safetensors", "run", "state.safetensors", ("Agent.load",), 6),
    Kind("policy.safetensors", "run", "policy.safetensors", ("evaluate", "render"), 6),
    Kind("experiment.json, compare", "compare", "experiment.json", ("report",), 6),
    Kind("runs of compare", "compare", "runs/*/*/[cms]*.*", ("report",), 6),
    Kind("experiment.json, reproduce", "reproduce", "experiment.json", ("report",), 4),
    Kind("experiment.json, tune", "tune", "experiment.json", ("report",), 6),
    Kind("study.db", "tune", "study.db", ("report",), 8),
    Kind("owner", "tune", "owner", ("owner",), 2),
    Kind("experiment.json, theory", "theory", "experiment.json", ("report",), 4),
    Kind("measured parts, theory", "theory", "*/**/*.json", ("report",), 8),
    Kind("TOML of --config", "toml", "job.toml", ("job",), 6),
    Kind("TOML of --space", "toml", "space.toml", ("space",), 4),
    Kind("bench result", "bench", "result.json", ("bench --load", "bench --against"), 6),
)
TURNS = [kind for kind in KINDS for _ in range(kind.share)]


def make_templates(root: Path, wanted: Collection[str] = tuple({kind.folder for kind in KINDS})) -> None:
    """Make valid folders of the wanted kinds, as small as possible."""
    root.mkdir(parents=True, exist_ok=True)
    small = ("--trajectories", "30", "--seeds", "2", "--horizon", "4")
    tiny = ("--S0", "3", "--B", "2", "--hidden", "3")
    makes: dict[str, Callable[[Path], Any]] = {
        "run": lambda folder: command("train", "pendulum", "--algorithm", "storm-pg", *small, *tiny, "--out", str(folder)),
        "gym": lambda folder: command(
            "train", "gym:CartPole-v1", "--algorithm", "storm-pg", *small, *tiny, "--out", str(folder)
        ),
        "begun": begin,
        "compare": lambda folder: command(
            "compare", "pendulum", "--algorithms", "gpomdp,storm-pg", *small, "--out", str(folder)
        ),
        "reproduce": plan_only,
        "tune": lambda folder: command(
            *(
                "tune",
                "pendulum",
                "--algorithm",
                "storm-pg",
                "--trials",
                "4",
                "--generation",
                "2",
                *small,
                "--fresh-seeds",
                "2",
                "--out",
                str(folder),
            )
        ),
        "theory": theory,
        "toml": tomls,
        "bench": bench,
    }
    for name, make in makes.items():
        if name in wanted and not (root / name).exists():
            with contextlib.suppress(SystemExit):
                make(root / name)
            assert (root / name).is_dir(), f"{name} could not be made"


def check_templates(root: Path) -> None:
    """Check that unchanged folders are accepted, except for the study without runs."""
    silence = contextlib.redirect_stdout(io.StringIO())
    with tempfile.TemporaryDirectory() as scratch, quickly(False), silence:
        for kind in KINDS:
            for driver in kind.drivers if kind.folder != "reproduce" else ():
                folder = Path(scratch) / kind.name.replace("/", "-") / driver
                shutil.copytree(root / kind.folder, folder)
                how, words = outcome(lambda driver=driver, folder=folder: DRIVERS[driver](folder))
                assert how == "accepted", f"{kind.name}, {driver}: {how}, {words}"


def begin(folder: Path) -> None:
    """Make a stopped run with a checkpoint."""
    import stormpg

    algorithm, policy = stormpg.storm_pg(S0=3, B=2), stormpg.policy_for(stormpg.make("pendulum"), hidden=(3,))
    stop = lambda now: False
    stormpg.train("pendulum", algorithm, 10**5, 2, horizon=4, policy=policy, out=folder, progress=stop)


def plan_only(folder: Path) -> None:
    """Write the plan of `reproduce` without its runs, which are read in the same way as those of `compare`."""
    from stormpg import files
    from stormpg.reproduce.reproduction import Plan

    folder.mkdir()
    files.write_json(folder / "experiment.json", {"kind": "reproduce", **dataclasses.asdict(Plan(2, 91))})


def theory(folder: Path) -> None:
    from stormpg.studies.workspace import Workspace
    from stormpg.theory import findings, laboratory

    findings.report(Workspace(folder), laboratory.as_size("small"), [])


def tomls(folder: Path) -> None:
    folder.mkdir()
    job = 'env = "pendulum"\nalgorithm = "svrpg"\neta = 0.01\nB = 3\nseeds = 2\nhidden = [8, 8]\nsigma = 0.5\nhorizon = 10\n'
    (folder / "job.toml").write_text(job)
    (folder / "space.toml").write_text("[eta]\nlow = 0.001\nhigh = 0.1\nlog = true\n[B]\nchoices = [2, 5]\n")


def bench(folder: Path) -> None:
    folder.mkdir()
    latest = max((Path(__file__).parent / "results").glob("*.json"))
    for name in ("good.json", "result.json"):
        shutil.copy(latest, folder / name)


@contextlib.contextmanager
def quickly(slow: bool) -> Iterator[None]:
    """Draw no figures and use few resamples, unless `slow`."""
    from stormpg import statistics
    from stormpg.report import charts, figures

    before = statistics.RESAMPLES, figures.save, charts.save
    if not slow:
        statistics.RESAMPLES, figures.save, charts.save = 20, lambda *_: None, lambda *_: None
    try:
        yield
    finally:
        statistics.RESAMPLES, figures.save, charts.save = before


def outcome(call: Callable[[], Any]) -> tuple[str, str]:
    """Return accepted, refused or traceback, and the message."""
    from stormpg.errors import EnvironmentFailure, InputError

    try:
        call()
    except Reached:
        pass
    except (InputError, EnvironmentFailure) as error:
        return "refused", str(error)
    except SystemExit as end:
        return ("accepted", "") if end.code in (0, None) else ("refused", "") if end.code in (1, 2) else ("traceback", str(end))
    except BaseException:
        return "traceback", traceback.format_exc()
    return "accepted", ""


def prepare(number: int, templates: Path, folder: Path) -> tuple[Kind, str, Path]:
    """Make the folder of a case. Return its kind, the driver that reads it, and the damaged file."""
    dice = random.Random(number)
    kind = TURNS[number % len(TURNS)]
    shutil.copytree(templates / kind.folder, folder, ignore=shutil.ignore_patterns("*.png", "*.pdf", "*.html"))
    file = dice.choice(sorted(path for path in folder.glob(kind.files) if path.is_file()))
    mutate(file, dice)
    return kind, dice.choice(kind.drivers), file


def work(templates: Path, first: int, last: int, results: Path) -> None:
    """Run the cases of one process, and write a line of JSON at the start and at the end of each."""
    scratch = Path(tempfile.mkdtemp())
    planted = scratch / "modules"
    planted.mkdir()
    (planted / f"{PLANTED}.py").write_text("")
    sys.path.insert(0, str(planted))
    said = (scratch / "said").open("w+")
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)  # also captures output that bypasses Python
    lines = results.open("a")
    for number in range(first, last):
        folder = scratch / f"case-{number}"
        kind, driver, file = prepare(number, templates, folder)
        about = {"number": number, "kind": kind.name, "driver": driver, "file": str(file.relative_to(folder))}
        print(json.dumps(about), file=lines, flush=True)
        said.seek(0)
        said.truncate()
        faulthandler.dump_traceback_later(3 * SECONDS, exit=True, file=lines)
        began = time.process_time()  # not affected by other processes; hangs are caught above
        with quickly(number // len(TURNS) % SLOW_EVERY == 0):
            how, words = outcome(lambda driver=driver, folder=folder: DRIVERS[driver](folder))
        seconds = time.process_time() - began
        faulthandler.cancel_dump_traceback_later()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        said.seek(0)
        text = said.read()
        if "panicked at" in text or "Traceback" in text or PLANTED in sys.modules:
            how, words = "traceback", text
        peak = peak_memory()
        done = {**about, "outcome": how, "words": words[-2000:] or text[-300:], "seconds": seconds, "megabytes": peak}
        print(json.dumps(done), file=lines, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)


def chunk(templates: Path, first: int, last: int, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Run some cases in a process. Return their results, and a message if the process died."""
    results = folder / f"{first}.jsonl"
    command = [sys.executable, "-m", "benchmarks.fuzz", "--work", str(templates), str(first), str(last), str(results)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    rows = [json.loads(line) for line in results.read_text().splitlines() if line.startswith("{")] if results.exists() else []
    ended = [row for row in rows if "outcome" in row]
    died = (
        ""
        if done.returncode == 0
        else f"exit code {done.returncode} in case {rows[-1] if rows else first}: {done.stderr[-500:]}"
    )
    return ended, died


def table(rows: list[dict[str, Any]]) -> str:
    """The table of outcomes for each kind of file."""
    of_kind = collections.defaultdict(list)
    for row in rows:
        of_kind[row["kind"]].append(row)
    lines = [f"{'kind':28} {'mutations':>9} {'accepted':>8} {'refused':>8} {'tracebacks':>10} {'CPU s':>9} {'peak MB':>8}"]
    for name, mine in [*((kind.name, of_kind[kind.name]) for kind in KINDS), ("all", rows)]:
        if mine:
            count = collections.Counter(row["outcome"] for row in mine)
            longest, peak = (max(row[key] for row in mine) for key in ("seconds", "megabytes"))
            counts = f"{len(mine):9} {count['accepted']:8} {count['refused']:8} {count['traceback']:10}"
            lines.append(f"{name:28} {counts} {longest:9.1f} {peak:8.0f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--templates", type=Path, help="folder for the valid templates; missing ones are made")
    parser.add_argument("--log", type=Path, help="file for the outcome of every case, one line of JSON each")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(Path(given.work[0]), int(given.work[1]), int(given.work[2]), Path(given.work[3]))
        return
    with tempfile.TemporaryDirectory() as scratch:
        templates = (given.templates or Path(scratch) / "templates").resolve()
        make_templates(templates)
        check_templates(templates)
        last = given.first + given.cases
        starts = range(given.first, last, CHUNK)
        with ThreadPoolExecutor(WORKERS) as pool:
            done = list(pool.map(lambda first: chunk(templates, first, min(first + CHUNK, last), Path(scratch)), starts))
    rows = [row for of_chunk, _ in done for row in of_chunk]
    died = [words for _, words in done if words]
    if given.log:
        given.log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    wrong = [row for row in rows if row["outcome"] == "traceback" or row["seconds"] > SECONDS or row["megabytes"] > MEGABYTES]
    for row in wrong[:20]:
        print(json.dumps(row, indent=1)[:3000])
    print("\n".join(died))
    print(table(rows))
    sys.exit(1 if wrong or died or len(rows) < given.cases else 0)


if __name__ == "__main__":
    main()

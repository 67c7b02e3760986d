"""How figures are taken: the rows of a table in turns, several rounds, every figure kept."""

import datetime
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from stormpg.machine.blocks import cores
from stormpg.studies.report_content import versions

Tell = Callable[[str], None]  # is told what is being measured


class Row(NamedTuple):
    """What was measured under a name: all its figures, or none and the reason."""

    name: str
    values: Sequence[float]
    about: Mapping[str, Any] = {}  # further figures and words

    @property
    def median(self) -> float:
        return statistics.median(self.values) if self.values else math.nan

    def as_json(self) -> dict[str, Any]:
        figures = {"median": self.median, "values": list(self.values)} if self.values else {}
        return {"name": self.name, **figures, **self.about}


class BenchTable(NamedTuple):
    """Rows in one unit, measured in turns."""

    name: str
    title: str
    unit: str
    rows: Sequence[Row]
    note: str = ""
    faster_is: str = "higher"  # or "lower"

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "rows": [row.as_json() for row in self.rows]}


def in_turns(
    tasks: Mapping[str, Callable[[], float]], rounds: int, tell: Tell, warm: Container[str] = ()
) -> dict[str, list[float]]:
    """The figures of each task: after one call that is not counted, all of them in turns, round after round.

    `warm`: those that need no such call.
    """
    for name, task in tasks.items():
        if name not in warm:
            tell(f"{name}, once to warm up")
            task()
    figures: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds):
        for name, task in tasks.items():
            tell(f"{name}, {number + 1} of {rounds}")
            figures[name].append(task())
    return figures


class Process(NamedTuple):
    """A whole process: its seconds, the most memory that it held, and the last line that it printed."""

    seconds: float
    megabytes: float
    last_line: str


def as_users_have_it() -> dict[str, str]:
    """The environment variables without those that change how JAX compiles, the library's own among them."""
    ours = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "STORMPG_CACHE_MB")
    return {name: value for name, value in os.environ.items() if name not in ours}


def alone(command: Sequence[str], cache: str | None = None) -> Process:
    """Run a command in a process of its own, with XLA as users have it, and with this folder as the user's cache."""
    environment = as_users_have_it() | ({"XDG_CACHE_HOME": cache} if cache else {})
    measure = (
        "import resource, subprocess, sys, time; began = time.perf_counter()\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True)\n"
        "print((done.stdout.splitlines() or [''])[-1])\n"
        "unit = 2**20 if sys.platform == 'darwin' else 1024\n"
        "print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / unit)\n"
        "sys.exit(done.returncode)"
    )
    command = [sys.executable, "-c", measure, *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    *_, last, figures = done.stdout.splitlines()
    seconds, megabytes = map(float, figures.split())
    return Process(seconds, megabytes, last)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y over log x, by least squares."""
    return statistics.linear_regression([math.log(v) for v in x], [math.log(v) for v in y]).slope


def seconds_of(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def where_and_when() -> dict[str, Any]:
    """The machine, the versions and the date."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0] if names else cpu
    devices = [device.device_kind for device in jax.devices()] if jax.default_backend() != "cpu" else []
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu, "cores": cores(), "system": platform.system(), "accelerators": devices},
        "versions": versions(),
    }

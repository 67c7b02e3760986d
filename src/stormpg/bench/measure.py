"""How benchmarks are measured: the rows of a table in turn, for several rounds, keeping every value."""

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
from unittest import mock

import jax

from stormpg.machine import xla
from stormpg.machine.blocks import cores
from stormpg.studies.report_content import versions

Tell = Callable[[str], None]  # receives a text about what is being measured


class Row(NamedTuple):
    """A row of a table: all values that were measured, or none and the reason."""

    name: str
    values: Sequence[float]
    about: Mapping[str, Any] = {}  # further numbers and texts

    @property
    def median(self) -> float:
        """The median of the values; NaN if there are none."""
        return statistics.median(self.values) if self.values else math.nan

    def as_json(self) -> dict[str, Any]:
        figures = {"median": self.median, "values": list(self.values)} if self.values else {}
        return {"name": self.name, **figures, **self.about}


def of_seeds(count: int) -> str:
    """A number of seeds in words."""
    return f"{count} seed{'s' * (count != 1)}"


class BenchTable(NamedTuple):
    """Rows in one unit, measured in turn."""

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
    """Measure all tasks in turn, for several rounds, after one call of each that is not counted. Returns the values by task.

    `warm`: the tasks that need no such call.
    """
    figures: dict[str, list[float]] = {name: [] for name in tasks}
    # The programs of all tasks are kept: otherwise those of many shapes would be compiled again in each round.
    with mock.patch.object(xla, "KEPT", max(xla.KEPT, 2 * len(tasks))):
        for name, task in tasks.items():
            if name not in warm:
                tell(f"{name}, warm-up")
                task()
        for number in range(rounds):
            for name, task in tasks.items():
                tell(f"{name}, {number + 1} of {rounds}")
                figures[name].append(task())
    return figures


def ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    """One task divided by another: the median over rounds, because the two of a round share the machine's load."""
    return statistics.median(a / b for a, b in zip(ours, others, strict=True))


class Process(NamedTuple):
    """A finished process: its seconds, its peak memory, and the last line that it printed."""

    seconds: float
    megabytes: float
    last_line: str


def as_users_have_it() -> dict[str, str]:
    """The environment variables without those that change how JAX compiles, and whether Python keeps its compiled modules."""
    ours = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "STORMPG_CACHE_MB", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in ours}


def alone(command: Sequence[str], cache: str | None = None) -> Process:
    """Run a command in its own process, with XLA's default settings and with `cache` as the user's cache folder."""
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
    """The command that runs a Python program."""
    return [sys.executable, "-c", program]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent of y as a power of x: the slope of log y over log x, by least squares."""
    return statistics.linear_regression([math.log(v) for v in x], [math.log(v) for v in y]).slope


def seconds_of(work: Callable[[], object]) -> float:
    """The seconds that a call takes."""
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

"""Run the benchmarks, table by table."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from stormpg import kernels
from stormpg.bench import built_in, growth, learning, libraries, limit, outside, robots, speeds, waits, windows
from stormpg.bench.measure import BenchTable, Tell, where_and_when
from stormpg.errors import InputError, choose

SPEED = ("kernels", "limit", "peers", "sweep", "episodes", "waits", "memory", "growth", "training", "window", "outside")
TABLES = (*SPEED, "robots", "built-in", "learning")  # robots needs a GPU; the others are about what is learned, and take longer
QUICK = ("limit", "peers", "sweep", "waits", "training")


def measurable(tables: tuple[str, ...]) -> tuple[str, ...]:
    """The tables that can be measured on this machine; InputError for an unknown name, or if none can."""
    for name in tables:
        choose("table", name, TABLES)
    found = tuple(name for name in tables if name != "kernels" or kernels.enabled())
    if not found:
        raise InputError("the table kernels needs a GPU or a C compiler (gcc or clang), and there is neither here.")
    return found


def bench(
    tables: tuple[str, ...],
    quick: bool,
    tell: Tell,
    root: Path = Path(),
    out: Path = Path("benchmarks/results"),
    measure: bool = True,
) -> Iterator[dict[str, Any]]:
    """Measure these tables, and yield all results so far after each.

    `root`: the folder that holds the peers' virtual environments. `out`: that of the runs of the table learning, of which
    missing ones are run if `measure`.
    """
    about = where_and_when()
    rounds = 2 if quick else 5
    found: list[BenchTable] = []
    with tempfile.TemporaryDirectory() as folder:
        work = {
            "limit": lambda: limit.limit(Path(folder), rounds, tell),
            "peers": lambda: libraries.peers(root, quick, rounds, tell),
            "training": lambda: speeds.training(quick, 2 if quick else 3, tell),
            "kernels": lambda: speeds.kernels(rounds, tell),
            "sweep": lambda: speeds.sweep(quick, 2 if quick else 3, tell),
            "episodes": lambda: speeds.episodes(3, tell),
            "waits": lambda: waits.waits(quick, 1 if quick else 3, tell),
            "growth": lambda: growth.growth(quick, 3, tell),
            "memory": lambda: growth.memory(quick, tell),
            "outside": lambda: outside.outside(root, quick, 2 if quick else 3, tell),
            "window": lambda: windows.window(rounds, tell),
            "robots": lambda: robots.robots(rounds, tell),
            "built-in": lambda: built_in.built_in(tell),
            "learning": lambda: learning.learning(root, out, tell, measure=measure),
        }
        for name in tables:
            found.append(work[name]())
            jax.clear_caches()  # the next table has other programs
            yield {**about, "quick": quick, "tables": [table.as_json() for table in found]}

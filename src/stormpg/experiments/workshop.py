"""Where the parts of a study are kept, and how they are done: several at once, by threads or by processes.

A CPU runs two at once on threads: one compiles while the other runs. A GPU is mostly waited for: tracing and compiling take
longer than the runs, and threads of one Python trace one after the other. So there each part is done by a process.
"""

import dataclasses
import json
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import jax

from stormpg import files
from stormpg.columns import Columns
from stormpg.compiler import CACHE, understood
from stormpg.errors import InputError
from stormpg.experiments.units import Unit, give_memory_back, read_unit, run_unit
from stormpg.parallel import cores

Report = Callable[[str, int, int], None]  # the name of a part, parts done, parts in all

# A compiled program takes some 30 MB and many of the mappings that Linux allows a process: after a group they are dropped.
GROUP = 8
NO_TRIALS = ("xla_gpu_autotune_level", 0)  # XLA times variants of matrix products while others use the GPU, to no avail
PROCESSES = 14  # that share a GPU, at most


@dataclasses.dataclass(frozen=True)
class Workshop:
    """The folder of a study, who is told of its progress, and whether anything may be run."""

    root: Path
    report: Report | None = None
    train: bool = True  # False: a part that is missing is an error

    def run(self, units: Sequence[Unit]) -> list[Columns]:
        """The tables of all units. What is there is checked before anything is run."""
        missing = [unit for unit in units if not (self.root / unit.folder).exists()]
        for unit in units:
            if unit not in missing:
                read_unit(unit, self.root)
        self.do({unit.folder: partial(run_unit, unit, self.root) for unit in missing}, len(units))
        return [read_unit(unit, self.root) for unit in units]

    def measure(self, measures: Mapping[str, Callable[[], Any]], group: int = 2) -> list[Any]:
        """What the JSON files of these names hold; measured and written where there is none."""
        missing = {name: work for name, work in measures.items() if not (self.root / name).exists()}
        writes = {name: partial(write_measured, self.root / name, work) for name, work in missing.items()}
        self.do(writes, len(measures), group)
        return [json.loads((self.root / name).read_text(encoding="utf-8")) for name in measures]

    def do(self, parts: Mapping[str, Callable[[], None]], count: int, group: int = GROUP) -> None:
        """Some parts of `count`, several at once."""
        if parts and not self.train:
            raise InputError(f"{self.root / next(iter(parts))} is missing ({len(parts)} parts in all): run the study again.")
        names, done = list(parts), count - len(parts)
        group = max(len(names), 1) if jax.default_backend() == "gpu" else group
        for first in range(0, len(names), group):
            with pool(len(names)) as workers:
                futures = {workers.submit(parts[name]): name for name in names[first : first + group]}
                try:
                    for future in as_completed(futures):
                        future.result()
                        done += 1
                        if self.report:
                            self.report(futures[future], done, count)
                except BrokenProcessPool:
                    raise InputError(
                        f"a process that worked on {self.root} died, perhaps for want of memory. What is done is kept: "
                        "give the command again."
                    ) from None
                except BaseException:
                    stop(workers)
                    raise
            jax.clear_caches()
            give_memory_back()


def write_measured(file: Path, measure: Callable[[], Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(file, measure())


def pool(parts: int) -> Executor:
    return processes(parts) if jax.default_backend() == "gpu" else ThreadPoolExecutor(2)


def stop(workers: Executor) -> None:
    """At once where they are processes: what is half done has not got its name yet. Threads end their part."""
    for process in list((getattr(workers, "_processes", None) or {}).values()):
        process.terminate()
    workers.shutdown(wait=True, cancel_futures=True)


def share_device() -> None:
    """Several processes are to share a GPU, most of whose memory JAX would give to the first. Call it before JAX starts."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def processes(parts: int) -> Executor:
    flags = os.environ.get("XLA_FLAGS", "")
    if "autotune" not in flags and understood(*NO_TRIALS):
        os.environ["XLA_FLAGS"] = f"{flags} --{NO_TRIALS[0]}={NO_TRIALS[1]}"  # workers read it when they start
    cache = tuple(getattr(jax.config, name) for name in CACHE)
    spawn = multiprocessing.get_context("spawn")  # a GPU's driver does not survive a fork
    return ProcessPoolExecutor(min(PROCESSES, cores(), parts), spawn, initializer=share_cache, initargs=cache)


def share_cache(*values: Any) -> None:
    """A worker keeps what it compiles where its parent does."""
    for name, value in zip(CACHE, values, strict=True):
        jax.config.update(name, value)

"""Workers for the parts of a study: threads, processes that share a GPU or the cores, or a Ray cluster.

On a CPU, two threads run two parts at once: one compiles while the other runs. On a GPU, tracing and compiling take longer than
the runs, and the threads of one Python process cannot trace in parallel, so each part runs in a process. A Ray cluster may have
many machines without a shared disk, so the output of a part is returned and written by this process.
"""

import contextlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import jax

from stormpg.machine import retries
from stormpg.machine.blocks import cores, lend
from stormpg.machine.ray_cluster import cluster
from stormpg.machine.xla import CACHE, NO_TRIALS, keep_programs, understood
from stormpg.studies.work_units import drop_programs

GROUP = 8  # number of parts after which a process drops its compiled programs
PROCESSES = 14  # maximum number of processes that share a GPU
GRACE = 5.0  # seconds that terminated processes have to clean up
DONE = itertools.count()  # counts the parts that a process of a cluster has completed


class ThisMachine:
    """Workers on this machine: threads or processes."""

    @property
    def in_groups(self) -> bool:
        """Whether parts run in groups, because this process compiles and has to drop its programs regularly."""
        return jax.default_backend() != "gpu"

    def pool(self, parts: int) -> Executor:
        """An executor for this number of parts."""
        return ThreadPoolExecutor(2) if self.in_groups else processes(parts)


class Processes:
    """Workers on this machine in processes, each with its share of the cores: for many small parts that use no GPU."""

    in_groups = False

    def pool(self, parts: int) -> Executor:
        """An executor for this number of parts."""
        return processes(parts, share=True)


class OnRay:
    """Workers on a Ray cluster."""

    in_groups = False

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    def pool(self, parts: int) -> Executor:
        """An executor for this number of parts."""
        return RayPool(self.ray)


@contextlib.contextmanager
def workers(where: str | None, processes: bool = False) -> Iterator["ThisMachine | Processes | OnRay"]:
    """The workers of the Ray cluster at the address `where`, or of this machine if None (in `processes`, if so)."""
    if where is None:
        yield Processes() if processes else ThisMachine()
        return
    with cluster(where) as ray:
        yield OnRay(ray)


class RayPool(Executor):
    """Ray as an executor. A part whose process or machine dies is run again elsewhere."""

    def __init__(self, ray: Any) -> None:
        # A part takes half the cores of this machine, so that two run at once, as with threads. Smaller machines run one.
        machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
        share = min(max(cores() // 2, 1), max(machine.get("CPU", 1) for machine in machines))
        options: dict[str, Any] = {"num_cpus": share, "max_retries": retries.CRASHES}
        if all("GPU" in machine for machine in machines):
            options["num_gpus"] = 1 / PROCESSES
        self.ray, self.task, self.given = ray, ray.remote(**options)(run_part), ray.put((cores(), cache_folder() is not None))
        self.parts: list[Any] = []

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        self.parts.append(self.task.remote(self.given, work, arguments, more))
        future: Future[Any] = self.parts[-1].future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for part in self.parts if cancel_futures else ():
            self.ray.cancel(part, force=True)


def run_part(given: tuple[int, bool], work: Callable[..., Any], arguments: Sequence[Any], more: dict[str, Any]) -> Any:
    """Run a part on a cluster as on this machine, with the same blocks, which affect the last bits of the results."""
    count, keep = given
    lend(count)
    if keep:
        keep_programs()
    if next(DONE) % GROUP == GROUP - 1:
        drop_programs()
    return work(*arguments, **more)


def stop(pool: Executor, grace: float = GRACE) -> None:
    """Stop a pool. Processes are ended, as unfinished output has no final name yet. Threads finish their chunk.

    A process that trains ends its chunk and removes its temporary files, but would then start its next part. It is killed.
    """
    mine = list((getattr(pool, "_processes", None) or {}).values())
    for process in mine:
        process.terminate()
    ends = time.monotonic() + grace
    try:
        for process in mine:
            process.join(max(ends - time.monotonic(), 0.0))
    finally:  # also after a second Ctrl-C
        for process in mine:
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


def share_device() -> None:
    """Let several processes share a GPU: JAX would give most memory to the first. Call this before JAX is initialised."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def processes(parts: int, share: bool = False) -> Executor:
    """A pool of processes that share a GPU or, if `share`, the cores."""
    cache = tuple(getattr(jax.config, name) for name in CACHE)
    spawn = multiprocessing.get_context("spawn")  # a GPU's driver does not survive a fork
    count = min(cores(), parts) if share else min(PROCESSES, cores(), parts)
    begin = (understood(*NO_TRIALS), cache, max(cores() // count, 1) if share else None)
    return ProcessPoolExecutor(count, spawn, initializer=begin_worker, initargs=begin)


def begin_worker(no_trials: bool, cache: tuple[Any, ...], share: int | None) -> None:
    """Initialise a worker. It uses the compilation cache of its parent. XLA reads its flags at the first compilation."""
    if share is not None:
        lend(share)
    flags = os.environ.get("XLA_FLAGS", "")
    if no_trials and "autotune" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{NO_TRIALS[0]}={NO_TRIALS[1]}".strip()
    for name, value in zip(CACHE, cache, strict=True):
        jax.config.update(name, value)


def cache_folder() -> str | None:
    """The folder of the compilation cache, if there is one."""
    return getattr(jax.config, CACHE[0], None)

"""Who does the parts of a study: threads, processes that share a GPU, or a Ray cluster.

A CPU runs two parts at once on threads: one compiles while the other runs. A GPU is mostly waited for: tracing and compiling
take longer than the runs, and threads of one Python trace one after the other. So there each part is done by a process. A Ray
cluster may have many machines, whose disks are their own: what a part returns is written here.
"""

import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import jax

from stormpg.machine.blocks import cores, lend
from stormpg.machine.ray_cluster import cluster
from stormpg.machine.xla import CACHE, keep_programs, understood
from stormpg.studies.units import drop_programs

GROUP = 8  # parts after which a process drops its compiled programs
NO_TRIALS = ("xla_gpu_autotune_level", 0)  # XLA times variants of matrix products while others use the GPU, to no avail
PROCESSES = 14  # that share a GPU, at most
DEATHS = 5  # of the process or machine that works on a part, before it counts as failed; its own errors: `workspace.ATTEMPTS`
DONE = itertools.count()  # the parts that a process of a cluster has done


class Here:
    """Threads or processes of this machine."""

    @property
    def in_groups(self) -> bool:
        """Whether this process compiles, and has to drop its programs now and then."""
        return jax.default_backend() != "gpu"

    def pool(self, parts: int) -> Executor:
        return ThreadPoolExecutor(2) if self.in_groups else processes(parts)


class OnRay:
    """The tasks of a Ray cluster."""

    in_groups = False

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    def pool(self, parts: int) -> Executor:
        return RayPool(self.ray)


@contextlib.contextmanager
def workers(where: str | None) -> Iterator[Here | OnRay]:
    """Those of this machine, or of the Ray cluster at `where`."""
    if where is None:
        yield Here()
        return
    with cluster(where) as ray:
        yield OnRay(ray)


class RayPool(Executor):
    """Ray as `concurrent.futures` has it. A part whose process or machine dies is done again, elsewhere."""

    def __init__(self, ray: Any) -> None:
        # Two at once for as many cores as there are here, as with threads; on smaller machines one at a time.
        machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
        share = min(max(cores() // 2, 1), max(machine.get("CPU", 1) for machine in machines))
        options: dict[str, Any] = {"num_cpus": share, "max_retries": DEATHS}
        if all("GPU" in machine for machine in machines):
            options["num_gpus"] = 1 / PROCESSES
        self.ray, self.task, self.given = ray, ray.remote(**options)(there), ray.put((cores(), kept() is not None))
        self.parts: list[Any] = []

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future:
        self.parts.append(self.task.remote(self.given, work, arguments, more))
        return self.parts[-1].future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for part in self.parts if cancel_futures else ():
            self.ray.cancel(part, force=True)


def there(given: tuple[int, bool], work: Callable[..., Any], arguments: Sequence[Any], more: dict[str, Any]) -> Any:
    """A part, done as here: cut into the same blocks, on which the last bits of its numbers depend."""
    count, keep = given
    lend(count)
    if keep:
        keep_programs()
    if next(DONE) % GROUP == GROUP - 1:
        drop_programs()
    return work(*arguments, **more)


def stop(pool: Executor) -> None:
    """At once where they are processes: what is half done has not got its name yet. Threads end their chunk."""
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


def share_device() -> None:
    """Several processes are to share a GPU, most of whose memory JAX would give to the first. Call it before JAX starts."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def processes(parts: int) -> Executor:
    cache = tuple(getattr(jax.config, name) for name in CACHE)
    spawn = multiprocessing.get_context("spawn")  # a GPU's driver does not survive a fork
    begin = (understood(*NO_TRIALS), cache)
    return ProcessPoolExecutor(min(PROCESSES, cores(), parts), spawn, initializer=begin_worker, initargs=begin)


def begin_worker(no_trials: bool, cache: tuple[Any, ...]) -> None:
    """A worker keeps what it compiles where its parent does. XLA reads its flags when it compiles for the first time."""
    flags = os.environ.get("XLA_FLAGS", "")
    if no_trials and "autotune" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{NO_TRIALS[0]}={NO_TRIALS[1]}".strip()
    for name, value in zip(CACHE, cache, strict=True):
        jax.config.update(name, value)


def kept() -> str | None:
    """The folder that compiled programs are kept in."""
    return getattr(jax.config, CACHE[0], None)

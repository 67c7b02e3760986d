"""Use of all cores and all devices of the machine for one batch of runs.

XLA runs a program of small operations on one core. A batch of runs is therefore cut into equal blocks, small enough to
stay in a core's cache, and each block is a call of the same compiled program on its own thread. If there are several
devices, such as GPUs, the blocks are distributed over them.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.machine.stopping import completed

Runs = TypeVar("Runs")
Done = TypeVar("Done")

RUNS_IN_A_BLOCK = 16  # enough to fill the vector units, few enough to stay in the caches; measured, and not sensitive

_lent: int | None = None  # the number of cores that a cluster has given to this process


def lend(count: int) -> None:
    """Use this number of cores from now on. Called in a process that works for a cluster."""
    global _lent
    _lent = count


def cores() -> int:
    """Return the number of cores that this process may use."""
    if _lent is not None:
        return _lent
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def devices() -> list[jax.Device]:
    """Return the devices that compute runs: all devices of this process, or the one set by `jax.default_device`."""
    chosen = getattr(jax.config, "jax_default_device", None)
    if chosen is None:
        local: list[jax.Device] = jax.local_devices()  # without those of other processes, if `jax.distributed` is used
        return local
    return [jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen]


def block_size(runs: int, workers: int) -> int:
    """Return the number of runs per block. All workers have the same number of blocks, so that none is idle at the end."""
    rounds = -(-runs // (RUNS_IN_A_BLOCK * workers))
    return -(-runs // (rounds * workers))


def cut(runs: Runs, size: int) -> list[Runs]:
    """Return the runs, which are the first axis of every leaf, in blocks of this size."""
    count = len(jax.tree.leaves(runs)[0])
    # The last block is padded with repeated runs, so that all blocks share one program.
    index = np.minimum(np.arange(-(-count // size) * size), count - 1).reshape(-1, size)
    return [jax.tree.map(lambda x, i=i: x[i], runs) for i in index]


def as_here(work: Callable[..., Done]) -> Callable[..., Done]:
    """Return `work` for another thread, with the JAX settings of this thread (`jax.enable_x64`, `jax.default_device` ...)."""
    here = {name: getattr(jax.config, f"jax_{name}") for name in ("enable_x64", "default_device", "default_matmul_precision")}

    def there(*arguments: Any) -> Done:
        with contextlib.ExitStack() as settings:
            for name, value in here.items():
                if getattr(jax.config, f"jax_{name}") != value:
                    settings.enter_context(getattr(jax, name)(value))
            return work(*arguments)

    return there


def in_blocks(work: Callable[[int], Done], blocks: int, workers: int) -> list[Done]:
    """Return the result of `work` for each block, computed by this number of workers."""
    if blocks == 1 or workers == 1:  # in this thread, because other threads cannot be interrupted
        return [work(number) for number in range(blocks)]
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(as_here(work), number) for number in range(blocks)]
        list(completed(futures))
        return [future.result() for future in futures]


def at_home(tree: Runs) -> Runs:
    """Return arrays of any device on the default device, not committed to it, so that JAX may move them again."""

    def bring(x: Any) -> Any:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(bring(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        return jnp.asarray(np.asarray(x))  # jax.device_put would commit the array to a device

    moved: Runs = jax.tree.map(bring, tree)
    return moved


def together(parts: Sequence[Runs], count: int) -> Runs:
    """Return the runs of all blocks, without the padding of the last one."""
    if len(jax.tree.leaves(parts[0])[0]) == count:
        return parts[0]
    joined: Runs = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:count], *parts)
    return joined

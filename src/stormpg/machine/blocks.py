"""All cores and all devices of the machine for one batch of runs.

XLA runs a program of small operations on one core. A batch of runs is therefore cut into equal blocks, small enough to
stay in a core's cache, and each block is a call of the same compiled program on a thread of its own. Where there are several
devices, such as GPUs, the blocks take turns on them.
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

RUNS_IN_A_BLOCK = 16  # enough to fill the vector units, few enough to stay in the caches; measured, and flat around here


_lent: int | None = None


def lend(count: int) -> None:
    """Work as on a machine with so many cores: for a process of a cluster that works for one."""
    global _lent
    _lent = count


def cores() -> int:
    """The cores this process may use."""
    if _lent is not None:
        return _lent
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def devices() -> list[jax.Device]:
    """Where runs are computed: on all devices of this process, or on the one that `jax.default_device` names."""
    chosen = getattr(jax.config, "jax_default_device", None)
    if chosen is None:
        return jax.local_devices()  # other processes may have some too, if they are joined by `jax.distributed`
    return [jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen]


def block_size(runs: int, workers: int) -> int:
    """How many runs a block holds: a whole number of rounds of all workers, so that none idles at the end."""
    rounds = -(-runs // (RUNS_IN_A_BLOCK * workers))
    return -(-runs // (rounds * workers))


def cut(runs: Runs, size: int) -> list[Runs]:
    """The runs, the first axis of every leaf, in blocks of this size."""
    count = len(jax.tree.leaves(runs)[0])
    # The last block is filled up with repeated runs, so that all blocks share one program.
    index = np.minimum(np.arange(-(-count // size) * size), count - 1).reshape(-1, size)
    return [jax.tree.map(lambda x, i=i: x[i], runs) for i in index]


def as_here(work: Callable[..., Done]) -> Callable[..., Done]:
    """`work` for another thread, with the settings that JAX has in this one: `jax.enable_x64`, `jax.default_device` ..."""
    here = {name: getattr(jax.config, f"jax_{name}") for name in ("enable_x64", "default_device", "default_matmul_precision")}

    def there(*arguments: Any) -> Done:
        with contextlib.ExitStack() as settings:
            for name, value in here.items():
                if getattr(jax.config, f"jax_{name}") != value:
                    settings.enter_context(getattr(jax, name)(value))
            return work(*arguments)

    return there


def in_blocks(work: Callable[[int], Done], blocks: int, workers: int) -> list[Done]:
    """What `work` gives for each block, by so many workers."""
    if blocks == 1 or workers == 1:  # in this thread, which alone can be interrupted
        return [work(number) for number in range(blocks)]
    with ThreadPoolExecutor(workers) as pool:
        begun = [pool.submit(as_here(work), number) for number in range(blocks)]
        list(completed(begun))
        return [future.result() for future in begun]


def at_home(tree: Runs) -> Runs:
    """Arrays of any device on the default one, and as free to leave it as those that were never anywhere else."""

    def bring(x: Any) -> Any:
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(bring(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        return jnp.asarray(np.asarray(x))  # what jax.device_put moves is bound to where it went

    return jax.tree.map(bring, tree)


def together(parts: Sequence[Runs], count: int) -> Runs:
    """The runs of all blocks, without those that filled up the last one."""
    if len(jax.tree.leaves(parts[0])[0]) == count:
        return parts[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:count], *parts)

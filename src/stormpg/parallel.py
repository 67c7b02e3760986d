"""All cores of the machine for one batch of runs.

XLA runs a program of small operations on one core. A batch of runs is therefore cut into equal blocks, small enough to
stay in a core's cache, and each block is a call of the same compiled program on a thread of its own.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Runs = TypeVar("Runs")
Out = TypeVar("Out")

ROWS = 16_000  # steps of a large batch, over all runs of a block, that the caches hold


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def block_size(runs: int, rows: int, workers: int) -> int:
    """How many runs, of so many rows each, a block holds: one for each worker at least, more where memory asks."""
    blocks = min(runs, max(workers, -(-runs * rows // ROWS)))
    blocks = min(runs, -(-blocks // workers) * workers)  # whole rounds, so that no worker idles at the end
    return -(-runs // blocks)


def in_blocks(work: Callable[[Runs], Out], runs: Runs, rows: int) -> Out:
    """work(runs), done block by block. Leaves of `runs` have the runs as first axis; of the result, as noted below.

    `work` returns (states, rows): the first with the runs as leading axis, the second with them as the last one.
    """
    count, workers = len(jax.tree.leaves(runs)[0]), cores() if jax.default_backend() == "cpu" else 1
    size = block_size(count, rows, workers) if workers > 1 else count
    # The last block is filled up with repeated runs, so that all blocks share one program.
    index = np.minimum(np.arange(-(-count // size) * size), count - 1).reshape(-1, size)
    blocks = [jax.tree.map(lambda x, i=i: x[i], runs) for i in index]
    if len(blocks) == 1:
        return work(blocks[0])
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(work, blocks))
    longest = max(leaf.shape[0] for _, rows in done for leaf in rows)
    states = jax.tree.map(lambda *parts: jnp.concatenate(parts)[:count], *(states for states, _ in done))
    rows = [jax.tree.map(lambda x: np.pad(x, ((0, longest - len(x)), (0, 0))), rows) for _, rows in done]
    return states, jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, :count], *rows)

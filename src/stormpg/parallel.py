"""All cores of the machine for one batch of runs.

XLA runs a program of small operations on one core. A batch of runs is therefore cut into equal blocks, small enough to
stay in a core's cache, and each block is a call of the same compiled program on a thread of its own.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Runs = TypeVar("Runs")
States = TypeVar("States")
Rows = TypeVar("Rows")

RUNS_IN_A_BLOCK = 16  # enough to fill the vector units, few enough to stay in the caches; measured, and flat around here


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def in_blocks(work: Callable[[int], tuple[States, Rows]], blocks: int, count: int, workers: int) -> tuple[States, Rows]:
    """What `work` gives for all of `count` runs, done block by block.

    Leaves of the states that `work` returns have the runs as first axis, those of its rows as the last.
    """
    if blocks == 1:
        done = [work(0)]
    elif workers == 1:  # in this thread, which alone can be interrupted
        done = [work(number) for number in range(blocks)]
    else:
        with ThreadPoolExecutor(workers) as pool:
            done = list(pool.map(work, range(blocks)))
    states = jax.tree.map(lambda *parts: jnp.concatenate(parts)[:count], *[states for states, _ in done])
    return states, jax.tree.map(lambda *parts: side_by_side(parts)[:, :count], *[recorded for _, recorded in done])


def side_by_side(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Columns beside columns, the shorter ones filled up with zeros: iterations that did not take place."""
    longest = max(len(part) for part in parts)
    return np.concatenate([np.pad(part, ((0, longest - len(part)), (0, 0))) for part in parts], axis=1)

"""What a training run leaves: the table of its iterations, its states, its policies."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from stormpg.algorithms import Algorithm
from stormpg.columns import Columns, mean_return
from stormpg.envs.base import AnyEnvironment
from stormpg.errors import choose
from stormpg.iteration import Row, State
from stormpg.records import Tree
from stormpg.store import ITERATES


class Progress(NamedTuple):
    """How far a run is, after a chunk."""

    trajectories: int  # a seed
    budget: int
    mean_return: float  # of the iteration recorded last, over the seeds in the chunk
    diverged: int
    seconds: float


class Watch:
    """Turns the reports of several blocks of runs into one progress."""

    def __init__(self, budget: int, began: float, progress: Callable[[Progress], Any] | None, stop: threading.Event) -> None:
        self.budget, self.began, self.progress, self.stop = budget, began, progress, stop
        self.lock, self.blocks = threading.Lock(), dict[int, State]()

    def report(self, block: int, states: State, rows: Row) -> None:
        """What a block has reached. Where `progress` returns False, all of them stop."""
        if self.progress is None:
            return
        with self.lock:
            self.blocks[block] = states
            done = min(int(np.asarray(s.trajectories).min()) for s in self.blocks.values())
            diverged = sum(int(np.asarray(s.diverged).sum()) for s in self.blocks.values())
            seconds = time.perf_counter() - self.began
            now = Progress(done, self.budget, float(np.nanmean(rows.mean_return[-1])), diverged, seconds)
            if self.progress(now) is False:
                self.stop.set()


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished training run of one or several settings, each with every seed."""

    env: AnyEnvironment
    algorithms: tuple[Algorithm, ...]
    policies: tuple[Any, ...]
    seeds: tuple[int, ...]
    horizon: int
    trajectories: int
    columns: Columns
    states: State  # leading axis: run = setting · seeds + seed
    seconds: float
    complete: bool = True  # False: it was stopped before its budget was spent

    @property
    def metrics(self) -> Any:
        """The table of all iterations: a polars DataFrame, or plain columns on a machine without polars."""
        try:
            import polars
        except ImportError:
            return dict(self.columns)
        return polars.DataFrame(dict(self.columns))

    def params(self, which: str = "last", seed: int | None = None, setting: int = 0) -> Tree:
        """ξ of one seed: the last iterate, Algorithm 1's uniformly drawn one, or the one with the best batch."""
        attribute = {"last": "params", "uniform": "uniform", "best": "best"}[choose("iterate", which, ITERATES)]
        position = setting * len(self.seeds) + (0 if seed is None else self.seeds.index(seed))
        return jax.tree.map(lambda x: x[position], getattr(self.states, attribute))

    def final_return(self, window: int = 50) -> np.ndarray:
        """The mean return of each run over its last `window` trajectories, [settings, seeds]."""
        return mean_return(self.columns, window).reshape(len(self.algorithms), len(self.seeds))

"""What a training run leaves: the table of its iterations, its states, its policies."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from stormpg.algorithms import Algorithm
from stormpg.engine.iteration import LIMIT, Budget, Row, State
from stormpg.envs.base import AnyEnvironment
from stormpg.errors import InputError, choose
from stormpg.records import Tree
from stormpg.runs.run_folder import ITERATES
from stormpg.runs.table import Columns, mean_return


class Progress(NamedTuple):
    """How far a run is, after a chunk."""

    trajectories: int  # a seed
    budget: int  # of trajectories, a seed
    mean_return: float  # of the iteration recorded last, over the seeds in the chunk
    diverged: int
    seconds: float
    steps: int  # of the environment, all seeds together
    step_budget: int | None  # a seed; None: there is none
    result: "Callable[[], Result]"  # gives what has been reached, as a `Result` that is not complete


class Watch:
    """Turns the reports of several blocks of runs into one progress."""

    def __init__(
        self, budget: Budget, began: float, progress: Callable[[Progress], Any] | None, result: "Callable[[], Result]"
    ) -> None:
        self.budget, self.began, self.progress, self.result = budget, began, progress, result
        self.lock, self.blocks = threading.Lock(), dict[int, State]()

    def report(self, block: int, states: State, rows: Row) -> Any:
        """What a block has reached; what `progress` says to that."""
        if self.progress is None:
            return None
        with self.lock:
            self.blocks[block] = states
            every = list(self.blocks.values())
            now = Progress(
                min(int(np.asarray(s.trajectories).min()) for s in every),
                self.budget.trajectories,
                float(np.nanmean(rows.mean_return[-1])),
                sum(int(np.asarray(s.diverged).sum()) for s in every),
                time.perf_counter() - self.began,
                sum(int(np.asarray(s.steps).sum(dtype=np.int64)) for s in every),
                None if self.budget.steps == LIMIT else self.budget.steps,
                self.result,
            )
            return self.progress(now)


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
        if seed is not None and seed not in self.seeds:
            raise InputError(f"seed is {seed}; this run has the seeds {str(list(self.seeds))[:80]}.")
        position = setting * len(self.seeds) + (0 if seed is None else self.seeds.index(seed))
        return jax.tree.map(lambda x: x[position], getattr(self.states, attribute))

    def final_return(self, window: int = 50) -> np.ndarray:
        """The mean return of each run over its last `window` trajectories, [settings, seeds]; NaN for one without any."""
        first = self.columns["iteration"] == 0
        place = {seed: number for number, seed in enumerate(self.seeds)}
        final = np.full((len(self.algorithms), len(self.seeds)), np.nan)
        if first.any():
            final[self.columns["setting"][first], [place[s] for s in self.columns["seed"][first].tolist()]] = mean_return(
                self.columns, window
            )
        return final

"""The table of a run's iterations, run after run: what `Result.columns` and metrics.parquet hold."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from stormpg.algorithms import Algorithm
from stormpg.iteration import Row

Columns = Mapping[str, np.ndarray]

RECORDED = {  # columns that are a field of the rows under its own or another name
    "large": "large",
    "return": "mean_return",
    "discounted_return": "discounted_return",
    "gradient_norm": "gradient_norm",
    "weight_mean": "weight_mean",
    "weight_max": "weight_max",
    "effective_sample_size": "effective_sample_size",
    "diverged": "diverged",
}
NAMES = ("env", "algorithm", "setting", "seed", "iteration", "large", "trajectories", "steps", *list(RECORDED)[1:])


class Table(Mapping[str, np.ndarray]):
    """The rows of all runs as one table; a column is made when it is first looked at.

    `trajectories` and `steps` count everything sampled up to and including the iteration; `setting` numbers the
    algorithms of a batch.
    """

    def __init__(self, env: str, algorithms: Sequence[Algorithm], seeds: Sequence[int], rows: Row) -> None:
        self.env, self.seeds, self.rows = env, np.array(seeds), rows
        self.algorithms = np.array([a.name for a in algorithms])
        self.whole = rows.live.all()
        self.lengths = rows.live.sum(axis=0)
        self.made: dict[str, np.ndarray] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.made:
            self.made[name] = self.make(name)
        return self.made[name]

    def make(self, name: str) -> np.ndarray:
        runs, live, total = np.arange(len(self.lengths)), self.rows.live, int(self.lengths.sum())
        if name in RECORDED:
            return self.flat(getattr(self.rows, RECORDED[name]))
        if name == "env":
            return np.broadcast_to(np.array(self.env), total)  # a text for each row would be most of the table
        if name == "algorithm":
            if len(set(self.algorithms)) == 1:
                return np.broadcast_to(self.algorithms[0], total)
            return self.algorithms[np.repeat(runs // len(self.seeds), self.lengths)]
        if name == "setting":
            return np.repeat(runs // len(self.seeds), self.lengths)
        if name == "seed":
            return np.repeat(self.seeds[runs % len(self.seeds)], self.lengths)
        if name == "iteration":
            return self.flat(np.cumsum(live, axis=0) - 1)
        if name in ("trajectories", "steps"):
            taken = self.rows.batch if name == "trajectories" else self.rows.steps
            return self.flat(np.cumsum(taken * live, axis=0, dtype=np.int64))
        raise KeyError(name)

    def flat(self, part: np.ndarray) -> np.ndarray:
        """[iterations, runs] without the iterations that did not take place, run after run."""
        return part.T.ravel() if self.whole else part.T[self.rows.live.T]  # the first is usual, and several times faster


def extend(before: Columns, after: Columns) -> dict[str, np.ndarray]:
    """A table with what followed it: the counts of every run go on where they ended."""
    after = dict(after)
    for name in ("iteration", "trajectories", "steps"):
        last = {
            (setting, seed): count + (name == "iteration")
            for setting, seed, count in zip(before["setting"], before["seed"], before[name], strict=True)
        }  # the rows of a run are in order, so the last one stays
        after[name] = after[name] + np.array([last[run] for run in zip(after["setting"], after["seed"], strict=True)], int)
    whole = {name: np.concatenate((before[name], after[name])) for name in before}
    seeds = list(dict.fromkeys(before["seed"]))
    order = np.lexsort((whole["iteration"], np.array([seeds.index(s) for s in whole["seed"]]), whole["setting"]))
    return {name: column[order] for name, column in whole.items()}


def mean_return(columns: Columns, window: int | None = None) -> np.ndarray:
    """The mean return of each run over its last `window` trajectories, or over all, [runs]."""
    after, value = columns["trajectories"], columns["return"].astype(float)
    starts = np.nonzero(columns["iteration"] == 0)[0]
    size = np.diff(after, prepend=0)
    size[starts] = after[starts]
    if window is not None:
        last = np.repeat(np.append(after[starts[1:] - 1], after[-1]), np.diff(np.append(starts, len(after))))
        size = np.clip(size - np.maximum(last - window - (after - size), 0), 0, None)
    return np.add.reduceat(size * value, starts) / np.add.reduceat(size, starts)

"""The table of iterations, run by run: the content of `Result.columns` and metrics.parquet."""

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from stormpg.algorithms import Algorithm
from stormpg.engine.metrics import Row

Columns = Mapping[str, np.ndarray]

WINDOW = 50  # trajectories that the last return, and a point of a curve, is averaged over

RECORDED = {  # columns that are fields of the rows, with the name of the field
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
    """The rows of all runs as one table. A column is computed when it is first accessed.

    `trajectories` and `steps` count everything sampled up to and including the iteration; `setting` is the
    index of the algorithm in a batch.
    """

    def __init__(
        self, env: str, algorithms: Sequence[Algorithm], seeds: Sequence[int], blocks: Sequence[Sequence[Row]]
    ) -> None:  # fmt: skip
        """`blocks`: for each block of runs its recorded rows, in consecutive parts, each [iterations, runs]."""
        self.env, self.seeds, self.blocks = env, np.array(seeds), blocks
        self.algorithms = np.array([a.name for a in algorithms])
        self.made: dict[str, np.ndarray] = {}

    @functools.cached_property
    def info(self) -> tuple[str, ...]:
        """The names of the columns that the tracker adds."""
        return next((tuple(parts[0].info) for parts in self.blocks if parts), ())

    def recorded(self, field: str) -> np.ndarray:
        """A field of all rows, [iterations, runs]."""

        def values(row: Row) -> np.ndarray:
            return np.asarray(row.info[field] if field in self.info else getattr(row, field))

        some = next((values(parts[0]) for parts in self.blocks if parts), np.zeros((0, len(self.seeds)), bool))
        blocks = [np.concatenate([values(part) for part in parts] or [some[:0]]) for parts in self.blocks]
        return side_by_side(blocks)[:, : len(self.algorithms) * len(self.seeds)]

    @functools.cached_property
    def live(self) -> np.ndarray:
        """Whether each iteration took place, [iterations, runs]."""
        return self.recorded("live")

    @functools.cached_property
    def whole(self) -> bool:
        """Whether all iterations of all runs took place."""
        return bool(self.live.all())

    def __iter__(self) -> Iterator[str]:
        return iter((*NAMES, *self.info))

    def __len__(self) -> int:
        return len(NAMES) + len(self.info)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.made:
            self.made[name] = self.make(name)
        return self.made[name]

    def make(self, name: str) -> np.ndarray:
        """Compute a column."""
        if name in RECORDED or name in self.info:
            return self.flat(self.recorded(RECORDED.get(name, name)))
        if name == "iteration":
            return self.flat(np.cumsum(self.live, axis=0) - 1)
        if name in ("trajectories", "steps"):
            taken = self.recorded("batch" if name == "trajectories" else name)
            return self.flat(np.cumsum(taken * self.live, axis=0, dtype=np.int64))
        lengths = self.live.sum(axis=0)
        setting, seed = np.divmod(np.arange(len(lengths)), len(self.seeds))
        if name == "setting":
            return np.repeat(setting, lengths)
        if name == "seed":
            return np.repeat(self.seeds[seed], lengths)
        if name == "algorithm" and len(set(self.algorithms)) > 1:
            return np.repeat(self.algorithms[setting], lengths)
        if name in ("env", "algorithm"):  # broadcast: one text per row would be most of the table
            return np.broadcast_to(np.array(self.env) if name == "env" else self.algorithms[0], lengths.sum())
        raise KeyError(name)

    def flat(self, part: np.ndarray) -> np.ndarray:
        """Flatten [iterations, runs] run by run, without the iterations that did not take place."""
        return part.T.ravel() if self.whole else part.T[self.live.T]  # the first case is common, and several times faster


def side_by_side(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate along the runs. Shorter parts are padded with zeros, for iterations that did not take place."""
    if len(parts) == 1:
        return parts[0]
    longest = max(len(part) for part in parts)
    return np.concatenate([np.pad(part, ((0, longest - len(part)), (0, 0))) for part in parts], axis=1)


def extend(before: Columns, after: Columns) -> dict[str, np.ndarray]:
    """Append the table of continued runs. The counts of each run continue from their last values."""
    after = dict(after)
    for name in ("iteration", "trajectories", "steps"):
        last = {
            (setting, seed): count + (name == "iteration")
            for setting, seed, count in zip(before["setting"], before["seed"], before[name], strict=True)
        }  # the rows of a run are in order, so the last row wins
        after[name] = after[name] + np.array([last[run] for run in zip(after["setting"], after["seed"], strict=True)], int)
    whole = {name: np.concatenate((before[name], after[name])) for name in before}
    seeds = list(dict.fromkeys(before["seed"]))
    order = np.lexsort((whole["iteration"], np.array([seeds.index(s) for s in whole["seed"]]), whole["setting"]))
    return {name: column[order] for name, column in whole.items()}


def mean_return(columns: Columns, window: int | None = None) -> np.ndarray:
    """The mean return of each run over its last `window` trajectories, or over all if None, [runs]."""
    after, value = columns["trajectories"], columns["return"].astype(float)
    starts = np.nonzero(columns["iteration"] == 0)[0]
    size = np.diff(after, prepend=0)
    size[starts] = after[starts]
    if window is not None:
        last = np.repeat(np.append(after[starts[1:] - 1], after[-1]), np.diff(np.append(starts, len(after))))
        size = np.clip(size - np.maximum(last - window - (after - size), 0), 0, None)
    weighted = size * np.where(size > 0, value, 0.0)  # values outside the window may be infinite
    return np.add.reduceat(weighted, starts) / np.add.reduceat(size, starts)

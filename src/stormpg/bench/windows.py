"""The cost of a window: an iteration of a tracker over K batches, compared with a plain one."""

from collections.abc import Callable
from functools import partial

import stormpg
from stormpg import estimators, schedules, steps, trackers
from stormpg.algorithms import Algorithm
from stormpg.bench.measure import BenchTable, Row, Tell, in_turns, of_seeds, ratio, seconds_of

B, HORIZON, ITERATIONS = 3, 100, 300
SIZES = (4, 16, 64)


def row_of(tracker: trackers.Plain | trackers.Windowed) -> Algorithm:
    """GPOMDP with Adam over this tracker."""
    return Algorithm(estimators.gpomdp(0.99), tracker, schedules.always(B), steps.optax_step(0.01))


def milliseconds(algorithm: Algorithm, seeds: int) -> float:
    """An iteration of all seeds, on Cart-Pole."""
    train = partial(stormpg.train, "cartpole-continuous", algorithm, B * ITERATIONS, seeds, horizon=HORIZON)
    return 1e3 * seconds_of(train) / ITERATIONS


def window(rounds: int, tell: Tell, seeds: tuple[int, ...] = (1, 16)) -> BenchTable:
    """Plain, windows of several sizes, and the default algorithm."""
    rows = {"plain": row_of(trackers.plain())}
    rows |= {f"window, K = {K}": row_of(trackers.window(K)) for K in SIZES} | {"window-npg": stormpg.window_npg(B=B)}
    tasks: dict[str, Callable[[], float]] = {
        f"{name}, {of_seeds(count)}": partial(milliseconds, algorithm, count)
        for count in seeds
        for name, algorithm in rows.items()
    }
    figures = in_turns(tasks, rounds, tell)
    made = []
    for count in seeds:
        plain = figures[f"plain, {of_seeds(count)}"]
        for name in (f"{name}, {of_seeds(count)}" for name in rows):
            made.append(Row(name, figures[name], {"times plain": ratio(figures[name], plain)}))
    note = f"Cart-Pole, B = {B}, H = {HORIZON}, after compilation; the start of a run is included."
    return BenchTable("window", "An iteration over a window of K batches", "milliseconds", made, note, faster_is="lower")

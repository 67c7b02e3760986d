"""How fast the library trains: by algorithm, seeds and batch size; sweeps; episodes that end early."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

import jax
import numpy as np

import stormpg
from stormpg import scores, trajectories
from stormpg.algorithms import Algorithm
from stormpg.bench.measure import BenchTable, Row, Tell, in_turns, of_seeds, seconds_of
from stormpg.engine.budget import Budget
from stormpg.kernels import enabled
from stormpg.runs.result import Result
from stormpg.runs.training import RunOptions, Training
from stormpg.sampling import rollouts

ALGORITHMS = ("gpomdp", "svrpg", "srvr-pg", "storm-pg")
ENVIRONMENTS = {"cartpole-continuous": 100, "rllab-mountain-car": 1000}  # and the horizons
LONG_ENOUGH = 1.0  # approximate seconds of a measurement


def shape(algorithm: str, B: int) -> Algorithm:
    """An algorithm with batches of B. Those with epochs start each epoch with 2B and take m = 3 small steps."""
    settings = {"gpomdp": {"S0": B}, "storm-pg": {"S0": B, "B": B}, "window-npg": {"B": B}, "harpg": {"B": B}}
    return stormpg.make_algorithm(algorithm, **settings.get(algorithm, {"S0": 2 * B, "B": B, "m": 3}))


class Speed:
    """Measures training in million steps per second: all slots of the horizon, all work after compilation.

    The first call compiles, and determines how many trajectories are needed for a measurement of sufficient length.
    """

    def __init__(self, env: str, algorithm: str, B: int, seeds: int, horizon: int) -> None:
        self.env, self.algorithm, self.seeds, self.horizon = stormpg.make(env), shape(algorithm, B), seeds, horizon
        self.trajectories, self.live = 10 * B, 0.0  # two epochs, if the algorithm has them

    def train(self) -> tuple[float, int]:
        """Train once; return the seconds, and the number of steps inside episodes."""
        began = time.perf_counter()
        result = stormpg.train(self.env, self.algorithm, self.trajectories, self.seeds, horizon=self.horizon)
        seconds = time.perf_counter() - began
        last = np.append(result.columns["iteration"][1:] == 0, True)
        self.sampled = int(result.columns["trajectories"][last].sum())
        return seconds, int(result.columns["steps"][last].sum())

    def __call__(self) -> float:
        new = not self.live
        if new:
            self.train()
        seconds, steps = self.train()
        while new and seconds < 0.8 * LONG_ENOUGH:  # the fixed cost of a run distorts short measurements
            self.trajectories = int(self.trajectories * max(1.5, LONG_ENOUGH / seconds))
            seconds, steps = self.train()
        slots = self.sampled * self.horizon
        self.live = steps / slots
        return slots / seconds / 1e6


def cases(quick: bool) -> Iterator[tuple[str, str, int, int]]:
    """The environment, algorithm, B and seeds of each case: B = 5 with all numbers of seeds, larger batches with few seeds.

    On a CPU, 1024 seeds of the longer environment take minutes, and are no faster than 256.
    """
    every = (1, 16, 64, 256, 1024) if jax.default_backend() == "cpu" else (1, 256, 1024, 4096, 16384)
    for env in list(ENVIRONMENTS)[: 1 if quick else 2]:
        many = every[:-1] if ENVIRONMENTS[env] > 100 and jax.default_backend() == "cpu" else every
        for algorithm in ("gpomdp", "storm-pg") if quick else ALGORITHMS:
            yield from ((env, algorithm, 5, seeds) for seeds in (many[:3:2] if quick else many))
            if not quick:
                yield env, algorithm, 10, 16
                yield env, algorithm, 1024, 1


def training(quick: bool, rounds: int, tell: Tell) -> BenchTable:
    """The speed of training in all cases."""
    tasks = {
        f"{env}, {algorithm}, B={B}, {of_seeds(seeds)}": Speed(env, algorithm, B, seeds, ENVIRONMENTS[env])
        for env, algorithm, B, seeds in cases(quick)
    }
    figures = in_turns(tasks, rounds, tell)
    rows = [Row(name, figures[name], {"live": task.live}) for name, task in tasks.items()]
    note = "Steps are slots of the horizon; live: the share of slots that are inside an episode."
    return BenchTable("training", "Training, after compilation", "million steps a second", rows, note)


@contextlib.contextmanager
def fused(switch: str) -> Iterator[None]:
    """Set STORMPG_FUSED, with new programs for it."""
    with mock.patch.dict(os.environ, STORMPG_FUSED=switch):
        jax.clear_caches()
        yield
    jax.clear_caches()


def kernels(rounds: int, tell: Tell) -> BenchTable:
    """The fused kernels compared with plain JAX, which STORMPG_FUSED=0 selects."""
    where = "a CPU" if jax.default_backend() == "cpu" else "a GPU"
    many = (1, 64) if where == "a CPU" else (1, 1024)
    cases = [(name, 5, seeds) for name in ("storm-pg", "window-npg", "harpg") for seeds in many]
    cases += [("storm-pg", 5, 16384)] * (where == "a GPU")
    names = [f"{name}, {of_seeds(seeds)}" for name, _, seeds in cases]
    made: dict[str, dict[str, Row]] = {}
    for how, switch in (("fused kernels", "1"), ("plain JAX", "0")):  # not in turn: each needs its own programs
        with fused(switch):
            tasks = {name: Speed("cartpole-continuous", *case, 100) for name, case in zip(names, cases, strict=True)}
            tell(how)
            figures = in_turns(tasks, rounds, tell)
        made[how] = {name: Row(f"{name}, {how}", figures[name], {"live": task.live}) for name, task in tasks.items()}
    rows = []
    for name in names:
        fast, slow = (by_name[name] for by_name in made.values())
        rows += [fast._replace(about={**fast.about, "times plain JAX": fast.median / slow.median}), slow]
    note = "Batches of 5, H = 100. window-npg has a window of 16 batches, harpg a product with the Hessian in each iteration."
    return BenchTable("kernels", f"Kernels and plain JAX, Cart-Pole on {where}", "million steps a second", rows, note)


def sweep(quick: bool, rounds: int, tell: Tell) -> BenchTable:
    """Many settings with few seeds each, compared with one setting and as many runs in total."""
    from stormpg.engine.compiled_loop import chunk

    settings, seeds, budget = (16, 4, 500) if quick else (64, 16, 500)
    alphas, etas = np.linspace(0.2, 0.95, 4), np.geomspace(0.001, 0.03, settings // 4)
    many = [stormpg.storm_pg(S0=10, B=5, eta=eta, alpha=alpha) for eta in etas for alpha in alphas]
    steps = settings * seeds * budget * 100

    def train_one() -> None:
        stormpg.train("cartpole-continuous", stormpg.storm_pg(S0=10, B=5), budget, settings * seeds, horizon=100)

    def train_many() -> None:
        stormpg.train("cartpole-continuous", many, budget, seeds, horizon=100)

    def speed(train: Callable[[], None]) -> float:
        return steps / seconds_of(train) / 1e6

    train_one()
    before = chunk.compiled
    train_many()
    compiled = chunk.compiled - before
    one, all_of_them = f"one setting × {settings * seeds} seeds", f"{settings} settings × {seeds} seeds"
    figures = in_turns({one: partial(speed, train_one), all_of_them: partial(speed, train_many)}, rounds, tell)
    rows = [Row(one, figures[one]), Row(all_of_them, figures[all_of_them], {"programs compiled for it": compiled})]
    return BenchTable("sweep", "Settings and seeds as one batch (STORM-PG, Cart-Pole)", "million steps a second", rows)


@contextlib.contextmanager
def to_the_end() -> Iterator[None]:
    """Disable early exit in plain JAX: one block of steps that covers the whole horizon."""
    with contextlib.ExitStack() as patches:
        patches.callback(jax.clear_caches)  # after the constants are restored
        for module, name in ((trajectories, "BLOCK"), (rollouts, "BLOCK"), (scores, "BLOCK"), (scores, "SHORT")):
            patches.enter_context(mock.patch.object(module, name, 10**6))
        jax.clear_caches()
        yield


def episodes(rounds: int, tell: Tell) -> BenchTable:
    """Mountain-Car continued with a trained policy, whose episodes are short: kernels, plain JAX, and without early exit."""
    env = stormpg.make("rllab-mountain-car")
    tell("Mountain-Car: training a policy first")
    first = stormpg.train(env, stormpg.storm_pg(S0=10, B=5), 600, 16)
    training = Training(env, first.algorithms, first.policies, first.seeds, env.horizon)

    def train_on() -> Result:
        return training.run(Budget(800), RunOptions(before=first))

    def measured(name: str) -> Row:
        return Row(name, in_turns({name: partial(seconds_of, train_on)}, rounds, tell)[name])

    # Not in turn: each needs its own programs.
    rows = [measured("fused kernels")] if enabled() else []
    with fused("0"):
        rows.append(measured("plain JAX, ends with the last episode"))
        with to_the_end():
            rows.append(measured(f"plain JAX, all {env.horizon} steps"))
    live = train_on().columns
    share = live["steps"][live["trajectories"] == 800].mean() - live["steps"][live["trajectories"] == 600].mean()
    note = f"{float(share) / (200 * env.horizon):.0%} of the steps are inside an episode."
    title = "Mountain-Car, 16 seeds, 200 more trajectories of a trained policy"
    return BenchTable("episodes", title, "seconds", rows, note, "lower")

"""Schedules: when the next batch is a large one of S0 trajectories, and when a small one of B.

A schedule answers one question, `large`, from its own memory, which `after` updates. `first` and `unit` tell the loops
which sizes to try in which order: an iteration of a unit takes place if it is due, and is skipped otherwise. So `unit` must
list every size that `large` may ask for after `first`. Batch sizes and m are static: they are shapes of the compiled program.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.contract import Moment
from stormpg.errors import InputError
from stormpg.pytrees import Tree, as_float, record, static

Pattern = tuple[tuple[bool, int], ...]  # (large?, how often), one after the other

LARGE: Pattern = ((True, 1),)
SMALL: Pattern = ((False, 1),)


@record
class Schedule:
    """S0 trajectories every time. The base class of all schedules."""

    S0: int = static()
    B: int = static()

    first: ClassVar[Pattern] = ()  # iterations before the units
    by_chance: ClassVar[bool] = False  # True: iterations are often not due, and computed only if a run of the block needs one

    @property
    def unit(self) -> Pattern:
        """The iterations that the loops repeat."""
        return LARGE

    def init(self) -> Tree:
        """The memory before the first batch."""
        return ()

    def large(self, memory: Tree, moment: Moment) -> Array | bool:
        """Whether the next batch is a large one."""
        return True

    def after(self, memory: Tree, large: bool, rate: Array) -> Tree:
        """The memory after an iteration. `rate`: step length per unit of gradient; NaN if the run has diverged."""
        return memory

    @property
    def unit_size(self) -> int:
        """The number of trajectories of a unit in which every iteration takes place."""
        return sum(times * (self.S0 if large else self.B) for large, times in self.unit)

    def larges(self, count: int) -> np.ndarray:
        """Which of the first `count` iterations are large, for schedules without a coin or a rule."""
        first, unit = ([large for large, times in pattern for _ in range(times)] for pattern in (self.first, self.unit))
        return np.array((first + unit * (count // len(unit) + 1))[:count])


@record
class Once(Schedule):
    """S0 once, then B every time."""

    first: ClassVar[Pattern] = LARGE

    @property
    def unit(self) -> Pattern:
        return SMALL

    def large(self, memory: Tree, moment: Moment) -> Array:
        return moment.iteration == 0


@record
class Every(Schedule):
    """An epoch is one batch of S0, then m batches of B. The memory counts the batches of the epoch so far."""

    m: int = static()

    @property
    def unit(self) -> Pattern:
        return (*LARGE, (False, self.m))

    def init(self) -> Tree:
        return jnp.zeros((), dtype=int)

    def large(self, memory: Tree, moment: Moment) -> Array:
        first: Array = memory == 0
        return first

    def after(self, memory: Tree, large: bool, rate: Array) -> Tree:
        return (memory + 1) % (self.m + 1)


@record
class Adaptive(Every):
    """Papini et al. 2018: as `Every`, but the epoch ends early when a large batch is worth more per trajectory.

    With ρ the step length per unit of gradient, it ends after the first small batch with ρ_large/S0 > ρ_small/B.
    """

    def init(self) -> Tree:
        return super().init(), as_float(0.0)

    def large(self, memory: Tree, moment: Moment) -> Array:
        return super().large(memory[0], moment)

    def after(self, memory: Tree, large: bool, rate: Array) -> Tree:
        count, large_rate = memory
        following = super().after(count, large, rate)
        if large:
            return following, jnp.where(jnp.isnan(rate), large_rate, rate)
        return jnp.where(large_rate / self.S0 > rate / self.B, 0, following), large_rate


@record
class Coin(Schedule):
    """S0 first, then S0 with probability p and B otherwise."""

    p: Array

    by_chance: ClassVar[bool] = True

    @property
    def unit(self) -> Pattern:
        return (*LARGE, *SMALL)

    def large(self, memory: Tree, moment: Moment) -> Array:
        return (moment.iteration == 0) | (moment.uniform("coin") < self.p)


def always(S0: int) -> Schedule:
    """S0 trajectories every time."""
    _at_least_one(S0=S0)
    return Schedule(S0, S0)


def once(S0: int, B: int) -> Once:
    """S0 once, then B every time."""
    _at_least_one(S0=S0, B=B)
    return Once(S0, B)


def every(m: int, S0: int, B: int, adaptive: bool = False) -> Every:
    """An epoch is one batch of S0, then m batches of B. `adaptive`: Papini's rule may end it early."""
    _at_least_one(m=m, S0=S0, B=B)
    return (Adaptive if adaptive else Every)(S0, B, m)


def coin(p: float, S0: int, B: int) -> Coin:
    """S0 with probability p, otherwise B; the first batch is S0."""
    _at_least_one(S0=S0, B=B)
    if not isinstance(p, jax.core.Tracer) and not 0 <= p <= 1:
        raise InputError(f"p is {p}; expected a probability in [0, 1].")
    return Coin(S0, B, as_float(p))


def _at_least_one(**sizes: int) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} is {value!r}; expected a whole number of at least 1.")

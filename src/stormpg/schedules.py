"""Schedules: when a large batch of S0 trajectories, when a small one of B.

A schedule answers one question, `large`, from its own memory, which `after` updates. `first` and `unit` say in which order
the compiled loop is to ask: an iteration of a unit takes place where it is due, and is skipped where it is not. Batch
sizes and m are static: they are shapes of the compiled program.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.contract import Moment
from stormpg.errors import InputError
from stormpg.records import Tree, as_float, record, static

Pattern = tuple[tuple[bool, int], ...]  # (large?, how often), one after the other

LARGE: Pattern = ((True, 1),)
SMALL: Pattern = ((False, 1),)


@record
class Schedule:
    """S0 trajectories every time. The others are variations of this."""

    S0: int = static()
    B: int = static()

    first: ClassVar[Pattern] = ()  # iterations before the units
    by_chance: ClassVar[bool] = False  # the iterations of a unit are often not due: one is computed only where a run needs it

    @property
    def unit(self) -> Pattern:
        """The iterations that the compiled loop repeats."""
        return LARGE

    def init(self) -> Tree:
        """The memory before the first batch."""
        return ()

    def large(self, memory: Tree, moment: Moment) -> Array | bool:
        """Whether the next batch is a large one."""
        return True

    def after(self, memory: Tree, large: bool, rate: Array) -> Tree:
        """The memory after an iteration. `rate`: how far it went for a unit of gradient; NaN where the run has diverged."""
        return memory

    @property
    def unit_size(self) -> int:
        """The trajectories of a unit of which all iterations take place."""
        return sum(times * (self.S0 if large else self.B) for large, times in self.unit)

    def larges(self, count: int) -> np.ndarray:
        """Which of the first `count` iterations are large, where neither a coin nor a rule decides."""
        listed = lambda pattern: [large for large, times in pattern for _ in range(times)]
        unit = listed(self.unit)
        return np.array((listed(self.first) + unit * (count // len(unit) + 1))[:count])


@record
class Once(Schedule):
    """S0 once, then B for ever."""

    first: ClassVar[Pattern] = LARGE

    @property
    def unit(self) -> Pattern:
        return SMALL

    def large(self, memory: Tree, moment: Moment) -> Array:
        return moment.iteration == 0


@record
class Every(Schedule):
    """An epoch is S0 once, then m times B. The memory is the number of batches that the epoch has had."""

    m: int = static()

    @property
    def unit(self) -> Pattern:
        return (*LARGE, (False, self.m))

    def init(self) -> Tree:
        return jnp.zeros((), dtype=int)

    def large(self, memory: Tree, moment: Moment) -> Array:
        return memory == 0

    def after(self, memory: Tree, large: bool, rate: Array) -> Tree:
        return (memory + 1) % (self.m + 1)


@record
class Adaptive(Every):
    """Papini et al. 2018: as `Every`, and the epoch ends when a large batch buys more for each trajectory.

    With ρ the length of a step for a unit of gradient, that is after the first small one with ρ_large/S0 > ρ_small/B.
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
    """S0 once, then B for ever."""
    _at_least_one(S0=S0, B=B)
    return Once(S0, B)


def every(m: int, S0: int, B: int, adaptive: bool = False) -> Every:
    """An epoch is S0 once, then m times B. `adaptive`: Papini's rule may end it earlier."""
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

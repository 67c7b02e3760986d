"""Schedules: when a large batch of S0 trajectories, when a small one of B.

Batch sizes and m are static: they are shapes of the compiled program.
"""

import dataclasses

from stormpg.errors import InputError


@dataclasses.dataclass(frozen=True)
class Schedule:
    """One large batch, then m small ones, again and again; m = None: small ones for ever."""

    S0: int
    B: int
    m: int | None
    adaptive: bool = False  # end the small steps early when they have become worth less than a large one
    resample: bool = True  # False: a small batch is drawn from the large one (SVRPO) and costs no trajectories

    @property
    def unit(self) -> int:
        """The trajectories of what is repeated: of a small batch, a large one, or a large one and m small ones."""
        return self.B if self.m is None else self.S0 + self.m * self.B


def always(S0: int) -> Schedule:
    """S0 trajectories every time."""
    _at_least_one(S0=S0)
    return Schedule(S0, S0, 0)


def once(S0: int, B: int) -> Schedule:
    """S0 once, then B for ever."""
    _at_least_one(S0=S0, B=B)
    return Schedule(S0, B, None)


def every(m: int, S0: int, B: int, adaptive: bool = False) -> Schedule:
    """An epoch is S0 once, then m times B.

    adaptive: Papini et al. 2018. With ρ the length of a step for a unit of gradient, the small steps of an epoch end
    after the first one with ρ_large/S0 > ρ_small/B, that is when a large batch buys more for each trajectory.
    """
    _at_least_one(m=m, S0=S0, B=B)
    return Schedule(S0, B, m, adaptive)


def within(m: int, S0: int, B: int) -> Schedule:
    """An epoch is S0 once, then m steps on B of those same S0."""
    _at_least_one(m=m, S0=S0, B=B)
    if B > S0:
        raise InputError(f"B is {B} and S0 is {S0}; a batch drawn from the large one cannot be larger.")
    return Schedule(S0, B, m, resample=False)


def _at_least_one(**sizes: int) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} is {value!r}; expected a whole number of at least 1.")

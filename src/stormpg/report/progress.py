"""What a progress bar shows of a run: how much of which budget is used, and the return."""

from typing import NamedTuple, Protocol

from stormpg.engine.budget import LIMIT


class Progress(Protocol):
    """The progress of a training run, see `runs.result.Progress`."""

    @property
    def trajectories(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def mean_return(self) -> float: ...
    @property
    def diverged(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def steps(self) -> int: ...
    @property
    def step_budget(self) -> int | None: ...
    @property
    def runs(self) -> int: ...


class Shown(NamedTuple):
    """The numbers of a progress bar: of the budget that is used up first."""

    done: int
    total: int
    unit: str
    words: str  # the return, and how many runs diverged


def shown(now: Progress) -> Shown:
    """What to show. The steps of several runs are shown per run, as their budget is."""
    diverged = f"  {now.diverged} diverged" if now.diverged else ""
    words = f"return {now.mean_return:.1f}{diverged}"
    steps = now.steps // max(now.runs, 1)
    of_steps = 0.0 if now.step_budget is None else steps / now.step_budget
    of_trajectories = 0.0 if now.budget == LIMIT else now.trajectories / now.budget
    if now.step_budget is not None and of_steps >= of_trajectories:
        return Shown(min(steps, now.step_budget), now.step_budget, "steps", words)
    return Shown(now.trajectories, now.budget, "trajectories", words)

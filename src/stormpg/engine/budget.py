"""The budget of a run: when another iteration fits."""

from typing import Any, NamedTuple

from jax import Array

LIMIT = 2**31 - 1  # of counts, which have 32 bits


class Budget(NamedTuple):
    """What a run may sample. No batch exceeds the trajectories, and none starts after the steps are used up."""

    trajectories: Any = LIMIT
    steps: Any = LIMIT

    def holds(self, state: Any, cost: Any) -> Array:
        """Whether an iteration that samples `cost` trajectories fits. `state`: the `State` of a run, or of many."""
        fits: Array = (state.trajectories + cost <= self.trajectories) & (state.steps < self.steps)
        return fits

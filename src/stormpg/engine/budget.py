"""The budget of a run: when another iteration fits."""

from typing import Any, NamedTuple

from jax import Array

LIMIT = 2**31 - 1  # of counts, which have 32 bits; as a budget it means no limit
TRAJECTORIES = 4000  # the default budget, if no steps are given


class Budget(NamedTuple):
    """What a run may sample. No batch exceeds the trajectories, and none starts after the steps are used up."""

    trajectories: Any = LIMIT
    steps: Any = LIMIT

    def holds(self, state: Any, cost: Any) -> Array:
        """Whether an iteration that samples `cost` trajectories fits. `state`: the `State` of a run, or of many."""
        # The differences do not overflow. Steps are counted up to LIMIT only.
        steps_left = (state.steps < self.steps) | (self.steps >= LIMIT)
        fits: Array = (state.trajectories <= self.trajectories - cost) & steps_left
        return fits

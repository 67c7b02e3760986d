"""The tasks of the comparison."""

from typing import NamedTuple


class Task(NamedTuple):
    """A task with its budget.

    `best`: the return with score 1. It is the task's maximum, or a return that a good policy reaches.
    """

    env: str
    trajectories: int
    best: float
    horizon: int | None = None

    @property
    def outside(self) -> bool:
        """Whether it runs outside JAX, one run after the other, so that it has fewer seeds and configurations."""
        return ":" in self.env


TASKS = (
    Task("cartpole-continuous", 500, 100.0),
    Task("cartpole", 400, 500.0),
    Task("rllab-cartpole", 600, 1000.0),
    Task("pendulum", 400, -150.0),
    Task("rllab-mountain-car", 150, -55.0),
    Task("mountain-car-continuous", 200, 95.0),
    Task("acrobot", 300, -70.0),
    Task("lqr", 500, -2.5),
    Task("gym:InvertedPendulum-v5", 200, 1000.0),
    Task("gym:Reacher-v5", 300, -4.0),
    Task("gym:Swimmer-v5", 80, 60.0, horizon=200),
    Task("gym:LunarLander-v3", 200, 240.0),
)

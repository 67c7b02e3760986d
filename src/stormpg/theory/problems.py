"""Random problems, each determined by its seed."""

from typing import Any

import numpy as np

from stormpg.envs.chain import Tables
from stormpg.envs.lqr import System
from stormpg.errors import InputError
from stormpg.theory.descent import Finite

FAMILY = Finite(horizon=2, gamma=0.9)  # the family of the small problems
COMMON: dict[str, Any] = {"gamma": FAMILY.gamma, "baseline": "none", "optimizer": "sgd"}  # settings that the theory assumes


def problem(seed: int) -> Tables:
    """Return a small problem, with 48 possible trajectories of two steps."""
    return garnet(states=3, actions=2, branching=2, seed=seed)


def garnet(states: int = 6, actions: int = 3, branching: int = 2, seed: int = 0) -> Tables:
    """Return a Garnet process (Archibald, McKinnon and Thomas 1995): each action leads to `branching` random states.

    Their probabilities are the gaps between uniform cuts of [0, 1]. Rewards are uniform on [−1, 1] for each state and action.
    The first state is uniform. There are no terminal states.
    """
    if not 1 <= branching <= states or actions < 1:
        raise InputError(
            f"branching is {branching} with {states} states and {actions} actions; "
            "expected 1 <= branching <= states and at least 1 action."
        )
    random = np.random.default_rng(seed)
    P, R = np.zeros((states, actions, states)), np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            cuts = np.sort(random.uniform(size=branching - 1))
            P[s, a, random.choice(states, branching, replace=False)] = np.diff(np.concatenate(([0.0], cuts, [1.0])))
            R[s, a, :] = random.uniform(-1, 1)
    return Tables(P, R, np.full(states, 1 / states), np.zeros(states, bool))


def random_system(state_dim: int = 3, action_dim: int = 2, radius: float = 0.95, noise: float = 0.1, seed: int = 0) -> System:
    """Return a stable linear system: Gaussian matrices, A scaled to this spectral radius, costs as in `lqr`."""
    if not 0 < radius < 1:
        raise InputError(f"radius is {radius}; expected a spectral radius in (0, 1), so that the system is stable.")
    random = np.random.default_rng(seed)
    A = random.normal(size=(state_dim, state_dim))
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    B = random.normal(size=(state_dim, action_dim)) / np.sqrt(state_dim)
    return System(A, B, 0.1 * np.eye(state_dim), 0.1 * np.eye(action_dim), noise, 1.0)

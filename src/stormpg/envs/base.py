"""The environment protocol.

An environment is two pure functions on a state of scalar fields (a NamedTuple of floats), so that a batch of
environments fuses into element-wise code:

    reset(key) -> (state, observation)
    step(key, state, action) -> (state, observation, reward, terminated)

Actions reach `step` as the policy sampled them; an environment with bounds clips them itself, so that a
log-probability never sees a clipped action. A time limit is not the environment's: `horizon` is only the default
length of a rollout.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array


class Box(NamedTuple):
    """Vectors of floats. The bounds are what the environment clips to; an observation may have none."""

    shape: tuple[int, ...]
    low: float = -float("inf")
    high: float = float("inf")


class Discrete(NamedTuple):
    """The integers 0..n-1."""

    n: int


Space = Box | Discrete


@dataclasses.dataclass(frozen=True)
class Environment:
    """A named pair of pure functions with the spaces they speak in."""

    name: str
    reset: Callable[[Array], tuple[Any, Array]]
    step: Callable[[Array, Any, Array], tuple[Any, Array, Array, Array]]
    observation_space: Space
    action_space: Space
    horizon: int
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)  # what `make` was given


def only(action: Array) -> Array:
    """The single number of a one-dimensional action, given as a scalar or as a vector of length one."""
    return jnp.ravel(action)[0]

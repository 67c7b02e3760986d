"""The environment protocol.

An environment is two pure functions on a state of scalar fields (a NamedTuple of floats), so that XLA can fuse a batch of
environments into element-wise code:

    reset(key) -> (state, observation)
    step(key, state, action) -> (state, observation, reward, terminated)

Actions are passed to `step` as the policy sampled them. An environment with bounds clips them itself, so that
log-probabilities are those of unclipped actions (`policies.censored` is the exception). The environment does not apply a time
limit: `horizon` is only the default length of a rollout.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from stormpg.errors import InputError


class Box(NamedTuple):
    """Vectors of floats. The environment clips actions to the bounds: one number for all dimensions, or one per dimension.

    An observation may have no bounds.
    """

    shape: tuple[int, ...]
    low: float | tuple[float, ...] = -float("inf")
    high: float | tuple[float, ...] = float("inf")


class Discrete(NamedTuple):
    """The integers from 0 to n − 1."""

    n: int


class MultiDiscrete(NamedTuple):
    """Vectors of integers, the i-th from 0 to sizes[i] − 1."""

    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)


Space = Box | Discrete | MultiDiscrete


@dataclasses.dataclass(frozen=True)
class Environment:
    """A named pair of pure functions, with their observation and action spaces."""

    name: str
    reset: Callable[[Array], tuple[Any, Array]]
    step: Callable[[Array, Any, Array], tuple[Any, Array, Array, Array]]
    observation_space: Space
    action_space: Space
    horizon: int
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)  # the arguments of `make`
    # A faster function for a whole batch of trajectories, if there is one: of (policy, params, key, n, horizon).
    batches: Callable[..., Any] | None = None
    # Whether only the clipped action matters. False: rewards also depend on how far an action is beyond its bounds.
    clips: bool = True

    in_jax: ClassVar[bool] = True

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The lower and upper bounds that a continuous action is clipped to."""
        return getattr(self.action_space, "low", None), getattr(self.action_space, "high", None)

    @property
    def observed(self) -> Any:
        """The shape and type of an observation."""
        return jax.eval_shape(self.reset, jax.eval_shape(jax.random.key, 0))[1]

    @property
    def parts(self) -> dict[str, Any]:
        """The parts of the environment that a run's results depend on, by name."""
        fields = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in fields if name not in ("settings", "horizon", "clips")}

    def flatten(self, observation: Any) -> np.ndarray:
        """Return an observation, or a batch of them, as a policy takes it."""
        return np.asarray(observation)

    def unflatten(self, actions: np.ndarray) -> np.ndarray:
        """Return a batch of a policy's actions as the environment takes them."""
        return np.clip(actions, *self.bounds) if isinstance(self.action_space, Box) else actions


OWN = "own"  # the name prefix of environments given as an object, a class or a function, which `make` cannot make

# gymnasium.vector.VectorEnv with flat Box observations and flat Box, Discrete or MultiDiscrete actions. Slots of our own have
# `holds_ended = True`: after the end of its episode a slot keeps its last observation, and has no rewards.
VectorEnv = Any


@dataclasses.dataclass(frozen=True, eq=False)
class OutsideEnvironment:
    """An environment outside JAX: a function that opens slots, and the spaces as a policy sees them.

    A slot plays one episode at a time.
    """

    name: str
    open_slots: Callable[[int], VectorEnv]  # n parallel environments, or fewer if there are not as many
    observation_space: Box
    action_space: Space
    low: np.ndarray | None  # bounds of each action dimension; actions are clipped to them, and nowhere else
    high: np.ndarray | None
    flatten: Callable[[Any], np.ndarray]  # from an observation of the environment, or a batch, to a policy's input
    unflatten: Callable[[np.ndarray], np.ndarray]  # from a batch of a policy's actions to those of the environment
    horizon: int
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # the arguments of `make`
    frames: Callable[..., Any] | None = None  # opens one environment that renders frames
    copies: bool = True  # whether each slot has its own environment; False: the user gave the environments to use

    in_jax: ClassVar[bool] = False
    clips: ClassVar[bool] = True  # see Environment

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The lower and upper bounds that a continuous action is clipped to."""
        return self.low, self.high

    @property
    def observed(self) -> Any:
        """The shape and type of an observation."""
        return jax.ShapeDtypeStruct(self.observation_space.shape, jnp.float32)

    @property
    def parts(self) -> dict[str, Any]:
        """The parts of the environment that a run's results depend on, by name.

        Its code is not included, so that a run can be resumed after a bug in the environment is fixed.
        """
        return {name: getattr(self, name) for name in ("observation_space", "action_space", "low", "high")}


AnyEnvironment = Environment | OutsideEnvironment


def action_bounds(env: AnyEnvironment) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper bound of each dimension of a continuous action."""
    space: Any = env.action_space
    low, high = env.bounds
    size = (math.prod(space.shape),)
    return np.broadcast_to(np.asarray(low, float), size), np.broadcast_to(np.asarray(high, float), size)


def as_key(name: str, settings: Mapping[str, Any]) -> str:
    """Return the settings of another library's environment as JSON, for use as a cache key."""
    try:
        return json.dumps(settings, sort_keys=True)
    except TypeError as error:
        raise InputError(f"{name} accepts settings that are numbers, strings or lists of them: {error}.") from None


def flat(observation: Any) -> Array:
    """Return a tree of arrays as one vector."""
    return ravel_pytree(observation)[0].astype(jnp.float32)


def flat_size(shapes: Any) -> int:
    """Return the length of the vector that `flat` returns for arrays of these shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def only(action: Array) -> Array:
    """Return the single number of a one-dimensional action, which is a scalar or a vector of length one."""
    return jnp.ravel(action)[0]

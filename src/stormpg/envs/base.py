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
    """Vectors of floats. The bounds are what the environment clips to, one for all numbers or one for each; an observation
    may have none."""

    shape: tuple[int, ...]
    low: float | tuple[float, ...] = -float("inf")
    high: float | tuple[float, ...] = float("inf")


class Discrete(NamedTuple):
    """The integers 0..n-1."""

    n: int


class MultiDiscrete(NamedTuple):
    """Vectors of integers, the i-th in 0..sizes[i]-1."""

    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)


Space = Box | Discrete | MultiDiscrete


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
    # One that knows a faster way to whole batches of trajectories: of (policy, params, key, n, horizon).
    batches: Callable[..., Any] | None = None

    in_jax: ClassVar[bool] = True

    @property
    def bounds(self) -> tuple[Any, Any]:
        """What a continuous action is clipped to, from below and from above."""
        return getattr(self.action_space, "low", None), getattr(self.action_space, "high", None)

    @property
    def observed(self) -> Any:
        """The shape and type of an observation."""
        return jax.eval_shape(self.reset, jax.eval_shape(jax.random.key, 0))[1]

    @property
    def parts(self) -> dict[str, Any]:
        """What a run's numbers depend on, by name."""
        fields = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in fields if name not in ("settings", "horizon")}

    def flatten(self, observation: Any) -> np.ndarray:
        """An observation, or a batch, as a policy takes it."""
        return np.asarray(observation)

    def unflatten(self, actions: np.ndarray) -> np.ndarray:
        """A batch of a policy's actions as the environment takes them."""
        return np.clip(actions, *self.bounds) if isinstance(self.action_space, Box) else actions


OWN = "own"  # the prefix of the name of what a user gave as an object, a class or a function: no name makes it again

VectorEnv = Any  # gymnasium.vector.VectorEnv, of flat Box observations and of flat Box, Discrete or MultiDiscrete actions


@dataclasses.dataclass(frozen=True, eq=False)
class OutsideEnvironment:
    """An environment that lives outside JAX: a named way to open slots, with the spaces as a policy sees them."""

    name: str
    open_slots: Callable[[int], VectorEnv]  # n environments side by side, or as many as there are
    observation_space: Box
    action_space: Space
    low: np.ndarray | None  # bounds of each action dimension: actions are clipped here, and nowhere else
    high: np.ndarray | None
    flatten: Callable[[Any], np.ndarray]  # an observation as the environment gives it, or a batch, as a policy takes it
    unflatten: Callable[[np.ndarray], np.ndarray]  # a batch of a policy's actions as the environment takes them
    horizon: int
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what `make` was given
    frames: Callable[..., Any] | None = None  # opens one environment that draws itself
    copies: bool = True  # whether slots are environments of their own; False: all that there is was given by the user

    in_jax: ClassVar[bool] = False

    @property
    def bounds(self) -> tuple[Any, Any]:
        """What a continuous action is clipped to, from below and from above."""
        return self.low, self.high

    @property
    def observed(self) -> Any:
        """The shape and type of an observation."""
        return jax.ShapeDtypeStruct(self.observation_space.shape, jnp.float32)

    @property
    def parts(self) -> dict[str, Any]:
        """What a run's numbers depend on, by name: not its code, so that one that broke can be mended, and the run resumed."""
        return {name: getattr(self, name) for name in ("observation_space", "action_space", "low", "high")}


AnyEnvironment = Environment | OutsideEnvironment


def action_bounds(env: AnyEnvironment) -> tuple[np.ndarray, np.ndarray]:
    """What each dimension of a continuous action is clipped to, from below and from above."""
    space: Any = env.action_space
    low, high = env.bounds
    size = (math.prod(space.shape),)
    return np.broadcast_to(np.asarray(low, float), size), np.broadcast_to(np.asarray(high, float), size)


def as_key(name: str, settings: Mapping[str, Any]) -> str:
    """Settings of another library's environment as JSON, which can be the key of a cache."""
    try:
        return json.dumps(settings, sort_keys=True)
    except TypeError as error:
        raise InputError(f"{name} takes settings that are numbers, words or lists of them: {error}.") from None


def flat(observation: Any) -> Array:
    """A tree of arrays as one vector."""
    return ravel_pytree(observation)[0].astype(jnp.float32)


def flat_size(shapes: Any) -> int:
    """The length of that vector."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def only(action: Array) -> Array:
    """The single number of a one-dimensional action, given as a scalar or as a vector of length one."""
    return jnp.ravel(action)[0]

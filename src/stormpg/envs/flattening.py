"""Flattening of Gymnasium spaces. Observations become vectors; actions become a vector of floats, an integer or several."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from stormpg.envs.base import Box, Discrete, MultiDiscrete, Space
from stormpg.errors import InputError

BYTES = (0.0, 255.0)  # the bounds of pixel values


def flat_observations(space: spaces.Space[Any]) -> spaces.Box:
    """Return the space of flattened observations. Raise InputError for a part that cannot be flattened, with its key."""
    for path, part in _leaves(space):
        if not part.is_np_flattenable:
            where = f" of the key {path}" if path else ""
            raise InputError(
                f"observations{where} in {part} cannot be flattened; expected a Box, Discrete, MultiDiscrete, MultiBinary, "
                "Dict or Tuple space: remove this part with a wrapper."
            )
    return spaces.Box(-np.inf, np.inf, (spaces.flatdim(space),), np.float32)


def _leaves(space: spaces.Space[Any], path: str = "") -> Iterator[tuple[str, spaces.Space[Any]]]:
    """Yield the elementary parts of a space, with their paths of keys."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield path, space
        return
    keyed: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    for key, part in keyed:
        yield from _leaves(part, f"{path}[{key!r}]")


def seen_space(space: spaces.Space[Any]) -> Box:
    """Return the observation space as a policy sees it. Only the bounds of bytes are kept, which identify pictures."""
    picture = isinstance(space, spaces.Box) and space.dtype == np.uint8
    return Box(flat_observations(space).shape, *(BYTES if picture else ()))


def flat_actions(space: spaces.Space[Any]) -> spaces.Box | spaces.Discrete | spaces.MultiDiscrete:
    """Return the space of flattened actions: one vector or one integer. Integers start at 0."""
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec.reshape(-1))
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiDiscrete(np.full(int(np.prod(space.shape)), 2))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (bound.reshape(-1).astype(np.float32) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=np.float32)
    raise InputError(
        f"actions in {space} are not supported; expected a Box of floats, Discrete, MultiDiscrete or MultiBinary space."
    )


def taken_space(space: spaces.Space[Any]) -> Space:
    """Return the action space as a policy sees it."""
    flat = flat_actions(space)
    if isinstance(flat, spaces.Discrete):
        return Discrete(int(flat.n))
    return MultiDiscrete(tuple(map(int, flat.nvec))) if isinstance(flat, spaces.MultiDiscrete) else Box(flat.shape)


def flatten(space: spaces.Space[Any], observation: Any) -> np.ndarray:
    """Return an observation, or a batch (an array with one more axis, or a list of observations), as vectors."""
    if isinstance(space, spaces.Box):
        values = np.asarray(observation, np.float32)
        if values.shape == space.shape:
            return values.reshape(-1)
        return values.reshape(len(values), -1) if values.shape[1:] == space.shape else values
    if isinstance(observation, list) or (isinstance(observation, np.ndarray) and observation.ndim == 1):
        return np.stack([flatten(space, one) for one in observation])
    return flatten_one(space, observation)


def flatten_one(space: spaces.Space[Any], observation: Any) -> np.ndarray:
    """Return one observation as a vector. This runs at every step."""
    return np.asarray(spaces.flatten(space, observation), np.float32)


def unflatten(space: Any, actions: np.ndarray) -> np.ndarray:
    """Return a batch of a policy's actions with the shape, the bounds and the first integer of the environment's space."""
    if isinstance(space, spaces.Discrete):
        return actions + int(space.start)
    shaped = actions.reshape(-1, *space.shape)
    if isinstance(space, spaces.Box):
        clipped: np.ndarray = np.clip(shaped, space.low, space.high).astype(space.dtype)
        return clipped
    return (shaped + getattr(space, "start", 0)).astype(space.dtype)


def shaped(space: Any, actions: np.ndarray) -> np.ndarray:
    """Return a batch of actions, already within their bounds, as the environment takes them. This runs at every step."""
    actions, first = actions.reshape(-1, *space.shape), getattr(space, "start", 0)
    if isinstance(first, np.ndarray) or first:
        actions = actions + first
    return actions.astype(space.dtype, copy=False)


def unflatten_one(space: Any, action: Any) -> Any:
    """Return one action, already within its bounds, as the environment takes it."""
    return shaped(space, np.asarray(action)[None])[0]

"""`gymnax:ID`: the environments of gymnax, which are JAX and so become part of the compiled program.

A time limit is no termination: gymnax tells them apart since 1.0, and its limit is the horizon here. Nothing resets itself.
"""

import dataclasses
import functools
import inspect
import json
import math
from collections.abc import Callable
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces
from jax import Array

from stormpg.envs.base import Box, Discrete, Environment, Space, as_key, flat, flat_size
from stormpg.errors import InputError, choose, nearest

SMALL = 1000  # the most discrete observations that stay numbers, for a policy that is a table


def make(name: str, **settings: Any) -> Environment:
    """`make("gymnax:Pendulum-v1", g=9.81)`. Settings are gymnax's parameters of an environment, or of its constructor."""
    return dataclasses.replace(_environment(name, as_key(f"gymnax:{name}", settings)), settings=settings)


@functools.cache
def _environment(name: str, text: str) -> Environment:
    """One environment for each name and settings (as JSON), so that what was compiled for it is found again."""
    env, params = _build(choose("gymnax environment", name, gymnax.registered_envs), json.loads(text))
    taken, act = _actions(env.action_space(params))
    shapes = jax.eval_shape(lambda key: env.reset_env(key, params)[0], jax.random.key(0))
    seen, observe = _observations(env.observation_space(params), shapes, isinstance(taken, Discrete))

    def reset(key: Array) -> tuple[Any, Array]:
        observation, state = env.reset_env(key, params)
        return state, observe(observation)

    def step(key: Array, state: Any, action: Array) -> tuple[Any, Array, Array, Array]:
        observation, state, reward, terminated, _ = env.step_env(key, state, act(action), params)
        return state, observe(observation), jnp.asarray(reward, jnp.float32), jnp.asarray(terminated, bool)

    return Environment(f"gymnax:{name}", reset, step, seen, taken, int(params.max_steps_in_episode))


def _build(name: str, settings: dict[str, Any]) -> tuple[Any, Any]:
    """gymnax's environment and its parameters; settings that are no parameters go to the constructor."""
    env, params = _construct(name)
    if not hasattr(env, "is_truncated"):
        raise InputError("this gymnax is older than 1.0 and takes a time limit for an end: pip install 'stormpg[gymnax]'.")
    fields = {field.name for field in dataclasses.fields(params)}
    known = fields | set(inspect.signature(type(env)).parameters) - {"args", "kwargs"}
    for setting in settings:
        if setting not in known:
            raise InputError(f"gymnax:{name} has no setting {setting!r}: {nearest(setting, known)}.")
    constructed = {k: v for k, v in settings.items() if k not in fields}
    if constructed:
        env, params = _construct(name, **constructed)
    return env, params.replace(**{k: v for k, v in settings.items() if k in fields})


def _construct(name: str, **settings: Any) -> tuple[Any, Any]:
    try:
        return gymnax.make(name, **settings)
    except (OSError, TypeError, ValueError) as error:  # OSError: it loads its data from the network
        raise InputError(f"gymnax cannot make {name}: {str(error).rstrip('.')}.") from None


def _actions(space: Any) -> tuple[Space, Callable[[Array], Array]]:
    """The actions as a policy sees them, a flat box or the integers, and what makes gymnax's of them."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n)), lambda action: jnp.asarray(action, space.dtype)
    if not isinstance(space, spaces.Box):
        raise InputError(f"actions in {space} are not supported; expected a Box or a Discrete space.")
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (space.low, space.high))
    box = Box((math.prod(space.shape),), *(tuple(map(float, bound.ravel())) for bound in (low, high)))
    return box, lambda action: jnp.clip(jnp.reshape(action, space.shape), low, high)


def _observations(space: Any, shapes: Any, table: bool) -> tuple[Space, Callable[[Any], Array]]:
    """The observations as a policy sees them: small integers where it can be a `table`, otherwise one vector."""
    if isinstance(space, spaces.Discrete):
        if table and space.n <= SMALL:
            return Discrete(int(space.n)), lambda observation: jnp.asarray(observation, jnp.int32)
        return Box((int(space.n),)), lambda observation: jax.nn.one_hot(observation, space.n, dtype=jnp.float32)
    return Box((flat_size(shapes),)), flat

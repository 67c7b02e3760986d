"""`gymnax:ID`: the environments of gymnax. They are written in JAX and become part of the compiled program.

A time limit is not a termination: gymnax distinguishes them since version 1.0, and its time limit is the horizon here. There is
no automatic reset.
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

SMALL = 1000  # with at most this many values, discrete observations stay integers, for a tabular policy


def make(name: str, **settings: Any) -> Environment:
    """Return the environment for `make("gymnax:Pendulum-v1", g=9.81)`.

    Settings are gymnax's parameters of the environment, or arguments of its constructor.
    """
    return dataclasses.replace(_environment(name, as_key(f"gymnax:{name}", settings)), settings=settings)


@functools.cache
def _environment(name: str, text: str) -> Environment:
    """Return the same environment for the same name and settings (as JSON), so that compiled programs are reused."""
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
    """Return gymnax's environment and its parameters. Settings that are not parameters are passed to the constructor."""
    env, params = _construct(name)
    if not hasattr(env, "is_truncated"):
        raise InputError("gymnax is older than 1.0, which treats a time limit as a termination: pip install 'stormpg[gymnax]'.")
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
    """Return gymnax's environment and its default parameters."""
    try:
        env, params = gymnax.make(name, **settings)
    except (OSError, TypeError, ValueError) as error:  # OSError: some environments download data
        raise InputError(f"gymnax cannot make {name}: {str(error).rstrip('.')}.") from None
    return env, params


def _actions(space: Any) -> tuple[Space, Callable[[Array], Array]]:
    """Return the action space as a policy sees it, a flat box or integers, and the conversion to gymnax's actions."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n)), lambda action: jnp.asarray(action, space.dtype)
    if not isinstance(space, spaces.Box):
        raise InputError(f"actions in {space} are not supported; expected a Box or a Discrete space.")
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (space.low, space.high))
    box = Box((math.prod(space.shape),), *(tuple(map(float, bound.ravel())) for bound in (low, high)))
    return box, lambda action: jnp.clip(jnp.reshape(action, space.shape), low, high)


def _observations(space: Any, shapes: Any, table: bool) -> tuple[Space, Callable[[Any], Array]]:
    """Return the observation space as a policy sees it, and the conversion from gymnax's observations.

    Observations are small integers if the policy can be a `table`, otherwise a vector.
    """
    if isinstance(space, spaces.Discrete):
        if table and space.n <= SMALL:
            return Discrete(int(space.n)), lambda observation: jnp.asarray(observation, jnp.int32)
        return Box((int(space.n),)), lambda observation: jax.nn.one_hot(observation, space.n, dtype=jnp.float32)
    return Box((flat_size(shapes),)), flat

"""`brax:NAME`: the robots of Brax. They are written in JAX and become part of the compiled program.

They are used without Brax's wrappers: there is no automatic reset, and Brax's default time limit is only the horizon.
"""

import dataclasses
import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
from brax import envs
from jax import Array

from stormpg.envs.base import Box, Environment, as_key, flat, flat_size
from stormpg.errors import InputError, choose

HORIZON = 1000  # Brax's default `episode_length`


def make(name: str, **settings: Any) -> Environment:
    """Return the environment for `make("brax:ant", backend="spring")`. Settings are passed to the constructor in Brax."""
    return dataclasses.replace(_environment(name, as_key(f"brax:{name}", settings)), settings=settings)


@functools.cache
def _environment(name: str, text: str) -> Environment:
    """Return the same environment for the same name and settings (as JSON), so that compiled programs are reused."""
    constructor = envs._envs[choose("Brax environment", name, envs._envs)]  # Brax has no public list of its names
    try:
        env = constructor(**json.loads(text))
        first = lambda key: env.step(env.reset(key), jnp.zeros(env.action_size))
        shapes = jax.eval_shape(first, jax.random.key(0)).obs  # fails if a part of Brax does not work with this version of JAX
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"Brax cannot make {name}: {str(error).rstrip('.')}.") from None

    def reset(key: Array) -> tuple[Any, Array]:
        state = env.reset(key)
        return state, flat(state.obs)

    def step(key: Array, state: Any, action: Array) -> tuple[Any, Array, Array, Array]:
        state = env.step(state, jnp.clip(action, -1.0, 1.0))  # Brax scales actions in [-1, 1] to each actuator
        return state, flat(state.obs), jnp.asarray(state.reward, jnp.float32), state.done > 0

    return Environment(f"brax:{name}", reset, step, Box((flat_size(shapes),)), Box((env.action_size,), -1.0, 1.0), HORIZON)

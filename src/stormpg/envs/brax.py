"""`brax:NAME`: the robots of Brax, which are JAX and so become part of the compiled program.

They are taken without Brax's wrappers: nothing resets itself, and the usual time limit is only the horizon.
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

HORIZON = 1000  # Brax's own `episode_length`


def make(name: str, **settings: Any) -> Environment:
    """`make("brax:ant", backend="spring")`. Settings go to the constructor of Brax's environment."""
    return dataclasses.replace(_environment(name, as_key(f"brax:{name}", settings)), settings=settings)


@functools.cache
def _environment(name: str, text: str) -> Environment:
    """One environment for each name and settings (as JSON), so that what was compiled for it is found again."""
    constructor = envs._envs[choose("Brax environment", name, envs._envs)]  # Brax has no other list of its names
    try:
        env = constructor(**json.loads(text))
        first = lambda key: env.step(env.reset(key), jnp.zeros(env.action_size))
        shapes = jax.eval_shape(first, jax.random.key(0)).obs  # parts of Brax are too old for a new JAX: told here
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"Brax cannot make {name}: {str(error).rstrip('.')}.") from None

    def reset(key: Array) -> tuple[Any, Array]:
        state = env.reset(key)
        return state, flat(state.obs)

    def step(key: Array, state: Any, action: Array) -> tuple[Any, Array, Array, Array]:
        state = env.step(state, jnp.clip(action, -1.0, 1.0))  # Brax's actions, which it scales to each actuator
        return state, flat(state.obs), jnp.asarray(state.reward, jnp.float32), state.done > 0

    return Environment(f"brax:{name}", reset, step, Box((flat_size(shapes),)), Box((env.action_size,), -1.0, 1.0), HORIZON)

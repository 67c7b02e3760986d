"""Gymnasium's MountainCarContinuous-v0: a reward of 100 at the goal, and a cost of 0.1 a² per step.

As in Gymnasium, the force is computed from the clipped action and the cost from the unclipped one. Because of the sparse
reward, most runs of most algorithms learn to do nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import Box, Environment, only

POWER, GRAVITY = 0.0015, 0.0025
LEFT_WALL, RIGHT_WALL, MAX_SPEED = -1.2, 0.6, 0.07
GOAL, GOAL_REWARD, ACTION_COST = 0.45, 100.0, 0.1


class State(NamedTuple):
    x: Array
    v: Array


def observe(state: State) -> Array:
    return jnp.stack(state)


def reset(key: Array) -> tuple[State, Array]:
    x = jax.random.uniform(key, minval=-0.6, maxval=-0.4)
    state = State(x, jnp.zeros_like(x))
    return state, observe(state)


def step(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
    push = only(action)
    v = state.v + POWER * jnp.clip(push, -1.0, 1.0) - GRAVITY * jnp.cos(3 * state.x)
    v = jnp.clip(v, -MAX_SPEED, MAX_SPEED)
    x = jnp.clip(state.x + v, LEFT_WALL, RIGHT_WALL)
    v = jnp.where((x == LEFT_WALL) & (v < 0), 0.0, v)  # the left wall stops the car
    terminated = (x >= GOAL) & (v >= 0)
    reward = jnp.where(terminated, GOAL_REWARD, 0.0) - ACTION_COST * push**2
    state = State(x, v)
    return state, observe(state), reward, terminated


def mountain_car_continuous() -> Environment:
    return Environment("mountain-car-continuous", reset, step, Box((2,)), Box((1,), -1.0, 1.0), horizon=999, clips=False)

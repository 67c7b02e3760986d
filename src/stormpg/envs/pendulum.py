"""Gymnasium's Pendulum-v1: swing the pendulum up and hold it. The torque is clipped to ±2, and no episode ends early."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import Box, Environment, only

GRAVITY, MASS, LENGTH, DT = 10.0, 1.0, 1.0, 0.05
MAX_TORQUE, MAX_SPEED = 2.0, 8.0


class State(NamedTuple):
    angle: Array
    omega: Array


def observe(state: State) -> Array:
    return jnp.stack((jnp.cos(state.angle), jnp.sin(state.angle), state.omega))


def reset(key: Array) -> tuple[State, Array]:
    bounds = jnp.asarray((jnp.pi, 1.0))
    state = State(*jax.random.uniform(key, (2,), minval=-bounds, maxval=bounds))
    return state, observe(state)


def step(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
    angle, omega = state
    torque = jnp.clip(only(action), -MAX_TORQUE, MAX_TORQUE)
    wrapped = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
    cost = wrapped**2 + 0.1 * omega**2 + 0.001 * torque**2
    acceleration = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(angle) + 3 / (MASS * LENGTH**2) * torque
    omega = jnp.clip(omega + DT * acceleration, -MAX_SPEED, MAX_SPEED)
    state = State(angle + DT * omega, omega)
    return state, observe(state), -cost, jnp.zeros_like(angle, dtype=bool)


def pendulum() -> Environment:
    return Environment("pendulum", reset, step, Box((3,)), Box((1,), -MAX_TORQUE, MAX_TORQUE), horizon=200)

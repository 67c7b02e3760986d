"""Cart-Pole with Gymnasium's CartPole-v1 physics. The reward is 1 per step.

`cartpole` takes the actions 0 (push left) and 1 (push right). `cartpole-continuous`, the paper's task, takes a force in
[-1, 1] times 10 N, and its horizon is 100 (Table 2).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import Box, Discrete, Environment, only

GRAVITY, MASS_CART, MASS_POLE, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5
FORCE, DT = 10.0, 0.02
MASS, POLE_MOMENT = MASS_CART + MASS_POLE, MASS_POLE * HALF_LENGTH
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360


class State(NamedTuple):
    x: Array
    v: Array
    angle: Array
    omega: Array


def observe(state: State) -> Array:
    return jnp.stack(state)


def reset(key: Array) -> tuple[State, Array]:
    state = State(*jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05))
    return state, observe(state)


def push(state: State, force: Array) -> tuple[State, Array, Array, Array]:
    """Apply a horizontal force to the cart, in newtons, for one explicit Euler step."""
    x, v, angle, omega = state
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    thrust = (force + POLE_MOMENT * omega**2 * sin) / MASS
    alpha = (GRAVITY * sin - cos * thrust) / (HALF_LENGTH * (4 / 3 - MASS_POLE * cos**2 / MASS))
    acceleration = thrust - POLE_MOMENT * alpha * cos / MASS
    state = State(x + DT * v, v + DT * acceleration, angle + DT * omega, omega + DT * alpha)
    fallen = (jnp.abs(state.x) > X_LIMIT) | (jnp.abs(state.angle) > ANGLE_LIMIT)
    return state, observe(state), jnp.ones_like(x), fallen


def step_discrete(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
    return push(state, jnp.where(only(action) == 1, FORCE, -FORCE))


def step_continuous(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
    return push(state, FORCE * jnp.clip(only(action), -1.0, 1.0))


def cartpole() -> Environment:
    return Environment("cartpole", reset, step_discrete, Box((4,)), Discrete(2), horizon=500)


def cartpole_continuous() -> Environment:
    return Environment("cartpole-continuous", reset, step_continuous, Box((4,)), Box((1,), -1.0, 1.0), horizon=100)

"""Gymnasium's Acrobot-v1 with the equations of Sutton and Barto's book and one Runge-Kutta step of 0.2 s.

The reward is −1 per step until the tip is high enough.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import Box, Discrete, Environment, only

DT, GRAVITY = 0.2, 9.8
LENGTH, CENTRE, MASS, INERTIA = 1.0, 0.5, 1.0, 1.0  # of each link
MAX_SPEED_1, MAX_SPEED_2 = 4 * jnp.pi, 9 * jnp.pi


class State(NamedTuple):
    angle1: Array
    angle2: Array
    omega1: Array
    omega2: Array


def observe(state: State) -> Array:
    a, b, omega1, omega2 = state
    return jnp.stack((jnp.cos(a), jnp.sin(a), jnp.cos(b), jnp.sin(b), omega1, omega2))


def reset(key: Array) -> tuple[State, Array]:
    state = State(*jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1))
    return state, observe(state)


def derivative(state: State, torque: Array) -> State:
    """Return the time derivative of the state, by Sutton and Barto's equations of motion."""
    a, b, omega1, omega2 = state
    d1 = MASS * CENTRE**2 + MASS * (LENGTH**2 + CENTRE**2 + 2 * LENGTH * CENTRE * jnp.cos(b)) + 2 * INERTIA
    d2 = MASS * (CENTRE**2 + LENGTH * CENTRE * jnp.cos(b)) + INERTIA
    phi2 = MASS * CENTRE * GRAVITY * jnp.cos(a + b - jnp.pi / 2)
    coupling = MASS * LENGTH * CENTRE * jnp.sin(b)
    phi1 = -coupling * omega2**2 - 2 * coupling * omega2 * omega1
    phi1 = phi1 + (MASS * CENTRE + MASS * LENGTH) * GRAVITY * jnp.cos(a - jnp.pi / 2) + phi2
    acceleration2 = torque + d2 / d1 * phi1 - coupling * omega1**2 - phi2
    acceleration2 = acceleration2 / (MASS * CENTRE**2 + INERTIA - d2**2 / d1)
    return State(omega1, omega2, -(d2 * acceleration2 + phi1) / d1, acceleration2)


def runge_kutta(state: State, torque: Array) -> State:
    """Return the state after one classical Runge-Kutta step."""

    def ahead(slope: State, dt: float) -> State:
        return State(*(x + dt * dx for x, dx in zip(state, slope, strict=True)))

    k1 = derivative(state, torque)
    k2 = derivative(ahead(k1, DT / 2), torque)
    k3 = derivative(ahead(k2, DT / 2), torque)
    k4 = derivative(ahead(k3, DT), torque)
    return ahead(State(*(a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True))), DT / 6)


def wrap(angle: Array) -> Array:
    """Wrap an angle into [−π, π]. An angle inside this interval is returned unchanged, bit for bit."""
    turns = jnp.ceil((jnp.abs(angle) - jnp.pi) / (2 * jnp.pi))
    return angle - jnp.where(jnp.abs(angle) > jnp.pi, jnp.sign(angle) * turns * 2 * jnp.pi, 0.0)


def step(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
    torque = only(action).astype(state.angle1.dtype) - 1.0
    a, b, omega1, omega2 = runge_kutta(state, torque)
    omega1, omega2 = jnp.clip(omega1, -MAX_SPEED_1, MAX_SPEED_1), jnp.clip(omega2, -MAX_SPEED_2, MAX_SPEED_2)
    state = State(wrap(a), wrap(b), omega1, omega2)
    terminated = -jnp.cos(state.angle1) - jnp.cos(state.angle1 + state.angle2) > 1.0
    return state, observe(state), jnp.where(terminated, 0.0, -1.0), terminated


def acrobot() -> Environment:
    return Environment("acrobot", reset, step, Box((6,)), Discrete(3), horizon=500)

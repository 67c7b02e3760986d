"""rllab's Cart-Pole as a closed-form step. Earlier papers ran it on the Box2D engine.

Box2D connects the pole to the cart by a joint. It solves the joint once for velocities and then up to three times for
positions. With only two bodies and one joint, this solver is a few lines of algebra, so the step below is the same as Box2D's
and not a model of it. The reward is 10 − (1 − cos θ) − 1e-5 F², and 0 on the step that ends the episode.

A reset in rllab moves the cart but not the pole: the pole's foot stays at x = 0, and the joint then pulls it to the cart.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import Box, Environment, only

DT, GRAVITY, FORCE = 0.05, 10.0, 10.0
MASS_CART, MASS_POLE = 1.0, 0.1
LENGTH, WIDTH = 1.0, 0.1
HALF_LENGTH = LENGTH / 2  # from the joint to the pole's centre of mass
INERTIA = MASS_POLE * (LENGTH**2 + WIDTH**2) / 12
X_LIMIT, ANGLE_LIMIT = 2.4, 0.2
RESET_BOUNDS = (0.12, 0.2, 0.01, 0.2)  # of x, ẋ, θ, θ̇
POSITION_ITERATIONS, LINEAR_SLOP = 3, 0.005  # as in Box2D


class State(NamedTuple):
    x: Array  # the cart
    v: Array
    pole_x: Array  # the pole's centre of mass
    pole_y: Array
    pole_vx: Array
    pole_vy: Array
    angle: Array  # counter-clockwise
    omega: Array


def observe(state: State) -> Array:
    return jnp.stack((state.x, state.v, state.angle, state.omega))


def reset(key: Array) -> tuple[State, Array]:
    bounds = jnp.asarray(RESET_BOUNDS)
    x, v, angle, omega = jax.random.uniform(key, (4,), minval=-bounds, maxval=bounds)
    zero = jnp.zeros_like(x)
    state = State(x, v, -HALF_LENGTH * jnp.sin(angle), HALF_LENGTH * jnp.cos(angle), zero, zero, angle, omega)
    return state, observe(state)


def joint_impulse(angle: Array, ux: Array, uy: Array) -> tuple[Array, Array, Array, Array]:
    """Return the lever arm from the pole's centre to the joint, and the impulse −K⁻¹u that removes the error u there."""
    rx, ry = HALF_LENGTH * jnp.sin(angle), -HALF_LENGTH * jnp.cos(angle)
    k11 = 1 / MASS_CART + 1 / MASS_POLE + ry * ry / INERTIA
    k12 = -rx * ry / INERTIA
    k22 = 1 / MASS_POLE + rx * rx / INERTIA
    determinant = k11 * k22 - k12 * k12
    return rx, ry, -(k22 * ux - k12 * uy) / determinant, -(k11 * uy - k12 * ux) / determinant


def step(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
    x, v, pole_x, pole_y, pole_vx, pole_vy, angle, omega = state
    force = FORCE * jnp.clip(only(action), -1.0, 1.0)
    v = v + DT * force / MASS_CART
    pole_vy = pole_vy - DT * GRAVITY

    # One velocity iteration solves the joint exactly: the pole's foot and the cart then have the same velocity.
    rx, ry = HALF_LENGTH * jnp.sin(angle), -HALF_LENGTH * jnp.cos(angle)
    rx, ry, px, py = joint_impulse(angle, pole_vx - omega * ry - v, pole_vy + omega * rx)
    pole_vx, pole_vy = pole_vx + px / MASS_POLE, pole_vy + py / MASS_POLE
    omega = omega + (rx * py - ry * px) / INERTIA
    v = v - px / MASS_CART

    x, pole_x, pole_y, angle = x + DT * v, pole_x + DT * pole_vx, pole_y + DT * pole_vy, angle + DT * omega

    # Box2D stops when the error that it has just corrected was within the slop.
    open_joint = jnp.ones_like(x, dtype=bool)
    for _ in range(POSITION_ITERATIONS):
        ux, uy = pole_x + HALF_LENGTH * jnp.sin(angle) - x, pole_y - HALF_LENGTH * jnp.cos(angle)
        rx, ry, px, py = joint_impulse(angle, ux, uy)
        px, py = jnp.where(open_joint, px, 0.0), jnp.where(open_joint, py, 0.0)
        pole_x, pole_y = pole_x + px / MASS_POLE, pole_y + py / MASS_POLE
        angle = angle + (rx * py - ry * px) / INERTIA
        x = x - px / MASS_CART
        open_joint = open_joint & (ux * ux + uy * uy > LINEAR_SLOP**2)

    state = State(x, v, pole_x, pole_y, pole_vx, pole_vy, angle, omega)
    terminated = (jnp.abs(x) > X_LIMIT) | (jnp.abs(angle) > ANGLE_LIMIT)
    reward = jnp.where(terminated, 0.0, 10.0 - (1.0 - jnp.cos(angle)) - 1e-5 * force * force)
    return state, observe(state), reward, terminated


def rllab_cartpole() -> Environment:
    return Environment("rllab-cartpole", reset, step, Box((4,)), Box((1,), -1.0, 1.0), horizon=100)

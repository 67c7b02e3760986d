"""A linear system with Gaussian noise and quadratic costs, in any dimension.

    s' = A s + B a + noise · ε,  ε ~ N(0, I);    reward = −(sᵀ Q s + aᵀ R a);    s_0 ~ N(0, start² I)

With a linear-Gaussian policy, the objective and its gradient have closed forms, which makes it useful for tests.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs.base import Box, Environment
from stormpg.errors import InputError
from stormpg.pytrees import as_float


class State(NamedTuple):
    s: Array  # [state_dim]


class System(NamedTuple):
    """The matrices of the problem."""

    A: np.ndarray
    B: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    noise: float
    start: float


def system(state_dim: int = 2, action_dim: int = 1, noise: float = 0.1, start: float = 1.0) -> System:
    """Return the default system: a chain of integrators, each driven by the next one, and the last ones by the action."""
    if not 1 <= action_dim <= state_dim:
        raise InputError(
            f"action_dim is {action_dim} and state_dim is {state_dim}; expected 1 <= action_dim <= state_dim for lqr."
        )
    A = 0.95 * np.eye(state_dim) + 0.1 * np.eye(state_dim, k=1)
    B = 0.3 * np.eye(state_dim, action_dim, k=action_dim - state_dim)
    return System(A, B, 0.1 * np.eye(state_dim), 0.1 * np.eye(action_dim), noise, start)


product = functools.partial(jnp.matmul, precision="highest")  # a GPU would round the factors


def from_system(problem: System, horizon: int = 20, name: str = "lqr") -> Environment:
    """Return the environment of a linear-Gaussian system."""
    A, B, Q, R, noise, start = problem
    state_dim, action_dim = B.shape

    def reset(key: Array) -> tuple[State, Array]:
        s = start * jax.random.normal(key, (state_dim,))
        return State(s), s

    def step(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
        s, a = state.s, jnp.reshape(action, (action_dim,))
        reward = -(product(product(s, as_float(Q)), s) + product(product(a, as_float(R)), a))
        s = product(as_float(A), s) + product(as_float(B), a) + noise * jax.random.normal(key, (state_dim,))
        return State(s), s, reward, jnp.zeros((), dtype=bool)

    return Environment(name, reset, step, Box((state_dim,)), Box((action_dim,)), horizon)


@functools.cache  # equal settings give the same functions and share a compiled program
def lqr(state_dim: int = 2, action_dim: int = 1, noise: float = 0.1, start: float = 1.0) -> Environment:
    return from_system(system(state_dim, action_dim, noise, start))

"""Tabular problems given as arrays, and `chain`, which is small enough to enumerate every trajectory.

The chain has the states 0 to n − 1 in a row, and the last one is terminal. Action 1 moves right and action 0 left, each with
probability 1 − slip; otherwise the state does not change. Each action has a small cost, and reaching the end gives 1.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs.base import Discrete, Environment
from stormpg.errors import InputError
from stormpg.pytrees import as_float


class State(NamedTuple):
    s: Array  # the index of the state


class Tables(NamedTuple):
    """A finite decision process with S states and A actions. An episode ends when it enters a terminal state."""

    P: np.ndarray  # [S, A, S] probabilities of the next state
    R: np.ndarray  # [S, A, S] rewards of the transitions
    rho: np.ndarray  # [S] probabilities of the first state
    terminal: np.ndarray  # [S] whether a state is terminal


def chain_tables(states: int = 3, slip: float = 0.2) -> Tables:
    """Return the arrays of the chain."""
    if states < 2:
        raise InputError(f"states is {states}; expected at least 2 for chain.")
    P, R = np.zeros((states, 2, states)), np.zeros((states, 2, states))
    for s in range(states):
        for a, target in ((0, max(s - 1, 0)), (1, min(s + 1, states - 1))):
            P[s, a, target] += 1 - slip
            P[s, a, s] += slip
            R[s, a, :] = -0.1 * (a + 1)
    R[:, :, -1] += 1.0
    rho = np.append(np.full(states - 1, 1 / (states - 1)), 0.0)
    return Tables(P, R, rho, np.arange(states) == states - 1)


def from_tables(tables: Tables, horizon: int, name: str = "tabular", noise: Array | float = 0.0) -> Environment:
    """Return the environment of a finite decision process. `noise`: standard deviation of Gaussian noise on every reward."""
    states, actions = tables.P.shape[:2]

    def reset(key: Array) -> tuple[State, Array]:
        s = drawn(key, as_float(tables.rho))
        return State(s), s

    def step(key: Array, state: State, action: Array) -> tuple[State, Array, Array, Array]:
        a = jnp.reshape(action, ())
        s = drawn(key, as_float(tables.P)[state.s, a])
        reward = as_float(tables.R)[state.s, a, s]
        if not (isinstance(noise, float) and noise == 0.0):
            reward += noise * jax.random.normal(jax.random.fold_in(key, 1))
        return State(s), s, reward, jnp.asarray(tables.terminal)[s]

    return Environment(name, reset, step, Discrete(states), Discrete(actions), horizon)


def drawn(key: Array, probability: Array) -> Array:
    """Sample the index of an outcome from one uniform number."""
    up_to = jnp.cumsum(probability)
    return (jax.random.uniform(key) >= up_to / up_to[-1]).sum()  # from the last possible outcome on, the ratio is exactly 1


@functools.cache  # equal settings give the same functions and share a compiled program
def chain(states: int = 3, slip: float = 0.2) -> Environment:
    return from_tables(chain_tables(states, slip), horizon=4, name="chain")

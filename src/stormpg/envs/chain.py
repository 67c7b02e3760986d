"""Tabular problems given as arrays, and `chain`, one small enough to enumerate every trajectory.

The chain: states 0..n−1 in a row, the last one the end. Action 1 moves right and action 0 left, each with
probability 1 − slip (else the car stays); leaving a state costs a little, reaching the end pays 1.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs.base import Discrete, Environment
from stormpg.errors import InputError
from stormpg.records import as_float


class State(NamedTuple):
    s: Array  # the state's number


class Tables(NamedTuple):
    """A finite decision process: S states, A actions. An episode ends on entering a terminal state."""

    P: np.ndarray  # [S, A, S] probability of the next state
    R: np.ndarray  # [S, A, S] reward of the transition
    rho: np.ndarray  # [S] probability of the first state
    terminal: np.ndarray  # [S] bool


def chain_tables(states: int = 3, slip: float = 0.2) -> Tables:
    if states < 2:
        raise InputError(f"chain needs at least 2 states, and got {states}.")
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
    """The environment of any finite decision process. To every reward, Gaussian noise of this standard deviation is added."""
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
    """One of the outcomes, by one uniform number."""
    up_to = jnp.cumsum(probability)
    return (jax.random.uniform(key) >= up_to / up_to[-1]).sum()  # after the last possible one the ratio is 1 exactly


@functools.cache  # equal settings give the same functions, and so the same compiled program
def chain(states: int = 3, slip: float = 0.2) -> Environment:
    return from_tables(chain_tables(states, slip), horizon=4, name="chain")

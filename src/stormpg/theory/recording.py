"""How far g_t is from ∇L(ξ_t) along training: a step that remembers, around the step of any algorithm.

`train` runs it like any other, so that what is measured is the library's own loop.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from optax.tree_utils import tree_vdot

from stormpg.algorithms import Algorithm
from stormpg.contract import Here, Tracked
from stormpg.records import Tree, add, record, static


class Record(NamedTuple):
    """What was seen at the last `length` iterations, iteration t at t % length; zero where there was none yet."""

    step: Any  # the state of the step inside
    iteration: Array
    error: Array  # ‖g_t − ∇L(ξ_t)‖²
    gradient: Array  # ‖∇L(ξ_t)‖²
    estimate: Array  # ‖g_t‖²
    params: Tree  # ξ_t


@record
class Recorded:
    """A step, and ∇L to compare with; `length`: the iterations that are remembered."""

    step: Any
    exact: Callable[[Tree], Tree] = static()
    length: int = static()

    def init(self, params: Tree) -> Record:
        nothing, nowhere = jnp.zeros(self.length), jax.tree.map(lambda x: jnp.zeros((self.length, *x.shape), x.dtype), params)
        return Record(self.step.init(params), jnp.zeros((), dtype=int), nothing, nothing, nothing, nowhere)

    def apply(self, here: Here, tracked: Tracked, state: Record) -> tuple[Tree, Record]:
        moved, step = self.step.apply(here, tracked, state.step)
        g, params, slope = tracked.gradient, here.params, self.exact(here.params)
        gap = add(g, slope, -1.0)
        place = state.iteration % self.length
        note = lambda column, vector: column.at[place].set(tree_vdot(vector, vector))
        columns = (note(state.error, gap), note(state.gradient, slope), note(state.estimate, g))
        places = jax.tree.map(lambda column, x: column.at[place].set(x), state.params, params)
        return moved, Record(step, state.iteration + 1, *columns, places)


def recorded(algorithm: Algorithm, exact: Callable[[Tree], Tree], length: int) -> Algorithm:
    """The algorithm with a step that remembers. Of a result: `result.states.step.error` and so on, [runs, length]."""
    return dataclasses.replace(algorithm, step=Recorded(algorithm.step, exact, length))

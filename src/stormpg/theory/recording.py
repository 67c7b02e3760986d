"""Record the distance of g_t from ∇L(ξ_t) along training: a wrapper around the step of any algorithm.

`train` runs it like any other step, so the measurements are of the library's own training loop.
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
from stormpg.pytrees import Tree, add, record, static


class Record(NamedTuple):
    """The measurements of the last `length` iterations, iteration t at index t % length; zero before they are written."""

    step: Any  # the state of the wrapped step
    iteration: Array
    error: Array  # ‖g_t − ∇L(ξ_t)‖²
    gradient: Array  # ‖∇L(ξ_t)‖²
    estimate: Array  # ‖g_t‖²
    params: Tree  # ξ_t


@record
class Recorded:
    """A step that records its inputs. `exact` is ∇L, `length` the number of iterations that are kept."""

    step: Any
    exact: Callable[[Tree], Tree] = static()
    length: int = static()

    def init(self, params: Tree) -> Record:
        zeros, iterates = jnp.zeros(self.length), jax.tree.map(lambda x: jnp.zeros((self.length, *x.shape), x.dtype), params)
        return Record(self.step.init(params), jnp.zeros((), dtype=int), zeros, zeros, zeros, iterates)

    def apply(self, here: Here, tracked: Tracked, state: Record) -> tuple[Tree, Record]:
        moved, step = self.step.apply(here, tracked, state.step)
        g, params, slope = tracked.gradient, here.params, self.exact(here.params)
        gap = add(g, slope, -1.0)
        place = state.iteration % self.length
        note: Callable[[Array, Tree], Array] = lambda column, vector: column.at[place].set(tree_vdot(vector, vector))
        columns = (note(state.error, gap), note(state.gradient, slope), note(state.estimate, g))
        places = jax.tree.map(lambda column, x: column.at[place].set(x), state.params, params)
        return moved, Record(step, state.iteration + 1, *columns, places)


def recorded(algorithm: Algorithm, exact: Callable[[Tree], Tree], length: int) -> Algorithm:
    """Return the algorithm with a recording step. The result of a run has `result.states.step.error` etc., [runs, length]."""
    return dataclasses.replace(algorithm, step=Recorded(algorithm.step, exact, length))

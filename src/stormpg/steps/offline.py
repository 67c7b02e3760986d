"""A step that optimises on one batch: ascent of a lower bound on the return of other parameters (POIS)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.contract import Here, Tracked
from stormpg.errors import InputError
from stormpg.pytrees import Tree, add, as_float, check_positive, norm, record, static
from stormpg.scores import log_probs_in_blocks, score_sum
from stormpg.steps.maps import SMALLEST
from stormpg.trajectories import Batch, discounted

LONGER, SHORTER = 2.0, 0.25  # factors of the length of the next attempt, after one that was better or worse


def bound(log_weight: Array, returns: Array, failure: Array, self_normalised: bool) -> Array:
    """mean_i w_i R_i − √((1 − δ)/δ · mean_i w_i²/n) · max_i |R_i|, from log w and R of n trajectories.

    With probability 1 − δ (`failure`) the expected return is not lower (Metelli et al. 2018, Theorem 4.1, with the divergence
    estimated by the mean of w²). `self_normalised`: w is divided by its mean. Otherwise negative returns look better the
    smaller all weights are, so that the bound increases far away from the batch.
    """
    weight = jax.nn.softmax(log_weight) * len(log_weight) if self_normalised else jnp.exp(log_weight)
    spread = jnp.sqrt((1 - failure) / failure * (weight**2).mean() / len(weight))
    return (weight * returns).mean() - spread * jnp.abs(returns).max()


class Ascent(NamedTuple):
    """The best parameters so far, their bound, and the length of the next attempt."""

    params: Tree
    value: Array
    length: Array


@record
class Offline:
    """`iterations` attempts to increase the bound, each along its gradient. The first has length η; g_t is not used."""

    eta: Array
    failure: Array
    gamma: Array
    iterations: int = static()
    self_normalised: bool = static(default=True)

    def init(self, params: Tree) -> tuple[()]:
        return ()

    def apply(self, here: Here, tracked: Tracked, state: Any) -> tuple[Tree, Any]:
        value, ascent = self.on(here, tracked.batch)

        def attempt(_: Array, last: Ascent) -> Ascent:
            direction = ascent(last.params)
            moved = add(last.params, direction, last.length / jnp.maximum(norm(direction), SMALLEST))
            found = value(moved)
            better = found > last.value
            params = jax.tree.map(lambda new, old: jnp.where(better, new, old), moved, last.params)
            return Ascent(params, jnp.where(better, found, last.value), last.length * jnp.where(better, LONGER, SHORTER))

        start = Ascent(here.params, value(here.params), self.eta)
        return jax.lax.fori_loop(0, self.iterations, attempt, start).params, state

    def on(self, here: Here, batch: Batch) -> tuple[Any, Any]:
        """The bound and its gradient as functions of the parameters."""
        taken = batch.trajectories
        returns = discounted(taken, self.gamma).sum(axis=1)

        def log_weight(params: Tree) -> Array:
            return (log_probs_in_blocks(here.policy, params, taken) - taken.log_prob).sum(axis=1)

        def value(params: Tree) -> Array:
            return bound(log_weight(params), returns, self.failure, self.self_normalised)

        def ascent(params: Tree) -> Tree:
            each = jax.grad(bound)(log_weight(params), returns, self.failure, self.self_normalised)
            return score_sum(here.policy, params, taken, each[:, None] * taken.mask)

        return value, ascent


def offline(eta: float, failure: float, gamma: float, iterations: int = 10, self_normalised: bool = True) -> Offline:
    """POIS's inner optimisation: `iterations` attempts to increase `bound` (δ is `failure`), of length η (`eta`) at first.

    `self_normalised`: weights are divided by their mean.
    """
    check_positive(eta=eta, iterations=iterations)
    if not isinstance(failure, jax.core.Tracer) and not 0 < failure < 1:
        raise InputError(f"failure is {failure}; expected a probability between 0 and 1.")
    return Offline(as_float(eta), as_float(failure), as_float(gamma), iterations, self_normalised)

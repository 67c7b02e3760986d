"""A trust region around any step: it is shortened until the policy moves by no more than a given KL divergence."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.contract import Here, Step, Tracked
from stormpg.pytrees import Tree, add, as_float, check_not_negative, check_positive, record, static
from stormpg.steps.natural import divergence_on, thinned

ATTEMPTS = 20  # at another length
MARGIN = 0.95  # of the predicted length, so that the next attempt is likely to be short enough
ENOUGH = 0.7  # of the limit
MOST = 0.3  # nats a step, however large the batch


class Attempt(NamedTuple):
    """An attempt at a length of the step."""

    number: Array
    share: Array  # of the whole step
    divergence: Array  # that was found
    best: Array  # the longest share so far that is within the limit


@record
class Within:
    """`step`, shortened so that KL(π_{ξ_t} ‖ π_{ξ_{t+1}}) ≤ rate² · max(min(κ / L, p), min(δ n / 1000, 0.3)) nats a step.

    The divergence is the exact one of the policy family, its mean is over every `stride`-th time step of the states that the
    tracker offers, and L is their mean number of steps a trajectory: κ is in nats a trajectory, and p, `per_step`, limits it
    for short ones. n is the number of steps of the new batch: many steps tell more than a few. `rate` is the tracker's factor
    for the length of a step, or 1; the divergence grows with its square. If no attempt is short enough, the parameters do not
    move.
    """

    step: Step
    kappa: Array
    delta: Array
    per_step: Array
    stride: int = static(default=1)

    def init(self, params: Tree) -> Tree:
        return self.step.init(params)

    def apply(self, here: Here, tracked: Tracked, state: Tree) -> tuple[Tree, Tree]:
        moved, state = self.step.apply(here, tracked._replace(rate=None), state)
        taken = (tracked.states or tracked.batch).trajectories
        length = taken.mask.sum() / jnp.maximum(taken.mask[:, 0].sum(), 1)
        by_size = jnp.minimum(self.delta * tracked.batch.trajectories.mask.sum() / 1000, MOST)
        limit = jnp.maximum(jnp.minimum(self.kappa / length, self.per_step), by_size)
        if tracked.rate is not None:
            limit *= tracked.rate**2
        thin = thinned(tracked.states or tracked.batch, self.stride)
        divergence, change = divergence_on(here, thin).value, add(moved, here.params, -1.0)

        def at(share: Array) -> Array:
            return divergence(here.limited(add(here.params, change, share), tracked.batch))

        def attempt(last: Attempt) -> Attempt:
            # The divergence is nearly quadratic in the length. Far away it may not be a number.
            factor = MARGIN * jnp.sqrt(limit / last.divergence)
            share = jnp.minimum(last.share * jnp.where(jnp.isfinite(factor), jnp.clip(factor, 0.01, 3.0), 0.01), 1.0)
            found = at(share)
            return Attempt(last.number + 1, share, found, jnp.where(found <= limit, jnp.maximum(share, last.best), last.best))

        def goes_on(last: Attempt) -> Array:
            too_short = (last.divergence < ENOUGH * limit) & (last.share < 1)
            return (~(last.divergence <= limit) | too_short) & (last.number < ATTEMPTS)

        one = jnp.ones_like(limit)
        first = at(one)
        start = Attempt(jnp.zeros((), int), one, first, jnp.where(first <= limit, one, 0.0))
        best = jax.lax.while_loop(goes_on, attempt, start).best
        return here.limited(add(here.params, change, best), tracked.batch), state


def within(step: Step, kappa: float, delta: float = 0.0, stride: int = 1, per_step: float = math.inf) -> Within:
    """A trust region around any step: κ nats a trajectory (`kappa`), but at most `per_step` nats a step; or if that is more, δ
    nats a step (`delta`) for every 1000 steps of the new batch.

    `stride`: measured on every `stride`-th time step.
    """
    check_positive(kappa=kappa, stride=stride, per_step=per_step)
    check_not_negative(delta=delta)
    return Within(step, as_float(kappa), as_float(delta), as_float(per_step), stride)

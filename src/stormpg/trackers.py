"""Trackers: how the estimate g_t follows ∇L(ξ_t) from one batch to the next.

All of them are one equation. On a batch sampled at ξ_t,

    g_t = d(ξ_t) + (1 − α) [ c − d^{ξ_t}(ξ_ref) ]

where the memory (ξ_ref, c) is a point and an estimate of the gradient there, and d^{ξ_t}(ξ_ref) uses the same batch,
importance-weighted, and the same baseline. A large batch starts afresh: g_t = d(ξ_t).

| tracker | α    | memory                                  | paper         |
|---------|------|-----------------------------------------|---------------|
| plain   | 1    | none                                    |               |
| svrg    | 0    | the last large batch's (ξ̃, g̃)           | equation (7) |
| sarah   | 0    | the step before, (ξ_{t−1}, g_{t−1})     | equation (8) |
| storm   | α    | the step before, (ξ_{t−1}, g_{t−1})     | equation (9) |
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.errors import InputError
from stormpg.estimators import Estimator, estimate
from stormpg.records import Tree, add, as_float, record, static
from stormpg.trajectories import Trajectories


class Memory(NamedTuple):
    """(ξ_ref, c)."""

    params: Tree
    gradient: Tree


class Tracked(NamedTuple):
    gradient: Tree  # g_t
    memory: Memory | None
    weight: Array  # [n, H] the weights of the correction, 1 where there is none


@record
class Tracker:
    """α, and what the memory holds: nothing, the last large batch ("snapshot") or the step before ("previous")."""

    alpha: Array
    remembers: str | None = static()

    def init(self, params: Tree) -> Memory | None:
        """A memory to be overwritten by the first large batch."""
        return Memory(params, jax.tree.map(jnp.zeros_like, params)) if self.remembers else None

    def large(self, estimator: Estimator, policy: Any, params: Tree, batch: Trajectories) -> Tracked:
        """g_t = d(ξ_t), and both kinds of memory begin here."""
        d = estimate(estimator, policy, params, batch, on_policy=True)
        return Tracked(d.gradient, Memory(params, d.gradient) if self.remembers else None, d.weight)

    def small(
        self, estimator: Estimator, policy: Any, params: Tree, batch: Trajectories, memory: Memory, sampled_here: bool = True
    ) -> Tracked:
        """g_t = d(ξ_t) + (1 − α)[c − d^{ξ_t}(ξ_ref)], the batch sampled at ξ_t.

        `sampled_here=False`: the batch is part of the one sampled at ξ_ref (SVRPO), so that d(ξ_ref) needs no weight.
        """
        here = estimate(estimator, policy, params, batch, on_policy=sampled_here)
        there = estimate(estimator, policy, memory.params, batch, here.baseline, on_policy=not sampled_here)
        g = add(here.gradient, add(memory.gradient, there.gradient, -1.0), 1.0 - self.alpha)
        kept = Memory(params, g) if self.remembers == "previous" else memory
        return Tracked(g, kept, there.weight if sampled_here else here.weight)


def plain() -> Tracker:
    """g_t = d(ξ_t)."""
    return Tracker(as_float(1.0), None)


def svrg() -> Tracker:
    """g_t = d(ξ_t) + g̃ − d^{ξ_t}(ξ̃), equation (7) with the sampling point ξ_t as superscript."""
    return Tracker(as_float(0.0), "snapshot")


def sarah() -> Tracker:
    """g_t = d(ξ_t) + g_{t−1} − d^{ξ_t}(ξ_{t−1}), equation (8)."""
    return Tracker(as_float(0.0), "previous")


def storm(alpha: float) -> Tracker:
    """g_t = d(ξ_t) + (1 − α)[g_{t−1} − d^{ξ_t}(ξ_{t−1})], equation (9): α = 1 is plain, α = 0 is SARAH."""
    if not isinstance(alpha, jax.core.Tracer) and not 0 <= alpha <= 1:
        raise InputError(f"alpha is {alpha}; expected a momentum factor in [0, 1].")
    return Tracker(as_float(alpha), "previous")

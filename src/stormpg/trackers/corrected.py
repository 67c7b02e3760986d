"""The trackers of the paper, which follow one equation.

On a batch sampled at ξ_t,

    g_t = d(ξ_t) + (1 − α) [ c − d^{ξ_t}(ξ_ref) ]

where the memory (ξ_ref, c) is a point and an estimate of its gradient, and d^{ξ_t}(ξ_ref) uses the same batch, with
importance weights, and the same baseline. A large batch restarts: g_t = d(ξ_t). `svrg_within` is the exception: its small
batches are part of the large one, sampled at ξ̃, so that d(ξ_t) has the weights.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.contract import Blank, Here, Sample, Tracked
from stormpg.errors import InputError
from stormpg.pytrees import Tree, add, as_float, record, static
from stormpg.trajectories import Batch


class Memory(NamedTuple):
    """(ξ_ref, c)."""

    params: Tree
    gradient: Tree


@record
class Plain:
    """g_t = d(ξ_t)."""

    def init(self, params: Tree, blank: Blank) -> Tree:
        return ()

    def wants(self, here: Here, memory: Tree) -> tuple[Sample, ...]:
        return (Sample(here.n),)

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Tree) -> Tracked:
        (batch,) = batches
        return Tracked(here.estimate(here.params, batch).gradient, memory, batch)


@record
class Corrected:
    """`alpha` (α), and which (ξ, g) is remembered: of the last large batch ("snapshot") or the previous step ("previous")."""

    alpha: Array
    remembers: str = static()

    def init(self, params: Tree, blank: Blank) -> Memory:
        """A memory that the first large batch overwrites."""
        return Memory(params, jax.tree.map(jnp.zeros_like, params))

    def wants(self, here: Here, memory: Memory) -> tuple[Sample, ...]:
        return (Sample(here.n),)

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Tracked:
        (batch,) = batches
        now = here.estimate(here.params, batch)
        if here.large:
            return Tracked(now.gradient, Memory(here.params, now.gradient), batch)
        then = here.estimate(memory.params, batch, now.baseline)
        g = corrected(now.gradient, then.gradient, memory.gradient, self.alpha)
        kept = Memory(here.params, g) if self.remembers == "previous" else memory
        return Tracked(g, kept, batch, then.weight)


def corrected(here: Tree, there: Tree, c: Tree, alpha: Any = 0.0) -> Tree:
    """d(ξ_t) + (1 − α) [ c − d^{ξ_t}(ξ_ref) ]."""
    return add(here, add(c, there, -1.0), 1.0 - alpha)


class Snapshot(NamedTuple):
    """A large batch, and g̃ at the parameters ξ̃ that sampled it."""

    batch: Batch
    gradient: Tree


@record
class Within:
    """SVRG within the large batch: small batches are drawn from it and sample no trajectories. d(ξ̃) has weight 1."""

    def init(self, params: Tree, blank: Blank) -> Snapshot:
        return Snapshot(blank(), jax.tree.map(jnp.zeros_like, params))

    def wants(self, here: Here, memory: Snapshot) -> tuple[Sample, ...]:
        return (Sample(here.n),) if here.large else ()

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Snapshot) -> Tracked:
        if here.large:
            (batch,) = batches
            g = here.estimate(here.params, batch).gradient
            return Tracked(g, Snapshot(batch, g), batch)
        whole = memory.batch
        S0 = len(whole.trajectories.reward)
        check_part(here.n, S0)
        chosen = jax.random.permutation(here.key("subset"), S0)[: here.n]
        batch = whole._replace(trajectories=jax.tree.map(lambda x: x[chosen], whole.trajectories))
        now = here.estimate(here.params, batch)
        then = here.estimate(whole.sampled_at, batch, now.baseline)
        return Tracked(corrected(now.gradient, then.gradient, memory.gradient), memory, batch, now.weight, states=whole)


def check_part(B: int, S0: int) -> None:
    """Raise InputError if a batch of B cannot be drawn from one of S0."""
    if B > S0:
        raise InputError(f"B is {B} and S0 is {S0}; a batch drawn from the large one cannot be larger.")


def plain() -> Plain:
    """g_t = d(ξ_t)."""
    return Plain()


def svrg() -> Corrected:
    """g_t = d(ξ_t) + g̃ − d^{ξ_t}(ξ̃), equation (7) with the sampling point ξ_t as superscript."""
    return Corrected(as_float(0.0), "snapshot")


def svrg_within() -> Within:
    """g_t = d^{ξ̃}(ξ_t) + g̃ − d(ξ̃) on B of the S0 trajectories of the last large batch."""
    return Within()


def sarah() -> Corrected:
    """g_t = d(ξ_t) + g_{t−1} − d^{ξ_t}(ξ_{t−1}), equation (8)."""
    return Corrected(as_float(0.0), "previous")


def storm(alpha: float) -> Corrected:
    """g_t = d(ξ_t) + (1 − α)[g_{t−1} − d^{ξ_t}(ξ_{t−1})], equation (9): α = 1 is plain, α = 0 is SARAH."""
    if not isinstance(alpha, jax.core.Tracer) and not 0 <= alpha <= 1:
        raise InputError(f"alpha is {alpha}; expected a momentum factor in [0, 1].")
    return Corrected(as_float(alpha), "previous")

"""Trackers that carry an estimate of the gradient from step to step, by one equation.

    g_t = α d(ξ_t) + (1 − α) [ c + γ Δ ]

The memory (ξ_ref, c) is a point and an estimate of its gradient, and Δ estimates how the gradient changes from ξ_ref to ξ_t
(`transports`). A large batch restarts: g_t = d(ξ_t). For the trackers of the paper γ = 1 and Δ = d(ξ_t) − d^{ξ_t}(ξ_ref) on the
same batch, with importance weights and the same baseline:

    g_t = d(ξ_t) + (1 − α) [ c − d^{ξ_t}(ξ_ref) ]

`svrg_within` is the exception: its small batches are part of the large one, sampled at ξ̃, so that d(ξ_t) has the weights.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.contract import Blank, Here, Sample, Tracked
from stormpg.errors import InputError, choose
from stormpg.pytrees import Tree, add, as_float, check_not_negative, check_positive, norm, record, static
from stormpg.rates import Rates, Seen, check_alpha
from stormpg.trackers.transports import Carried, Memory, Transport, Weighted
from stormpg.trajectories import Batch


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
    transport: Transport | None = None  # Δ; None: importance weights on the same batch
    rates: Rates | None = None  # a rule for α_t and a factor of η_t; None: `alpha`
    scale: Array | None = None  # γ; None: 1
    radius: Array | None = None  # of d(ξ_t) + γ (1 − α)/α Δ, which is shortened to this norm; None: it is not

    def init(self, params: Tree, blank: Blank) -> Memory:
        """A memory that the first large batch overwrites."""
        zero = jax.tree.map(jnp.zeros_like, params)
        rates = () if self.rates is None else self.rates.init(params)
        return Memory(params, zero, rates, self.carrier.restarted(zero))

    @property
    def carrier(self) -> Transport:
        return Weighted() if self.transport is None else self.transport

    def alpha_at(self, here: Here, memory: Memory) -> Array:
        """α_t."""
        return self.alpha if self.rates is None else self.rates.alpha(here, memory.rates)

    def wants(self, here: Here, memory: Memory) -> tuple[Sample, ...]:
        return (Sample(here.n),) if here.large else self.carrier.wants(here, memory, self.alpha_at(here, memory))

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Tracked:
        alpha = jnp.ones_like(self.alpha) if here.large else self.alpha_at(here, memory)
        if here.large:
            (batch,) = batches
            g = here.estimate(here.params, batch).gradient
            made = Carried(g, jax.tree.map(jnp.zeros_like, g), batch, memory=self.carrier.restarted(g))
        else:
            made = self.carrier.carry(here, batches, memory)
            g = self.combine(made, memory.gradient, alpha)
        rate, rates = None, memory.rates
        if self.rates is not None:
            rate, rates = self.rates.after(here, memory.rates, Seen(made.fresh, made.change, g))
        kept = Memory(here.params, g) if here.large or self.remembers == "previous" else memory
        kept = kept._replace(rates=rates, transport=made.memory)
        info = {} if self.rates is None else {"alpha": alpha}
        return Tracked(g, kept, made.batch, made.weight, rate=rate, info=info)

    def combine(self, made: Carried, c: Tree, alpha: Array) -> Tree:
        """α d + (1 − α) [ c + γ Δ ]."""
        scale = 1.0 if self.scale is None else self.scale
        if self.radius is None:
            return blended(made.fresh, add(c, made.change, scale), alpha)
        ahead = add(made.fresh, made.change, scale * (1 - alpha) / alpha)
        short = jnp.minimum(1.0, self.radius / jnp.maximum(norm(ahead), 1e-30))
        return blended(jax.tree.map(lambda x: short * x, ahead), c, alpha)


def blended(fresh: Tree, kept: Tree, alpha: Any) -> Tree:
    """α fresh + (1 − α) kept."""
    return jax.tree.map(lambda x, y: alpha * x + (1 - alpha) * y, fresh, kept)


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
    return follow(alpha)


def follow(
    alpha: float = 0.0,
    transport: Transport | None = None,
    *,
    rates: Rates | None = None,
    scale: float | None = None,
    radius: float | None = None,
    remembers: str = "previous",
) -> Corrected:
    """g_t = α d(ξ_t) + (1 − α) [ c + γ Δ ]: every tracker that carries one gradient.

    `transport`: Δ, see `transports`; None: importance weights on the same batch. `rates`: a rule for α_t and a factor of η_t
    instead of a constant `alpha`, see `stormpg.rates`. `scale` (γ). `radius`: the norm to which d(ξ_t) + γ (1 − α)/α Δ is
    shortened. `remembers`: (ξ_ref, c) is the "previous" step or the "snapshot" of the last large batch.
    """
    check_alpha(alpha=alpha)
    if scale is not None:
        check_not_negative(scale=scale)
    if radius is not None:
        check_positive(radius=radius)
    choose("remembers", remembers, ("previous", "snapshot"))
    optional = [None if x is None else as_float(x) for x in (scale, radius)]
    return Corrected(as_float(alpha), remembers, transport, rates, *optional)

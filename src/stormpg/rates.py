"""Rules for α_t, and for a factor of the step size η_t, from the iteration or from what has been seen so far.

A rule belongs to a tracker, `trackers.follow(rates=…)`. Its factor multiplies every step: with an optimiser of step size 1 it
is η_t itself.

| rule        | α                                         | factor of η                    | used by                     |
|-------------|-------------------------------------------|--------------------------------|-----------------------------|
| powers      | α_0 (s/(t + s))^p                         | (s/(t + s))^q                  | HARPG, N-PG-IGT, SHARP      |
| accumulated | α_{t+1} = c η_t^e, between low and high   | η_t = k / (w + f Σ‖d_i‖²)^r,   | IS-MBPG, HA-MBPG            |
|             |                                           | or with t instead of the sum   | IS-MBPG*, BGPO, VR-BGPO     |
| storm_plus  | α_{t+1} = (1 + Σ‖d_i‖²)^{−2/3}            | (Σ‖g_i‖²/α_{i+1})^{−1/3}       | STORM+ (Levy et al. 2021)   |
| meta_storm  | α_{t+1} = (1 + Σ‖changes‖²/a0)^{−2/3}     | α_{t+1}^q / (b0 + Σ‖g_i‖²)^p   | META-STORM (Liu et al. 2022)|

d_i is the estimate from batch i alone, d(ξ_i), and g_i the tracked one.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from optax.tree_utils import tree_vdot

from stormpg.contract import Moment
from stormpg.errors import InputError
from stormpg.pytrees import Tree, add, as_float, check_positive, record, static


class Seen(NamedTuple):
    """What an iteration has computed."""

    fresh: Tree  # d(ξ_t)
    change: Tree  # Δ, the estimated change of the gradient from ξ_ref to ξ_t; 0 for a large batch
    tracked: Tree  # g_t


class Rates(Protocol):
    """A rule for α_t and for a factor of η_t. It should be a `record`."""

    def init(self, params: Tree) -> Tree:
        """The memory before the first batch: any pytree."""

    def alpha(self, moment: Moment, memory: Tree) -> Array:
        """α_t, before the batch is sampled."""

    def after(self, moment: Moment, memory: Tree, seen: Seen) -> tuple[Array | None, Tree]:
        """The factor of η_t, if the rule has one, and the next memory."""


def square(tree: Tree) -> Array:
    """The squared norm."""
    total: Array = tree_vdot(tree, tree)
    return total


@record
class Powers:
    """α_t = α_0 (s/(t + s))^p, and the factor (s/(t + s))^q of η."""

    alpha0: Array
    p: Array
    q: Array
    s: Array

    def init(self, params: Tree) -> tuple[()]:
        return ()

    def alpha(self, moment: Moment, memory: Tree) -> Array:
        return self.alpha0 * self.decay(moment) ** self.p

    def after(self, moment: Moment, memory: Tree, seen: Seen) -> tuple[Array, Tree]:
        return self.decay(moment) ** self.q, memory

    def decay(self, moment: Moment) -> Array:
        return self.s / (moment.iteration + self.s)


class Sum(NamedTuple):
    """α_{t+1}, and a sum over all iterations."""

    alpha: Array
    total: Array


@record
class Accumulated:
    """η_t = k / (w + f A_t)^r with A_t = Σ_{i≤t} ‖d_i‖², or t if `counts`; α_{t+1} = c η_t^e, between `low` and `high`."""

    k: Array
    w: Array
    c: Array
    r: Array
    low: Array
    high: Array
    factor: Array
    e: int = static(default=2)
    counts: bool = static(default=False)

    def init(self, params: Tree) -> Sum:
        return Sum(as_float(1.0), as_float(0.0))

    def alpha(self, moment: Moment, memory: Sum) -> Array:
        return memory.alpha

    def after(self, moment: Moment, memory: Sum, seen: Seen) -> tuple[Array, Sum]:
        total = memory.total + (1.0 if self.counts else square(seen.fresh))
        eta = self.k / (self.w + self.factor * total) ** self.r
        return eta, Sum(jnp.clip(self.c * eta**self.e, self.low, self.high), total)


class Sums(NamedTuple):
    """α_{t+1}, the sums behind it and behind η, and d_t."""

    alpha: Array
    total: Array
    tracked: Array
    fresh: Tree = ()


@record
class StormPlus:
    """α_{t+1} = (1 + Σ_{i≤t} ‖d_i‖²)^{−2/3}, η_t = (Σ_{i≤t} ‖g_i‖² / α_{i+1})^{−1/3}. It has no constants."""

    def init(self, params: Tree) -> Sums:
        return Sums(as_float(1.0), as_float(0.0), as_float(0.0))

    def alpha(self, moment: Moment, memory: Sums) -> Array:
        return memory.alpha

    def after(self, moment: Moment, memory: Sums, seen: Seen) -> tuple[Array, Sums]:
        total = memory.total + square(seen.fresh)
        alpha = (1 + total) ** (-2 / 3)
        tracked = memory.tracked + square(seen.tracked) / alpha
        return jnp.where(tracked > 0, tracked, 1.0) ** (-1 / 3), Sums(alpha, total, tracked)


@record
class MetaStorm:
    """α_{t+1} = (1 + A_t/a0)^{−2/3}, η_t = α_{t+1}^q / (b0 + Σ_{i≤t} ‖g_i‖²)^p with q = (1 − p)/2.

    A_t = Σ_i ‖d_{i−1}(ξ_{i−1}) − d_i(ξ_{i−1})‖²: how much estimates at the same point differ between batches. With `norms`,
    A_t = Σ_i ‖d_i‖² instead (META-STORM-SG).
    """

    p: Array
    a0: Array
    b0: Array
    norms: bool = static(default=False)

    def init(self, params: Tree) -> Sums:
        return Sums(as_float(1.0), as_float(0.0), as_float(0.0), jax.tree.map(jnp.zeros_like, params))

    def alpha(self, moment: Moment, memory: Sums) -> Array:
        return memory.alpha

    def after(self, moment: Moment, memory: Sums, seen: Seen) -> tuple[Array, Sums]:
        if self.norms:
            new = square(seen.fresh)
        else:  # d_t(ξ_{t−1}) = d(ξ_t) − Δ. The first batch has none before it.
            before = add(seen.fresh, seen.change, -1.0)
            new = jnp.where(moment.iteration > 0, square(add(memory.fresh, before, -1.0)), 0.0)
        total, tracked = memory.total + new, memory.tracked + square(seen.tracked)
        alpha = (1 + total / self.a0) ** (-2 / 3)
        return alpha ** ((1 - self.p) / 2) / (self.b0 + tracked) ** self.p, Sums(alpha, total, tracked, seen.fresh)


def powers(alpha0: float = 1.0, p: float = 1.0, q: float = 0.0, s: float = 2.0) -> Powers:
    """α_t = α_0 (s/(t + s))^p, and the factor (s/(t + s))^q of η."""
    check_positive(s=s)
    check_alpha(alpha0=alpha0)
    return Powers(*(as_float(x) for x in (alpha0, p, q, s)))


def accumulated(
    k: float = 1.0,
    w: float = 1.0,
    c: float = 1.0,
    r: float = 1 / 3,
    low: float = 0.0,
    high: float = 1.0,
    factor: float = 1.0,
    e: int = 2,
    counts: bool = False,
) -> Accumulated:
    """η_t = k / (w + factor · A_t)^r, α_{t+1} = c η_t^e between `low` and `high`; A_t = Σ‖d_i‖², or t if `counts`."""
    check_positive(k=k, w=w, c=c, r=r, factor=factor)
    check_alpha(low=low, high=high)
    eta, bounds = (as_float(k), as_float(w), as_float(c), as_float(r)), (as_float(low), as_float(high), as_float(factor))
    return Accumulated(*eta, *bounds, e, counts)


def storm_plus() -> StormPlus:
    """STORM+ (Levy, Kavis, Cevher 2021): no constants."""
    return StormPlus()


def meta_storm(p: float = 0.25, a0: float = 1.0, b0: float = 1.0, norms: bool = False) -> MetaStorm:
    """META-STORM (Liu et al. 2022), or with `norms` META-STORM-SG."""
    check_positive(a0=a0, b0=b0)
    if not isinstance(p, jax.core.Tracer) and not 0 < p <= 0.5:
        raise InputError(f"p is {p}; expected a power in (0, 0.5].")
    return MetaStorm(as_float(p), as_float(a0), as_float(b0), norms)


def check_alpha(**settings: float) -> None:
    """Raise InputError if a momentum factor is not in [0, 1]. A traced one cannot be checked."""
    for name, value in settings.items():
        if not isinstance(value, jax.core.Tracer) and not 0 <= value <= 1:
            raise InputError(f"{name} is {value}; expected a momentum factor in [0, 1].")

"""Transports: how a tracker carries an estimate c of the gradient from ξ_ref to ξ_t.

A transport says which batches a small iteration needs, and computes from them d(ξ_t) and Δ, the change of the gradient:

| transport    | Δ                                             | sampled at                         | used by             |
|--------------|-----------------------------------------------|------------------------------------|---------------------|
| weighted     | d(ξ_t) − d^q(ξ_ref), q: who sampled the batch | ξ_t, one batch or two              | the paper, HSPGA    |
| defensive    | the same, both terms with weights             | ξ_t, or with probability b ξ_ref   | DEF-PG              |
| hessian      | Ĥ(ξ_a)(ξ_t − ξ_ref)                           | ξ_a, uniform between ξ_ref and ξ_t | HAPG, HARPG, SHARP  |
| extrapolated | 0                                             | ξ_t + (1 − α)/α · (ξ_t − ξ_ref)    | N-PG-IGT            |
| nothing      | 0                                             | ξ_t                                | BGPO                |
| difference   | d(ξ_t) − d(ξ_{t−1}), of different batches     | ξ_t                                | MARS, approximately |
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.contract import Here, Sample
from stormpg.errors import InputError
from stormpg.pytrees import Tree, add, as_float, record, static
from stormpg.trajectories import Batch


class Memory(NamedTuple):
    """(ξ_ref, c), and the memories of a rule for α and of a transport, if they have any."""

    params: Tree
    gradient: Tree
    rates: Tree = ()
    transport: Tree = ()


class Carried(NamedTuple):
    """The result of a transport."""

    fresh: Tree  # d(ξ_t)
    change: Tree  # Δ
    batch: Batch  # whose returns are recorded
    weight: Array | None = None  # its importance weights, to be recorded
    memory: Tree = ()


class Transport(Protocol):
    """It should be a `record`."""

    def restarted(self, fresh: Tree) -> Tree:
        """The memory after a large batch, with d(ξ_t): any pytree."""

    def wants(self, here: Here, memory: Memory, alpha: Any) -> tuple[Sample, ...]:
        """The batches of a small iteration."""

    def carry(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Carried:
        """d(ξ_t) and Δ."""


@record
class WithoutMemory:
    def restarted(self, fresh: Tree) -> Tree:
        return ()


@record
class Weighted(WithoutMemory):
    """Δ = d(ξ_t) − d^{ξ_t}(ξ_ref) on the batch of d(ξ_t), or on a second one."""

    second: bool = static(default=False)

    def wants(self, here: Here, memory: Memory, alpha: Any) -> tuple[Sample, ...]:
        return (Sample(here.n), Sample(here.n)) if self.second else (Sample(here.n),)

    def carry(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Carried:
        last = batches[-1]
        now = here.estimate(here.params, last)
        then = here.estimate(memory.params, last, now.baseline)
        fresh = here.estimate(here.params, batches[0]).gradient if self.second else now.gradient
        return Carried(fresh, add(now.gradient, then.gradient, -1.0), last, then.weight)


@record
class Defensive(WithoutMemory):
    """As `Weighted` on one batch, of which each trajectory is sampled at ξ_ref with probability b and at ξ_t otherwise.

    With q = (1 − b) p(·|ξ_t) + b p(·|ξ_ref), the weights of d^q(ξ_t) are at most 1/(1 − b) and those of d^q(ξ_ref) at most
    1/b, for whole trajectories and for all steps up to one.
    """

    b: Array

    def wants(self, here: Here, memory: Memory, alpha: Any) -> tuple[Sample, ...]:
        return (Sample(here.n, other=memory.params, share=self.b),)

    def carry(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Carried:
        (batch,) = batches
        now = here.estimate(here.params, batch)
        then = here.estimate(memory.params, batch, now.baseline)
        return Carried(now.gradient, add(now.gradient, then.gradient, -1.0), batch, now.weight)


@record
class Hessian(WithoutMemory):
    """Δ = Ĥ(ξ_a)(ξ_t − ξ_ref) on a batch sampled at ξ_a = ξ_ref + a (ξ_t − ξ_ref), a uniform in [0, 1]: its mean is exact.

    `fresh`: where d(ξ_t) comes from: a "second" batch, sampled at ξ_t; the "same" batch, with weights from ξ_a; or "none", for
    α = 0.
    """

    fresh: str = static(default="second")

    def between(self, here: Here, memory: Memory) -> Tree:
        return add(memory.params, add(here.params, memory.params, -1.0), here.uniform("line"))

    def wants(self, here: Here, memory: Memory, alpha: Any) -> tuple[Sample, ...]:
        there = Sample(here.n, self.between(here, memory))
        return (Sample(here.n), there) if self.fresh == "second" else (there,)

    def carry(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Carried:
        change = here.hessian_product(batches[-1], add(here.params, memory.params, -1.0))
        if self.fresh == "none":
            return Carried(jax.tree.map(jnp.zeros_like, change), change, batches[0])
        now = here.estimate(here.params, batches[0])
        return Carried(now.gradient, change, batches[0], now.weight)


@record
class Extrapolated(WithoutMemory):
    """Δ = 0, and d(ξ̃) at ξ̃ = ξ_t + (1 − α)/α · (ξ_t − ξ_ref), instead of d(ξ_t): for a quadratic L the errors cancel."""

    def wants(self, here: Here, memory: Memory, alpha: Any) -> tuple[Sample, ...]:
        return (Sample(here.n, add(here.params, add(here.params, memory.params, -1.0), (1 - alpha) / alpha)),)

    def carry(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Carried:
        (batch,) = batches
        fresh = here.estimate(batch.sampled_at, batch).gradient
        return Carried(fresh, jax.tree.map(jnp.zeros_like, fresh), batch)


@record
class Nothing(WithoutMemory):
    """Δ = 0: an exponential mean of estimates at different points."""

    def wants(self, here: Here, memory: Memory, alpha: Any) -> tuple[Sample, ...]:
        return (Sample(here.n),)

    def carry(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Carried:
        (batch,) = batches
        fresh = here.estimate(here.params, batch).gradient
        return Carried(fresh, jax.tree.map(jnp.zeros_like, fresh), batch)


@record
class Difference(Nothing):
    """Δ = d(ξ_t) − d(ξ_{t−1}) of different batches: the noise of both stays in it."""

    def restarted(self, fresh: Tree) -> Tree:
        return fresh

    def carry(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Carried:
        made = super().carry(here, batches, memory)
        return made._replace(change=add(made.fresh, memory.transport, -1.0), memory=made.fresh)


def weighted(second: bool = False) -> Weighted:
    """Importance weights, on the batch of d(ξ_t) or on a second one."""
    return Weighted(second)


def defensive(b: float = 0.5) -> Defensive:
    """Importance weights from a mixture: each trajectory is sampled at ξ_ref with probability `b`."""
    if not isinstance(b, jax.core.Tracer) and not 0 <= b < 1:
        raise InputError(f"b is {b}; expected a probability in [0, 1).")
    return Defensive(as_float(b))


def hessian(fresh: str = "second") -> Hessian:
    """A Hessian-vector product at a random point between ξ_ref and ξ_t. `fresh`: "second", "same" or "none"."""
    if fresh not in ("second", "same", "none"):
        raise InputError(f"fresh is {fresh!r}; expected 'second', 'same' or 'none'.")
    return Hessian(fresh)

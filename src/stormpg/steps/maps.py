"""Steps that change the length or the geometry of a move: of unit length, within a radius, clipped, mirrored, averaged."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.contract import Here, Step, Tracked
from stormpg.errors import InputError, choose
from stormpg.pytrees import Tree, add, as_float, check_not_negative, check_positive, norm, record, static

SMALLEST = 1e-30  # instead of a norm of 0


def rated(rate: Array | None, size: Array) -> Array:
    """A step size, times the factor of the tracker if it has one."""
    return size if rate is None else size * rate


@record
class Normalised:
    """ξ_{t+1} = ξ_t + η g_t/‖g_t‖."""

    eta: Array

    def init(self, params: Tree) -> tuple[()]:
        return ()

    def apply(self, here: Here, tracked: Tracked, state: Any) -> tuple[Tree, Any]:
        length = rated(tracked.rate, self.eta) / jnp.maximum(norm(tracked.gradient), SMALLEST)
        return add(here.params, tracked.gradient, length), state


@record
class Radius:
    """`step`, shortened to ‖ξ_{t+1} − ξ_t‖ ≤ δ (`delta`)."""

    step: Step
    delta: Array

    def init(self, params: Tree) -> Tree:
        return self.step.init(params)

    def apply(self, here: Here, tracked: Tracked, state: Tree) -> tuple[Tree, Tree]:
        moved, state = self.step.apply(here, tracked, state)
        change = add(moved, here.params, -1.0)
        return add(here.params, change, jnp.minimum(1.0, self.delta / jnp.maximum(norm(change), SMALLEST))), state


@record
class Clipped:
    """`step` along g_t with every component between −min(largest, ‖g_t‖) and its opposite."""

    step: Step
    largest: Array

    def init(self, params: Tree) -> Tree:
        return self.step.init(params)

    def apply(self, here: Here, tracked: Tracked, state: Tree) -> tuple[Tree, Tree]:
        bound = jnp.minimum(self.largest, norm(tracked.gradient))
        short = jax.tree.map(lambda x: jnp.clip(x, -bound, bound), tracked.gradient)
        return self.step.apply(here, tracked._replace(gradient=short), state)


MIRRORS = ("euclidean", "diagonal", "p-norm")


@record
class Mirror:
    """ξ_{t+1} = ξ_t + η (ξ̃ − ξ_t), where ξ̃ maximises ⟨g_t, ξ⟩ − D_ψ(ξ, ξ_t)/λ; η is the factor of the tracker, or 1.

    | kind      | ψ(ξ)                                     | ξ̃                                             |
    |-----------|------------------------------------------|------------------------------------------------|
    | euclidean | ½‖ξ‖²                                    | ξ_t + λ g_t                                    |
    | diagonal  | ½ ξᵀ diag(√v + 1e-8) ξ                   | ξ_t + λ g_t/(√v + 1e-8)                        |
    | p-norm    | ½‖ξ‖_p²                                  | ∇ψ*(∇ψ(ξ_t) + λ g_t)                           |

    v is the exponential mean of g² with decay 0.999, divided by 1 − 0.999^t.
    """

    lam: Array
    p: Array
    kind: str = static()

    def init(self, params: Tree) -> Tree:
        if self.kind != "diagonal":
            return ()
        return jax.tree.map(jnp.zeros_like, params), jnp.zeros((), int)

    def apply(self, here: Here, tracked: Tracked, state: Tree) -> tuple[Tree, Tree]:
        g, params = tracked.gradient, here.params
        if self.kind == "euclidean":
            there = add(params, g, self.lam)
        elif self.kind == "diagonal":
            square, count = state
            count = count + 1
            square = jax.tree.map(lambda v, x: 0.999 * v + 0.001 * x**2, square, g)
            root = jax.tree.map(lambda v: jnp.sqrt(v / (1 - 0.999**count)) + 1e-8, square)
            there, state = jax.tree.map(lambda x, y, r: x + self.lam * y / r, params, g, root), (square, count)
        else:
            dual = add(link(params, self.p), g, self.lam)
            there = link(dual, self.p / (self.p - 1))
        change = add(there, params, -1.0)
        return add(params, change, rated(tracked.rate, jnp.ones_like(self.lam))), state


def link(tree: Tree, p: Array) -> Tree:
    """∇(½‖x‖_p²): sign(x) |x|^{p−1} / ‖x‖_p^{p−2}. Its inverse is the link of q = p/(p − 1)."""
    total = sum((jnp.abs(x) ** p).sum() for x in jax.tree.leaves(tree)) ** (1 / p)
    scale = jnp.maximum(total, SMALLEST) ** (2 - p)
    linked: Tree = jax.tree.map(lambda x: jnp.sign(x) * jnp.abs(x) ** (p - 1) * scale, tree)
    return linked


@record
class Averaged:
    """ξ_{t+1} = (1 − s) ξ_t + s ξ̂ with ξ̂ = prox(ξ), ξ that of `step`; prox(ξ) = ξ/(1 + penalty), for an L2 penalty."""

    step: Step
    share: Array
    penalty: Array

    def init(self, params: Tree) -> Tree:
        return self.step.init(params)

    def apply(self, here: Here, tracked: Tracked, state: Tree) -> tuple[Tree, Tree]:
        moved, state = self.step.apply(here, tracked, state)
        near = jax.tree.map(lambda x: x / (1 + self.penalty), moved)
        return add(here.params, add(near, here.params, -1.0), self.share), state


def normalised(eta: float) -> Normalised:
    """A step of length `eta` (η)."""
    check_positive(eta=eta)
    return Normalised(as_float(eta))


def radius(step: Step, delta: float) -> Radius:
    """Any step, shortened to the length `delta` (δ)."""
    check_positive(delta=delta)
    return Radius(step, as_float(delta))


def clipped(step: Step, largest: float) -> Clipped:
    """Any step along g_t with components of at most `largest`, and at most ‖g_t‖."""
    check_positive(largest=largest)
    return Clipped(step, as_float(largest))


def mirror(lam: float, kind: str = "euclidean", p: float = 2.0) -> Mirror:
    """A mirror step. `lam` (λ): its size; `kind`: "euclidean", "diagonal" or "p-norm", the last with `p` above 1."""
    check_positive(lam=lam)
    choose("kind", kind, MIRRORS)
    if not isinstance(p, jax.core.Tracer) and not p > 1:
        raise InputError(f"p is {p}; expected a number above 1.")
    return Mirror(as_float(lam), as_float(p), kind)


def averaged(step: Step, share: float = 1.0, penalty: float = 0.0) -> Averaged:
    """Any step followed by the proximal map of an L2 penalty, and averaged with ξ_t: `share` of the new parameters."""
    if not isinstance(share, jax.core.Tracer) and not 0 < share <= 1:
        raise InputError(f"share is {share}; expected a number in (0, 1].")
    check_not_negative(penalty=penalty)
    return Averaged(step, as_float(share), as_float(penalty))

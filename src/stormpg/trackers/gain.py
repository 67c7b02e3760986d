"""STORM's correction with α measured on each batch, as the gain of a Kalman filter."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.contract import Blank, Here, Sample, Tracked
from stormpg.errors import InputError
from stormpg.pytrees import Tree, add, as_float, record
from stormpg.trackers.corrected import corrected
from stormpg.trajectories import Batch

LARGEST = 0.99  # of 1 − α: some of every batch is used


class Memory(NamedTuple):
    """(ξ_{t−1}, g_{t−1}), and the estimated squared error of g_{t−1}."""

    params: Tree
    gradient: Tree
    error: Array


@record
class Gain:
    """g_t = d(ξ_t) + (1 − α) [ g_{t−1} − d^{ξ_t}(ξ_{t−1}) ] with the α that minimises the estimated error of g_t.

    With D_i = d_i(ξ_t), E_i = d_i^{ξ_t}(ξ_{t−1}) and F = D − E for trajectory i, traces of the covariances of their means
    s = tr Cov(D̄), δ = tr Cov(F̄), c = tr Cov(D̄, F̄), and V the squared error of g_{t−1}:

        1 − α = (s − c) / (s + V + δ − 2c), between 0 and 0.99
        V    ← α² s + (1 − α)² (V + δ) + 2 α (1 − α) c

    Exploding weights show as a large δ in the same batch, and switch the memory off. α depends on the batch, which biases g_t
    a little. `alpha`: use this α instead; 1 is `plain`, and any other is `storm`.
    """

    alpha: Array | None = None

    def init(self, params: Tree, blank: Blank) -> Memory:
        """A memory that the first large batch overwrites."""
        return Memory(params, jax.tree.map(jnp.zeros_like, params), as_float(0.0))

    def wants(self, here: Here, memory: Memory) -> tuple[Sample, ...]:
        return (Sample(here.n),)

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Tracked:
        (batch,) = batches
        now = here.estimate_each(here.params, batch)
        d = mean(now.gradient)
        s = covariance(now.gradient, now.gradient)
        if here.large:
            return Tracked(d, Memory(here.params, d, s), batch, info={"alpha": jnp.ones_like(s)})
        then = here.estimate_each(memory.params, batch, now.baseline)
        F = add(now.gradient, then.gradient, -1.0)
        delta, c = covariance(F, F), covariance(now.gradient, F)
        V = memory.error
        total = s + V + delta - 2 * c
        kept = jnp.clip(jnp.where(total > 0, (s - c) / jnp.where(total > 0, total, 1.0), 0.0), 0.0, LARGEST)
        alpha = 1 - kept if self.alpha is None else self.alpha
        g = corrected(d, mean(then.gradient), memory.gradient, alpha)
        error = alpha**2 * s + (1 - alpha) ** 2 * (V + delta) + 2 * alpha * (1 - alpha) * c
        return Tracked(g, Memory(here.params, g, error), batch, then.weight, info={"alpha": alpha})


def mean(each: Tree) -> Tree:
    """The mean over trajectories, the first axis."""
    return jax.tree.map(lambda x: x.mean(axis=0), each)


def covariance(a: Tree, b: Tree) -> Array:
    """tr Cov(ā, b̄) of the means over n trajectories, estimated from the trajectories. 0 for a single one."""
    n = len(jax.tree.leaves(a)[0])
    products = jax.tree.map(lambda x, y: ((x - x.mean(axis=0)) * (y - y.mean(axis=0))).sum(), a, b)
    return sum(jax.tree.leaves(products), jnp.zeros(())) / (n * max(n - 1, 1))


def gain(alpha: float | None = None) -> Gain:
    """STORM with α measured on each batch; `alpha`: with this one instead."""
    if alpha is None:
        return Gain()
    if not isinstance(alpha, jax.core.Tracer) and not 0 <= alpha <= 1:
        raise InputError(f"alpha is {alpha}; expected a momentum factor in [0, 1].")
    return Gain(as_float(alpha))

"""Guards: what replaces an importance weight w, so that a few large ones do not dominate a batch.

| guard           | w becomes                               | used by                                        |
|-----------------|-----------------------------------------|------------------------------------------------|
| clip            | min(max(w, low), high)                  | IS-MBPG (high only), HA-MBPG, VR-BGPO          |
| self_normalised | w divided by its mean over the batch    | SVRPG (Papini et al. 2018)                     |
| power_mean      | w / ((1 − λ) + λ w), which is below 1/λ | RT-PG (Metelli et al. 2021)                    |

Every guard leaves w = 1 unchanged, so estimates on-policy are the same with and without. Off-policy it biases the estimate.
A guard belongs to an estimator, `estimators.gpomdp(gamma, guard=guards.clip(high=1.2))`, and works with every tracker.
"""

from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.errors import InputError
from stormpg.pytrees import as_float, record


class Guard(Protocol):
    def apply(self, weight: Array, present: Array) -> Array:
        """The weights to use instead, [n, H]. `present`, [n, 1]: 0 for trajectories that do not count."""


@record
class Clip:
    low: Array
    high: Array

    def apply(self, weight: Array, present: Array) -> Array:
        return jnp.clip(weight, self.low, self.high)


@record
class SelfNormalised:
    def apply(self, weight: Array, present: Array) -> Array:
        mean = (weight * present).sum(axis=0, keepdims=True) / jnp.maximum(present.sum(), 1)
        return weight / jnp.where(mean > 0, mean, 1.0)


@record
class PowerMean:
    lam: Array

    def apply(self, weight: Array, present: Array) -> Array:
        return power(weight, self.lam)


def power(weight: Array, lam: Array) -> Array:
    """w / ((1 − λ) + λ w)."""
    # An infinite weight becomes 1/λ, which is the limit.
    w = jnp.minimum(weight, float(np.finfo(weight.dtype).max) ** 0.5)
    return w / ((1 - lam) + lam * w)


def clip(low: float = 0.0, high: float = float("inf")) -> Clip:
    """Weights between `low` and `high`; both sides of 1, so that weights on-policy stay 1."""
    traced = isinstance(low, jax.core.Tracer) or isinstance(high, jax.core.Tracer)
    if not traced and not 0 <= low <= 1 <= high:
        raise InputError(f"low is {low} and high is {high}; expected 0 ≤ low ≤ 1 ≤ high.")
    return Clip(as_float(low), as_float(high))


def self_normalised() -> SelfNormalised:
    """Weights divided by their mean over the batch, at every step."""
    return SelfNormalised()


def power_mean(lam: float) -> PowerMean:
    """`lam` (λ): 0 leaves the weights as they are, 1 makes all of them 1."""
    if not isinstance(lam, jax.core.Tracer) and not 0 <= lam <= 1:
        raise InputError(f"lam is {lam}; expected a number in [0, 1].")
    return PowerMean(as_float(lam))

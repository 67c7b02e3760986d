"""A Gaussian policy whose actions are clipped to bounds: the density of the clipped action.

The environment clips an action a ~ N(μ, σ²) to [low, high], so it cannot distinguish actions beyond a bound. The score of a is
then mostly noise if μ is near a bound. The clipped action is low with probability Φ((low − μ)/σ), high with probability
Φ((μ − high)/σ), and a otherwise. Its score has the same mean and a smaller variance (Fujita and Maeda 2018), its importance
weights and its divergence are those of what the environment sees.
"""

import numpy as np
from jax import Array
from jax import numpy as jnp
from jax.scipy.special import log_ndtr
from jax.scipy.stats import norm

from stormpg.policies.families import Gaussian
from stormpg.pytrees import Tree, record, static

FAR = 10.0  # deviations, in place of a bound that does not exist: any finite number


@record
class Censored(Gaussian):
    """π_ξ of the clipped action. Actions are sampled, recorded and sent to the environment as by `Gaussian`: not clipped.

    `bounds`: the lower and the upper bounds, infinite if there is none.
    """

    bounds: tuple[tuple[float, ...], tuple[float, ...]] = static(default=((), ()))

    log_prob_rows = Gaussian.log_prob_rows  # its own, see `own_method`

    def distances(self, mean: Array, sigma: Array) -> tuple[Array, Array]:
        """Return (low − μ)/σ and (μ − high)/σ, and −FAR where a bound is infinite."""
        low, high = (np.asarray(bound) for bound in self.bounds)
        below = jnp.where(np.isfinite(low), (np.nan_to_num(low, neginf=0.0).astype(mean.dtype) - mean) / sigma, -FAR)
        above = jnp.where(np.isfinite(high), (mean - np.nan_to_num(high, posinf=0.0).astype(mean.dtype)) / sigma, -FAR)
        return below, above

    def log_density(self, params: Tree, mean: Array, action: Array) -> Array:
        """Return the log-density of the clipped action under this mean."""
        sigma = self.deviation(params)
        low, high = (np.asarray(bound, mean.dtype) for bound in self.bounds)
        below, above = self.distances(mean, sigma)
        inside = norm.logpdf(action, mean, sigma)
        return jnp.where(action <= low, log_ndtr(below), jnp.where(action >= high, log_ndtr(above), inside)).sum()

    def kl(self, params: Tree, other: Tree, observation: Array) -> Array:
        (p_mean, p_sigma), (q_mean, q_sigma) = ((self.mode(x, observation), self.deviation(x)) for x in (params, other))
        p_below, p_above = self.distances(p_mean, p_sigma)
        q_below, q_above = self.distances(q_mean, q_sigma)
        low, high = (np.isfinite(np.asarray(bound)) for bound in self.bounds)
        # The moments of u = (a − μ_p)/σ_p between the bounds: ∫ 1, ∫ u and ∫ u².
        start, end = jnp.where(low, norm.pdf(p_below), 0.0), jnp.where(high, norm.pdf(p_above), 0.0)
        mass = 1 - jnp.where(low, jnp.exp(log_ndtr(p_below)), 0.0) - jnp.where(high, jnp.exp(log_ndtr(p_above)), 0.0)
        first, second = start - end, mass + p_below * start + p_above * end
        gap = p_mean - q_mean
        square = (p_sigma**2 * second + 2 * p_sigma * gap * first + gap**2 * mass) / q_sigma**2
        inside = mass * jnp.log(q_sigma / p_sigma) + 0.5 * (square - second)
        return (inside + tail(p_below, q_below, low) + tail(p_above, q_above, high)).sum()


def tail(p: Array, q: Array, there: np.ndarray) -> Array:
    """Return the part of the divergence that comes from the probabilities Φ(p) and Φ(q) of one bound, if it exists."""
    return jnp.where(there, jnp.exp(log_ndtr(p)) * (log_ndtr(p) - log_ndtr(q)), 0.0)

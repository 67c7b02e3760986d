"""Trackers that estimate the gradient from the last K batches, see `windows`."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from stormpg import guards, windows
from stormpg.contract import Blank, Here, Sample, Tracked
from stormpg.errors import InputError
from stormpg.estimators import window_coefficients
from stormpg.pytrees import Tree, as_float, record, static
from stormpg.scores import score_sum
from stormpg.trajectories import Batch, Weights
from stormpg.windows import Window


@record
class Windowed:
    """g_t = (1/(K·B)) Σ_i Σ_t c_t S_t over all trajectories of the window, with weights under the mixture of its K policies.

    While there are fewer than K batches, over those. A baseline is computed from other trajectories of the window, see
    `baselines.from_other_groups`. With estimators without `from_now` and with cumulative weights it is unbiased for fixed
    ξ_1..ξ_K. K = 1 is `plain`.
    """

    K: int = static()

    def init(self, params: Tree, blank: Blank) -> Window:
        return windows.empty(self.K, params, blank)

    def wants(self, here: Here, memory: Window) -> tuple[Sample, ...]:
        return (Sample(here.n),)

    def advance(self, here: Here, batch: Batch, memory: Window) -> tuple[Window, Weights]:
        """The window with the new batch, and the weights of all its steps under ξ_t."""
        if self.K * here.n != len(memory.trajectories.mask):
            raise InputError(f"a window needs batches of the same size, not of S0 and of B = {here.n}: use schedules.always.")
        window = windows.add_batch(memory, here.policy, batch)
        return window, windows.weights(window)

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Window) -> Tracked:
        (batch,) = batches
        window, weights = self.advance(here, batch, memory)
        taken = window.trajectories
        c = window_coefficients(here.estimator, taken, weights, window.age) * taken.mask
        g = score_sum(here.policy, here.params, taken, c / (window.filled * here.n))
        return tracked(g, window, weights, batch, weights.of(here.estimator.weighting))


@record
class Reused(Windowed):
    """g_t = Σ_j a_j (1/B) Σ_i Σ_t c_t S_t: batch j has weights w/((1 − λ_j) + λ_j w), w relative to the policy that sampled it.

    With D_j the mean square of the weights of its trajectories and N the number of all, λ_j = √(4 ln(1/δ) / (3 N D_j)), at most
    1, and a_j in proportion to D_j^{−½} (RT-PG, Montenegro et al. 2026). Biased by the power mean. K = 1 is `plain`.
    """

    delta: Array

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Window) -> Tracked:
        (batch,) = batches
        window, _ = self.advance(here, batch, memory)
        taken, n = window.trajectories, here.n
        weights = windows.own_weights(window)
        present = taken.mask[:, 0].reshape(self.K, n)
        square = (weights.cumulative[:, -1].reshape(self.K, n) ** 2).mean(axis=1)
        square = jnp.clip(square, 1.0, 1e12)  # its expectation is at least 1
        lam = jnp.minimum(jnp.sqrt(4 * jnp.log(1 / self.delta) / (3 * window.filled * n * square)), 1.0)
        # A trajectory with its own policy's parameters has weight 1, whatever λ.
        used = Weights(*(guards.power(x, jnp.repeat(lam, n)[:, None]) for x in weights))
        share = present[:, 0] / jnp.sqrt(square)
        c = window_coefficients(here.estimator, taken, used, window.age) * taken.mask
        c = c * jnp.repeat(share / share.sum() / n, n)[:, None]
        return tracked(score_sum(here.policy, here.params, taken, c), window, used, batch, used.of(here.estimator.weighting))


def tracked(
    g: Tree,
    window: Window,
    weights: Weights,
    batch: Batch,
    used: Array,
    rate: Array | None = None,
    info: Mapping[str, Array] | None = None,
) -> Tracked:
    """The result of a tracker over a window: a step may look at the states of all its batches.

    `used`: the weights whose effective share of steps is recorded.
    """
    n, horizon = batch.trajectories.mask.shape
    shown = jax.lax.dynamic_slice_in_dim(weights.cumulative, window.newest * n, n)[:, :horizon]
    w = used * window.trajectories.mask
    effective = w.sum() ** 2 / jnp.maximum((w**2).sum(), 1e-30) / window.trajectories.mask.sum()
    states = Batch(window.trajectories, None)
    return Tracked(g, window, batch, shown, states, rate, {"effective_steps": effective, **(info or {})})


def check_places(K: int) -> None:
    if not isinstance(K, int) or isinstance(K, bool) or K < 1:
        raise InputError(f"K is {K!r}; expected a whole number of at least 1.")


def window(K: int) -> Windowed:
    """g_t from the last K batches, with weights under the mixture of the K policies that sampled them."""
    check_places(K)
    return Windowed(K)


def reused(K: int, delta: float = 0.2) -> Reused:
    """g_t from the last K batches, each with power-mean weights and a share that falls with their mean square."""
    check_places(K)
    if not isinstance(delta, jax.core.Tracer) and not 0 < delta < 1:
        raise InputError(f"delta is {delta}; expected a probability in (0, 1).")
    return Reused(K, as_float(delta))

"""Trackers that estimate the gradient from the last K batches, see `windows`."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array
from optax.tree_utils import tree_vdot

from stormpg import windows
from stormpg.contract import Blank, Here, Sample, Tracked
from stormpg.errors import InputError
from stormpg.estimators import Estimator, window_coefficients
from stormpg.pytrees import Tree, as_float, record, static
from stormpg.scores import score_sum, score_sums
from stormpg.trajectories import Batch, Weights, sums_to_come
from stormpg.windows import Window

DOUBT = 0.05  # added to signal-to-noise ratios, so that no estimator is dropped for one batch, and steps never stop
TINY = 0.003  # advantages below this share of the rewards to come are errors of the value function, and are not scaled up
FEW = 2  # up to this number of batches, no noise is measured


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
        return tracked(g, window, weights, batch)


def tracked(
    g: Tree, window: Window, weights: Weights, batch: Batch, rate: Array | None = None, info: Mapping[str, Array] | None = None
) -> Tracked:
    """The result of a tracker over a window: a step may look at the states of all its batches."""
    n, horizon = batch.trajectories.mask.shape
    shown = jax.lax.dynamic_slice_in_dim(weights.cumulative, window.newest * n, n)[:, :horizon]
    w = weights.step * window.trajectories.mask
    effective = w.sum() ** 2 / jnp.maximum((w**2).sum(), 1e-30) / window.trajectories.mask.sum()
    states = Batch(window.trajectories, None)
    return Tracked(g, window, batch, shown, states, rate, {"effective_steps": effective, **(info or {})})


@record
class Blended(Windowed):
    """Two estimators over one window, mixed by their signal-to-noise ratios: g_t = u g_A + (1 − u) g_C.

    A is `critic`, C the estimator of the algorithm. Both coefficients are scaled to a root mean square of 1, those of A after
    subtracting their weighted mean. With g_k the gradient from batch k of the window alone, the noise of their mean is
    Σ_k ‖g_k − ḡ‖² / (K (K − 1)), its signal is ‖ḡ‖² minus that noise, and r is signal/noise + 0.05:

        u = share r_A / (share r_A + (1 − share) r_C)

    A `share` below ½ asks for more signal from a critic, whose errors are the same in all batches and do not show as noise.

    The same measure of g_t itself, signal/(signal + noise), is the `rate` of the step: small near an optimum.
    """

    critic: Estimator
    share: Array

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Window) -> Tracked:
        (batch,) = batches
        window, weights = self.advance(here, batch, memory)
        taken, mask = window.trajectories, window.trajectories.mask
        a, c = (window_coefficients(one, taken, weights, window.age) * mask for one in (self.critic, here.estimator))
        a = a - weights.step * mask * (a.sum() / jnp.maximum((weights.step * mask).sum(), 1e-30))
        least = TINY * jnp.sqrt((sums_to_come(taken.reward, here.estimator.gamma) ** 2 * mask).sum() / mask.sum())
        scaled = jnp.stack([unit(x, mask, least) for x in (a, c)]) * window.filled / mask.sum()
        each = score_sums(here.policy, here.params, taken, scaled, self.K)  # [2, K, ...]
        r_a, r_c = (signal_to_noise(jax.tree.map(lambda x, i=i: x[i], each), window.filled) + DOUBT for i in (0, 1))
        u = self.share * r_a / (self.share * r_a + (1 - self.share) * r_c)
        mixed = jax.tree.map(lambda x: u * x[0] + (1 - u) * x[1], each)
        r = signal_to_noise(mixed, window.filled)
        g = jax.tree.map(lambda x: x.sum(axis=0) / window.filled, mixed)
        return tracked(g, window, weights, batch, (r + DOUBT) / (r + 1), {"critic_share": u, "signal": r / (r + 1)})


def unit(c: Array, mask: Array, least: Array) -> Array:
    """Coefficients scaled to a root mean square of 1 over the steps of the window, or less if it is below `least`."""
    size = jnp.maximum(jnp.sqrt((c**2).sum() / mask.sum()), least)
    return c / jnp.where(size > 0, size, 1.0)


def signal_to_noise(each: Tree, filled: Array) -> Array:
    """Of the mean of the gradients of `filled` batches, leaves [K, ...] that are 0 for the others. 1 for a few batches."""
    mean = jax.tree.map(lambda x: x.sum(axis=0) / filled, each)
    square = tree_vdot(mean, mean)
    spread = tree_vdot(each, each) / filled - square  # Σ_k ‖g_k − ḡ‖² / K
    noise = jnp.maximum(spread, 0.0) / jnp.maximum(filled - 1, 1)
    ratio = jnp.maximum(square - noise, 0.0) / jnp.where(noise > 0, noise, 1.0)
    return jnp.where((filled > FEW) & (noise > 0), ratio, 1.0)


def check_places(K: int) -> None:
    if not isinstance(K, int) or isinstance(K, bool) or K < 1:
        raise InputError(f"K is {K!r}; expected a whole number of at least 1.")


def window(K: int) -> Windowed:
    """g_t from the last K batches, with weights under the mixture of the K policies that sampled them."""
    check_places(K)
    return Windowed(K)


def blend(K: int, critic: Estimator, share: float = 0.3) -> Blended:
    """Two estimators over the last K batches: the algorithm's and `critic`, whose prior share is `share`."""
    check_places(K)
    if not isinstance(share, jax.core.Tracer) and not 0 <= share <= 1:
        raise InputError(f"share is {share}; expected a number in [0, 1].")
    return Blended(K, critic, as_float(share))

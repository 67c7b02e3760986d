"""Trackers that estimate the gradient from the last K batches, see `windows`."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from stormpg import windows
from stormpg.contract import Blank, Here, Sample, Tracked
from stormpg.errors import InputError
from stormpg.estimators import window_coefficients
from stormpg.pytrees import Tree, record, static
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

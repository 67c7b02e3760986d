"""A tracker over a window that mixes two estimators, and explores until the rewards differ."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from optax.tree_utils import tree_vdot

from stormpg.baselines import CLIP, states_of
from stormpg.contract import Blank, Here, Sample, Tracked
from stormpg.errors import InputError
from stormpg.estimators import Estimator, window_coefficients
from stormpg.pytrees import Tree, as_float, record
from stormpg.scores import score_sums
from stormpg.trackers.windowed import Windowed, check_places, tracked
from stormpg.trajectories import Batch, Trajectories, sums_to_come
from stormpg.windows import Window

DOUBT = 0.05  # added to signal-to-noise ratios, so that no estimator is dropped for one batch, and steps never stop
TINY = 0.003  # advantages below this share of the rewards to come are errors of the value function, and are not scaled up
SMALL = 0.02  # if returns differ by less than this share, the policy is near the best, and steps are shorter
FIRST = 0.2  # in the first K batches, rewards that differ by less than this share do not end exploration
FEW = 2  # up to this number of batches, no noise is measured


class Memory(NamedTuple):
    """The window, and whether rewards have differed between episodes so far."""

    window: Window
    rewarded: Array


@record
class Blended:
    """Two estimators over one window, mixed by their signal-to-noise ratios: g_t = u g_A + (1 − u) g_C.

    A is `critic`, C the estimator of the algorithm. Both coefficients are scaled to a root mean square of 1, those of A after
    subtracting their weighted mean. With g_k the gradient from batch k of the window alone, the noise of their mean is
    Σ_k ‖g_k − ḡ‖² / (K (K − 1)), its signal is ‖ḡ‖² minus that noise, and r is signal/noise + 0.05:

        u = share r_A / (share r_A + (1 − share) r_C)

    A `share` below ½ asks for more signal from a critic, whose errors are the same in all batches and do not show as noise.

    The same measure of g_t itself, signal/(signal + noise), is the `rate` of the step: small near an optimum.

    Until the rewards of episodes differ for the first time there is nothing to learn from them. The reward of a step is then
    how unusual its state is in the window (`novelty`), so that the policy reaches states it has not seen. In the first K
    batches, differences below 20% do not count: they may be the cost of actions, while the goal has not been found. Later, if
    returns differ by less than 2%, the `rate` is smaller: what is left are mostly errors of the value function.
    """

    windowed: Windowed
    critic: Estimator
    share: Array

    def init(self, params: Tree, blank: Blank) -> Memory:
        return Memory(self.windowed.init(params, blank), jnp.zeros((), bool))

    def wants(self, here: Here, memory: Memory) -> tuple[Sample, ...]:
        return self.windowed.wants(here, memory.window)

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Memory) -> Tracked:
        (batch,) = batches
        window, weights = self.windowed.advance(here, batch, memory.window)
        taken, mask = window.trajectories, window.trajectories.mask
        exploring = taken._replace(reward=novelty(taken))
        a, c, n = (
            window_coefficients(one, of, weights, window.age) * mask
            for one, of in ((self.critic, taken), (here.estimator, taken), (here.estimator, exploring))
        )
        a = a - weights.step * mask * (a.sum() / jnp.maximum((weights.step * mask).sum(), 1e-30))
        to_come, differing = (root_mean_square(x, mask) for x in (sums_to_come(taken.reward, here.estimator.gamma) * mask, c))
        least = TINY * to_come
        needed = jnp.where(window.batches < window.places, FIRST * to_come, 0.5 * least)
        rewarded = memory.rewarded | (differing > needed)
        evidence = jnp.where(rewarded, jnp.minimum(differing / jnp.maximum(SMALL * to_come, 1e-30), 1.0), 1.0)
        scaled = jnp.where(rewarded, jnp.stack([unit(a, mask, least), unit(c, mask, least)]), unit(n, mask, 0.0))
        each = score_sums(here.policy, here.params, taken, scaled * window.filled / mask.sum(), window.places)  # [2, K, ...]
        r_a, r_c = (signal_to_noise(jax.tree.map(lambda x, i=i: x[i], each), window.filled) + DOUBT for i in (0, 1))
        u = self.share * r_a / (self.share * r_a + (1 - self.share) * r_c)
        mixed = jax.tree.map(lambda x: u * x[0] + (1 - u) * x[1], each)
        r = signal_to_noise(mixed, window.filled)
        g = jax.tree.map(lambda x: x.sum(axis=0) / window.filled, mixed)
        info = {"critic_share": u, "signal": r / (r + 1), "exploring": (~rewarded).astype(mask.dtype)}
        return tracked(g, window, weights, batch, weights.step, evidence * (r + DOUBT) / (r + 1), info)._replace(
            memory=Memory(window, rewarded)
        )


def novelty(trajectories: Trajectories) -> Array:
    """The mean square of the standardised components of each state, [n, H]: large far from the usual states of the window."""
    s, shift, spread = states_of(trajectories)
    return (jnp.clip((s - shift) / spread, -CLIP, CLIP) ** 2).mean(axis=-1) * trajectories.mask


def root_mean_square(c: Array, mask: Array) -> Array:
    """Over the steps of the window."""
    return jnp.sqrt((c**2).sum() / mask.sum())


def unit(c: Array, mask: Array, least: Array | float) -> Array:
    """Coefficients scaled to a root mean square of 1 over the steps of the window, or less if it is below `least`."""
    size = jnp.maximum(root_mean_square(c, mask), least)
    return c / jnp.where(size > 0, size, 1.0)


def signal_to_noise(each: Tree, filled: Array) -> Array:
    """Of the mean of the gradients of `filled` batches, leaves [K, ...] that are 0 for the others. 1 for a few batches."""
    mean = jax.tree.map(lambda x: x.sum(axis=0) / filled, each)
    square = tree_vdot(mean, mean)
    spread = tree_vdot(each, each) / filled - square  # Σ_k ‖g_k − ḡ‖² / K
    noise = jnp.maximum(spread, 0.0) / jnp.maximum(filled - 1, 1)
    ratio = jnp.maximum(square - noise, 0.0) / jnp.where(noise > 0, noise, 1.0)
    return jnp.where((filled > FEW) & (noise > 0), ratio, 1.0)


def blend(K: int, critic: Estimator, share: float = 0.3) -> Blended:
    """Two estimators over the last K batches: the algorithm's and `critic`, whose prior share is `share`."""
    check_places(K)
    if not isinstance(share, jax.core.Tracer) and not 0 <= share <= 1:
        raise InputError(f"share is {share}; expected a number in [0, 1].")
    return Blended(Windowed(K), critic, as_float(share))

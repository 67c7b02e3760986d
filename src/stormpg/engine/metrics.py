"""What is recorded of an iteration: one row of the metrics.

A new column is a field of `Row`, its value in `recorded`, its name in `RECORDED` of `runs/table.py` and, for loggers, in
`QUANTITIES` of `runs/logs.py`. Older run folders do not have it, and their readers must allow that. A column of one tracker
needs none of this: it is an entry of `Tracked.info`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.contract import Here, Tracked
from stormpg.trajectories import Batch, discounted, mean_return


class Row(NamedTuple):
    """The record of one iteration."""

    live: Array  # False: the iteration did not take place
    large: Array
    batch: Array  # trajectories sampled in it
    steps: Array  # environment steps sampled in it
    mean_return: Array  # of the tracker's batch; sampled at ξ_t unless the tracker wanted another point
    discounted_return: Array
    gradient_norm: Array  # ‖g_t‖
    weight_mean: Array  # of the cumulative importance weights of the correction, over the steps taken
    weight_max: Array
    effective_sample_size: Array  # (Σw)²/Σw² over the weights of whole trajectories
    diverged: Array
    info: dict[str, Array]  # columns that the tracker adds


def recorded(here: Here, tracked: Tracked, batches: tuple[Batch, ...], size: Array, diverged: Array) -> Row:
    """The row of an iteration that took place."""
    shown = tracked.batch.trajectories
    weight = jnp.ones_like(shown.mask) if tracked.weight is None else tracked.weight
    steps = sum((batch.trajectories.mask.sum() for batch in batches), jnp.zeros(()))
    return Row(
        live=jnp.ones((), dtype=bool),
        large=jnp.full((), here.large),
        batch=jnp.full((), sum(len(batch.trajectories.mask) for batch in batches)),
        steps=steps.astype(int),
        mean_return=mean_return(shown),
        discounted_return=discounted(shown, here.estimator.gamma).sum(axis=1).mean(),
        gradient_norm=size,
        weight_mean=(weight * shown.mask).sum() / shown.mask.sum(),
        weight_max=jnp.where(shown.mask > 0, weight, 0.0).max(),
        effective_sample_size=effective_sample_size(weight[:, -1]),
        diverged=diverged,
        info={name: jnp.asarray(value) for name, value in tracked.info.items()},
    )


def smallest(x: Array) -> float:
    """The smallest positive normal number of the type of an array."""
    return float(np.finfo(x.dtype).tiny)


def effective_sample_size(weight: Array) -> Array:
    """(Σw)²/Σw², computed from weights scaled by the largest, so that no square overflows."""
    scaled = weight / jnp.maximum(weight.max(), smallest(weight))
    return scaled.sum() ** 2 / jnp.maximum((scaled**2).sum(), smallest(weight))

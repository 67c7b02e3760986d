"""Variance and bias of g_t along training, against the gradient of a large batch at the same ξ_t.

At a checkpoint of a run the past is held fixed. The next batch is sampled repeatedly at ξ_t, and g_t is computed from each
with the tracker's current memory. The spread of these g_t comes from the next batch (variance). The difference of their mean
from ∇L(ξ_t) is carried over by the memory (bias). For comparison, the plain estimate d(ξ_t) uses the same batches.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from stormpg.algorithms import Algorithm
from stormpg.engine.iteration import Setup, State, here_at
from stormpg.envs import Environment
from stormpg.estimators import gradient
from stormpg.policies.constructors import policy_for
from stormpg.pytrees import Tree, traceable
from stormpg.sampling import rollout
from stormpg.statistics import iqm
from stormpg.train import train
from stormpg.trajectories import RUNS, Batch

RESAMPLES = 64
REFERENCE_BATCH = 100


class Spread(NamedTuple):
    """Squared norms, as expectations over the next batch given the past."""

    variance: Array  # E‖g_t − E g_t‖²
    bias: Array  # ‖E g_t − ∇L(ξ_t)‖², corrected for the sampling noise of both
    error: Array  # their sum
    plain: Array  # the variance of d(ξ_t) from a batch of the same size
    signal: Array  # ‖∇L(ξ_t)‖², corrected for sampling noise


@functools.partial(jax.jit, static_argnames=("env", "horizon", "reference"))
def spread(
    env: Environment, horizon: int, reference: int, policy: Any, algorithm: Algorithm, states: State, key: Array
) -> Spread:
    """Return the spread for each run in `states`. ∇L(ξ_t) is the mean of `reference` batches of REFERENCE_BATCH."""
    setup, estimator = Setup(env, horizon, policy, algorithm), algorithm.estimator
    always_large = all(large for large, _ in algorithm.schedule.unit)

    def one(state: State, key: Array) -> Spread:
        flat: Callable[[Tree], Array] = lambda tree: ravel_pytree(tree)[0]
        keys = jax.random.split(key, reference + RESAMPLES)

        def large(key: Array) -> Array:
            batch = rollout(env, policy, state.params, key, REFERENCE_BATCH, horizon)
            return flat(gradient(estimator, policy, state.params, batch))

        def small(key: Array) -> tuple[Array, Array]:
            here = here_at(setup, state._replace(key=key), large=always_large)
            batch = Batch(rollout(env, policy, state.params, key, here.n, horizon), state.params)
            plain = flat(gradient(estimator, policy, state.params, batch.trajectories))
            return flat(algorithm.tracker.track(here, (batch,), state.memory).gradient), plain

        truth = jax.lax.map(large, keys[:reference])
        tracked, plain = jax.lax.map(small, keys[reference:])
        total: Callable[[Array], Array] = lambda x: x.var(axis=0, ddof=1).sum()
        noise = total(truth) / reference
        gap = ((tracked.mean(axis=0) - truth.mean(axis=0)) ** 2).sum()
        bias = gap - total(tracked) / RESAMPLES - noise  # unbiased, so it may be negative
        signal = (truth.mean(axis=0) ** 2).sum() - noise
        return Spread(total(tracked), bias, total(tracked) + bias, total(plain), signal)

    return jax.vmap(one, axis_name=RUNS)(states, jax.random.split(key, states.iteration.shape[0]))


def along(
    env: Environment,
    algorithm: Algorithm,
    checkpoints: Sequence[int],
    seeds: int,
    trained_seeds: int,
    reference: int,
) -> dict[str, list[float | None]]:
    """Return the interquartile mean of each quantity over `seeds` seeds at each checkpoint (number of trajectories).

    `trained_seeds` is the number of seeds to train with `train`. Only the first `seeds` of them are measured. If another
    experiment trained the same number, its compiled program is reused.
    """
    policy = policy_for(env)
    found: dict[str, list[float | None]] = {name: [] for name in Spread._fields}
    for checkpoint in checkpoints:
        if checkpoint < algorithm.schedule.S0:  # the first batch is not complete
            for values in found.values():
                values.append(None)
            continue
        states = train(env, algorithm, checkpoint, trained_seeds).states
        states = jax.tree.map(lambda x: x[:seeds], states)
        measured = spread(
            env, env.horizon, -(-reference // REFERENCE_BATCH), traceable(policy), algorithm, states, jax.random.key(checkpoint)
        )
        for name, values_of_seeds in measured._asdict().items():
            found[name].append(float(iqm(np.asarray(values_of_seeds))))
    return found

"""Batches of n trajectories of a small finite process, sampled as counts: same distribution, at a cost independent of n.

All K trajectories of H steps are the leaves of a tree. The n trajectories are split among the first states, each part among
the actions, each part among the next states, and so on, with binomial draws. The result is a `Trajectories` of all K leaves
in which the rewards of leaf k are multiplied by K c_k/n, where c_k is the count of the leaf. Estimators without a baseline
are means over trajectories and linear in the rewards, so on this batch they equal the mean over the n trajectories exactly.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs.chain import Tables
from stormpg.errors import InputError
from stormpg.pytrees import Tree
from stormpg.scores import log_probs
from stormpg.theory.tabular import probabilities
from stormpg.trajectories import Trajectories


class Branches(NamedTuple):
    """A finite process without terminal states, with only the next states that have positive probability."""

    tables: Tables
    ahead: np.ndarray  # [S, A, branching] the next states
    chance: np.ndarray  # [S, A, branching] their probabilities


def branches(tables: Tables) -> Branches:
    """Return the branches of a process. InputError if it has terminal states or the number of next states differs."""
    possible = (tables.P > 0).sum(axis=2)
    if tables.terminal.any() or (possible != possible.flat[0]).any():
        raise InputError(
            "counts need a process without terminal states and with the same number of next states everywhere; "
            f"got {int(tables.terminal.sum())} terminal states and between {possible.min()} and {possible.max()} next states."
        )
    ahead = np.sort(np.argsort(-tables.P, axis=2, kind="stable")[:, :, : possible.flat[0]], axis=2)
    return Branches(tables, ahead, np.take_along_axis(tables.P, ahead, axis=2))


def split(key: Array, counts: Array, chance: Array) -> Array:
    """Split counts [...] among outcomes with these probabilities [..., outcomes], by successive binomial draws."""
    left, remaining, parts = counts, jnp.ones_like(counts), []
    for outcome, own in enumerate(jax.random.split(key, chance.shape[-1] - 1)):
        p = jnp.clip(chance[..., outcome] / jnp.maximum(remaining, 1e-300), 0.0, 1.0)
        taken = jnp.where(left > 0, jax.random.binomial(own, left, p), 0.0)
        parts.append(taken)
        left, remaining = left - taken, remaining - chance[..., outcome]
    return jnp.stack([*parts, left], axis=-1)


def batch(process: Branches, policy: Any, params: Tree, key: Array, n: Array | float, horizon: int) -> Trajectories:
    """Return n trajectories under π_ξ, ξ = `params`, as the leaves of the tree with scaled rewards."""
    rho = process.tables.rho
    ahead, chance, R = jnp.asarray(process.ahead), jnp.asarray(process.chance), jnp.asarray(process.tables.R)
    pi, n = probabilities(params), jnp.asarray(n, dtype=jnp.result_type(float))
    keys = jax.random.split(key, 1 + 2 * horizon)
    state = jnp.arange(len(rho))
    counts = split(keys[0], n, jnp.asarray(rho))
    each = ahead.shape[1] * ahead.shape[2]
    steps: list[list[Array]] = []  # state, action and reward of the leaves at each step so far
    for h in range(horizon):
        counts = split(keys[1 + 2 * h], counts, pi[state])
        counts = split(keys[2 + 2 * h], counts, chance[state]).ravel()
        before, after = jnp.repeat(state, each), ahead[state].ravel()
        action = jnp.tile(jnp.repeat(jnp.arange(ahead.shape[1]), ahead.shape[2]), len(state))
        steps = [[jnp.repeat(x, each) for x in step] for step in steps]
        steps.append([before, action, R[before, action, after]])
        state = after
    observation, actions, reward = (jnp.stack(x, axis=1) for x in zip(*steps, strict=True))
    reward *= (len(counts) * counts / n)[:, None]
    leaves = Trajectories(observation, actions, reward, jnp.ones_like(reward), jnp.zeros_like(reward))
    return leaves._replace(log_prob=log_probs(policy, params, leaves))

"""Small decision processes with all trajectories enumerated, so expectations are sums instead of sample means."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.envs.chain import Tables, chain_tables
from stormpg.scores import log_probs
from stormpg.trajectories import Trajectories


class Enumerated(NamedTuple):
    """All trajectories of a process, and the factor of their probability that does not depend on the policy."""

    trajectories: Trajectories  # with log_prob 0
    dynamics: np.ndarray  # ρ(s_0) Π P(s_{h+1}|s_h, a_h)


def enumerate_trajectories(tables: Tables, horizon: int) -> Enumerated:
    """Return all trajectories with positive probability."""
    found: list[tuple[list[tuple[int, int, float]], float]] = []

    def extend(state: int, steps: list[tuple[int, int, float]], probability: float) -> None:
        if len(steps) == horizon or (steps and tables.terminal[state]):
            found.append((steps, probability))
            return
        for action, ahead in itertools.product(range(tables.P.shape[1]), range(tables.P.shape[2])):
            chance = tables.P[state, action, ahead]
            if chance > 0:
                extend(ahead, [*steps, (state, action, tables.R[state, action, ahead])], probability * chance)

    for state in np.nonzero(tables.rho)[0]:
        extend(int(state), [], tables.rho[state])
    shape = (len(found), horizon)
    observation, action, reward, mask = (np.zeros(shape, t) for t in (int, int, float, float))
    for i, (steps, _) in enumerate(found):
        for h, (s, a, r) in enumerate(steps):
            observation[i, h], action[i, h], reward[i, h], mask[i, h] = s, a, r, 1.0
    parts = (observation, action, reward, mask, np.zeros(shape))
    return Enumerated(Trajectories(*(jnp.asarray(x) for x in parts)), np.array([p for _, p in found]))


def small_chain(horizon: int, states: int = 3) -> Enumerated:
    """Return all trajectories of a `chain` with few states."""
    return enumerate_trajectories(chain_tables(states, slip=0.3), horizon)


def sampled_by(policy: Any, params: Any, every: Enumerated) -> tuple[Trajectories, jax.Array]:
    """Return the trajectories with their log_prob under these parameters, and their probabilities."""
    log_prob = log_probs(policy, params, every.trajectories)
    return every.trajectories._replace(log_prob=log_prob), jnp.asarray(every.dynamics) * jnp.exp(log_prob.sum(axis=1))


def objective(policy: Any, params: Any, every: Enumerated, gamma: float) -> jax.Array:
    """L(ξ), equation (2), as a sum over all trajectories."""
    trajectories, probability = sampled_by(policy, params, every)
    discount = gamma ** jnp.arange(trajectories.reward.shape[1])
    return (probability * (trajectories.reward * discount).sum(axis=1)).sum()


def expectation_over_batches(function: Any, trajectories: Trajectories, probability: jax.Array, n: int) -> Any:
    """E[function(batch)] over batches of n independent trajectories, as a sum over all possible batches."""
    count = len(probability)
    index = jnp.stack(jnp.meshgrid(*[jnp.arange(count)] * n, indexing="ij"), axis=-1).reshape(-1, n)
    values = jax.lax.map(lambda i: function(jax.tree.map(lambda x: x[i], trajectories)), index, batch_size=2048)
    chance = probability[index].prod(axis=1)
    return jax.tree.map(lambda v: jnp.tensordot(chance, v, axes=1), values)

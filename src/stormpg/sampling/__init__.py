"""Sampling trajectories: rollouts inside JAX (`rollouts`), episodes outside JAX (`episodes`), and on Ray (`ray_actors`).

`rollout` and `empty_batch` take any environment. Called by the engine and `evaluate`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import AnyEnvironment
from stormpg.pytrees import Tree
from stormpg.sampling import episodes, rollouts
from stormpg.trajectories import Batch, Trajectories

__all__ = ["empty_batch", "rollout"]


def rollout(env: AnyEnvironment, policy: Any, params: Tree, key: Array, n: int, horizon: int) -> Trajectories:
    """Sample n trajectories of at most `horizon` steps under π_ξ, ξ = `params`.

    The randomness of a trajectory depends on the key and its index only: the first 5 of 10 are those of a batch of 5.
    """
    sample: Any = rollouts.rollout if env.in_jax else episodes.sample
    batch: Trajectories = sample(env, policy, params, key, n, horizon)
    return batch


def empty_batch(env: AnyEnvironment, policy: Any, params: Tree, n: int, horizon: int) -> Batch:
    """n empty trajectories, with the shapes of sampled ones."""
    sample: Any = rollouts.rollout if env.in_jax else episodes.blank_sample
    shapes = jax.eval_shape(lambda params, key: sample(env, policy, params, key, n, horizon), params, jax.random.key(0))
    return Batch(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), params)

"""Sampling: rollouts inside JAX (`rollouts`), episodes outside (`episodes`), and those on Ray (`ray_actors`).

`rollout` and `empty_batch` take an environment of either kind. The engine and `evaluate` call this folder.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import AnyEnvironment
from stormpg.records import Tree
from stormpg.sampling import episodes, rollouts
from stormpg.trajectories import Batch, Trajectories

__all__ = ["empty_batch", "rollout"]


def rollout(env: AnyEnvironment, policy: Any, params: Tree, key: Array, n: int, horizon: int) -> Trajectories:
    """Sample n trajectories of at most `horizon` steps under π_ξ, ξ = `params`.

    The randomness of a trajectory belongs to its index alone: the first five of ten are the five of five.
    """
    sample: Any = rollouts.rollout if env.in_jax else episodes.sample
    return sample(env, policy, params, key, n, horizon)


def empty_batch(env: AnyEnvironment, policy: Any, params: Tree, n: int, horizon: int) -> Batch:
    """n trajectories in which nothing happens, with the shapes of those that are sampled."""
    sample: Any = rollouts.rollout if env.in_jax else episodes.blank_sample
    shapes = jax.eval_shape(lambda params, key: sample(env, policy, params, key, n, horizon), params, jax.random.key(0))
    return Batch(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), params)

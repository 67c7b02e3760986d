"""Trajectories, and the rollout that samples them inside JAX."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import Environment
from stormpg.records import Tree, where


class Trajectories(NamedTuple):
    """n trajectories, padded to the horizon H. A padded step has mask, reward and log_prob 0.

    Padding stands for an absorbing state without reward, which is what makes a baseline b_h after the end of an
    episode unbiased: estimators subtract it there too, and only the scores are masked.
    """

    observation: Array  # [n, H, ...]
    action: Array  # [n, H, ...] unclipped, as sampled
    reward: Array  # [n, H]
    mask: Array  # [n, H] 1 while the episode runs
    log_prob: Array  # [n, H] under the parameters that sampled it


def rollout(env: Environment, policy: Any, params: Tree, key: Array, n: int, horizon: int) -> Trajectories:
    """Sample n trajectories of at most `horizon` steps under π_ξ, ξ = `params`.

    The randomness of a trajectory belongs to its index alone: the first five of ten are the five of five.
    """
    return jax.vmap(lambda keys: _trajectory(env, policy, params, keys, horizon))(jax.random.split(key, (n, 3)))


def _trajectory(env: Environment, policy: Any, params: Tree, keys: Array, horizon: int) -> Trajectories:
    reset_key, action_key, step_key = keys
    if hasattr(policy, "noise") and hasattr(policy, "act"):
        draws, act = policy.noise(action_key, (horizon,)), policy.act
    else:
        draws, act = jax.random.split(action_key, horizon), lambda params, obs, key: policy.sample(params, key, obs)

    def step(carry: Any, inputs: Any) -> tuple[Any, Trajectories]:
        state, observation, alive = carry
        time, draw = inputs
        action = act(params, observation, draw)
        log_prob = policy.log_prob(params, observation, action)
        # An environment that ignores its key costs nothing here: the compiler drops the unused fold_in.
        ahead, seen, reward, terminated = env.step(jax.random.fold_in(step_key, time), state, action)
        zero = jnp.zeros_like(reward)
        transition = Trajectories(
            observation, action, jnp.where(alive, reward, zero), alive.astype(reward.dtype), jnp.where(alive, log_prob, zero)
        )
        # A finished episode stays where it ended, so that no padded number is ever far out or infinite.
        going = alive & ~terminated
        state, observation = where(going, (ahead, seen), (state, observation))
        return (state, observation, going), transition

    start = (*env.reset(reset_key), jnp.ones((), dtype=bool))
    return jax.lax.scan(step, start, (jnp.arange(horizon), draws))[1]


def mean_return(trajectories: Trajectories) -> Array:
    """The mean undiscounted return of the batch."""
    return trajectories.reward.sum(axis=1).mean()


def discounted(trajectories: Trajectories, gamma: Array | float) -> Array:
    """γ^h r_h, [n, H]."""
    return trajectories.reward * gamma ** jnp.arange(trajectories.reward.shape[1], dtype=trajectories.reward.dtype)

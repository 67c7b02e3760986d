"""Rollouts of environments in JAX."""

from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array
from optax.tree_utils import tree_where

from stormpg import kernels
from stormpg.envs.base import Environment
from stormpg.kernels import keeping
from stormpg.pytrees import Tree, in_steps
from stormpg.trajectories import BLOCK, Trajectories, over_runs


def rollout(env: Environment, policy: Any, params: Tree, key: Array, n: int, horizon: int, keep: bool = False) -> Trajectories:
    """Sample n trajectories, see `sampling.rollout`. Nothing is computed once all episodes have ended.

    `keep`: a `score_sum` at these parameters follows.
    """
    if env.batches is not None:
        batch: Trajectories = env.batches(policy, params, key, n, horizon)
        return batch
    keys = jax.random.split(key, (n, 3))
    start, draws = jax.vmap(env.reset)(keys[:, 0]), noise_of(policy, keys[:, 1], horizon)

    def plain(policy: Any, params: Tree, start: Any, draws: Any) -> Trajectories:
        return _in_jax(env, policy, params, keys[:, 2], start, draws, horizon)

    made, kept = kernels.instead("rollout", plain, policy, params, start, draws, env=env, horizon=horizon, keep=keep)
    keeping.keep(params, made, kept)
    return made


def _in_jax(
    env: Environment, policy: Any, params: Tree, step_keys: Array, start: tuple[Tree, Array], draws: Any, horizon: int
) -> Trajectories:
    """Trajectories from `start`, with these draws for the actions, [n, H, ...], and a key for the steps of each."""
    n = len(step_keys)
    policy = in_steps(policy)
    env_step = jax.jit(env.step)  # so that it is traced once
    blocks = -(-horizon // BLOCK)
    size = horizon if blocks == 1 else BLOCK
    act = policy.act if draws_noise(policy) else lambda params, obs, key: policy.sample(params, key, obs)
    draws = jnp.concatenate(
        (draws, draws[:, : blocks * size - horizon]), axis=1
    )  # the last block runs past H; the excess is cut off

    def step(carry: Any, step_key: Array, time: Array, draw: Any) -> tuple[Any, Trajectories]:
        state, observation, alive = carry
        action = act(params, observation, draw)
        log_prob = policy.log_prob(params, observation, action)
        # The compiler drops the fold_in if the environment ignores its key.
        ahead, seen, reward, terminated = env_step(jax.random.fold_in(step_key, time), state, action)
        zero = jnp.zeros_like(reward)
        transition = Trajectories(
            observation, action, jnp.where(alive, reward, zero), alive.astype(reward.dtype), jnp.where(alive, log_prob, zero)
        )
        # A finished episode stays in its last state, so that padded numbers are never large or infinite.
        going = alive & ~terminated
        state, observation = tree_where(going, (ahead, seen), (state, observation))
        return (state, observation, going), transition

    def block(number: Any, carry: Any) -> tuple[Any, Trajectories]:
        first = number * size
        mine = jnp.swapaxes(jax.lax.dynamic_slice_in_dim(draws, first, size, axis=1), 0, 1)
        every = lambda carry, inputs: jax.vmap(step, (0, 0, None, 0))(carry, step_keys, *inputs)
        after, transitions = jax.lax.scan(every, carry, (first + jnp.arange(size), mine))
        return after, transitions

    begin = (*start, jnp.ones(n, dtype=bool))
    done = block(0, begin)[1] if blocks == 1 else _until_all_ended(block, begin, blocks, size)
    trajectories: Trajectories = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1)[:, :horizon], done)
    return trajectories


def draws_noise(policy: Any) -> bool:
    """Whether a policy has `noise` and `act`, so that the noise of a rollout is drawn in one call."""
    return hasattr(policy, "noise") and hasattr(policy, "act")


def noise_of(policy: Any, keys: Array, horizon: int) -> Array:
    """The randomness of the actions of each trajectory, [n, H, ...]: noise, or a key for each step."""
    if draws_noise(policy):
        noise: Array = jax.vmap(lambda key: policy.noise(key, (horizon,)))(keys)
        return noise
    return jax.vmap(lambda key: jax.random.split(key, horizon))(keys)


def _until_all_ended(block: Any, start: Any, blocks: int, size: int) -> Trajectories:
    """The transitions of all blocks, [blocks · size, n, ...]; zeros after the end of all episodes."""

    def going(loop: tuple[Array, Any, Trajectories]) -> Array:
        number, (_, _, alive), _ = loop
        return (number < blocks) & cast(Array, over_runs(alive.sum()) > 0)

    def advance(loop: tuple[Array, Any, Trajectories]) -> tuple[Array, Any, Trajectories]:
        number, carry, record = loop
        carry, new = block(number, carry)
        put = lambda all, part: jax.lax.dynamic_update_slice_in_dim(all, part, number * size, axis=0)
        return number + 1, carry, jax.tree.map(put, record, new)

    shapes = jax.eval_shape(block, 0, start)[1]
    record = jax.tree.map(lambda s: jnp.zeros((blocks * size, *s.shape[1:]), s.dtype), shapes)
    done: Trajectories = jax.lax.while_loop(going, advance, (jnp.zeros((), dtype=int), start, record))[2]
    return done

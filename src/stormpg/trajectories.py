"""Trajectories, and the rollout that samples them inside JAX."""

import contextlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from optax.tree_utils import tree_where

from stormpg import fused
from stormpg.envs.base import AnyEnvironment, OutsideEnvironment
from stormpg.records import Tree, in_steps


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


BLOCK = 50  # steps between two looks at whether any episode still runs
RUNS = "runs"  # the axis_name of a `jax.vmap` over runs: loops over steps then end for all of them together


def rollout(env: AnyEnvironment, policy: Any, params: Tree, key: Array, n: int, horizon: int) -> Trajectories:
    """Sample n trajectories of at most `horizon` steps under π_ξ, ξ = `params`.

    The randomness of a trajectory belongs to its index alone: the first five of ten are the five of five.
    Nothing is computed once all episodes have ended.
    """
    if isinstance(env, OutsideEnvironment):
        from stormpg.outside import sample

        return sample(env, policy, params, key, n, horizon)
    if env.batches is not None:
        return env.batches(policy, params, key, n, horizon)
    keys = jax.random.split(key, (n, 3))
    start, draws = jax.vmap(env.reset)(keys[:, 0]), noise_of(policy, keys[:, 1], horizon)
    if fused.applies(policy, params):
        from stormpg.fused import kernels, lanes

        with contextlib.suppress(lanes.Unfit):
            return Trajectories(*kernels.rollout(env, policy, params, start, draws, horizon))
    policy = in_steps(policy)
    env_step = jax.jit(env.step)  # traced once, however often the rollout is
    blocks = -(-horizon // BLOCK)
    size = horizon if blocks == 1 else BLOCK
    act = policy.act if draws_noise(policy) else lambda params, obs, key: policy.sample(params, key, obs)
    draws = jnp.concatenate((draws, draws[:, : blocks * size - horizon]), axis=1)  # the last block runs past H, unseen

    def step(carry: Any, step_key: Array, time: Array, draw: Any) -> tuple[Any, Trajectories]:
        state, observation, alive = carry
        action = act(params, observation, draw)
        log_prob = policy.log_prob(params, observation, action)
        # An environment that ignores its key costs nothing here: the compiler drops the unused fold_in.
        ahead, seen, reward, terminated = env_step(jax.random.fold_in(step_key, time), state, action)
        zero = jnp.zeros_like(reward)
        transition = Trajectories(
            observation, action, jnp.where(alive, reward, zero), alive.astype(reward.dtype), jnp.where(alive, log_prob, zero)
        )
        # A finished episode stays where it ended, so that no padded number is ever far out or infinite.
        going = alive & ~terminated
        state, observation = tree_where(going, (ahead, seen), (state, observation))
        return (state, observation, going), transition

    def block(number: Any, carry: Any) -> tuple[Any, Trajectories]:
        first = number * size
        mine = jnp.swapaxes(jax.lax.dynamic_slice_in_dim(draws, first, size, axis=1), 0, 1)
        every = lambda carry, inputs: jax.vmap(step, (0, 0, None, 0))(carry, keys[:, 2], *inputs)
        return jax.lax.scan(every, carry, (first + jnp.arange(size), mine))

    begin = (*start, jnp.ones(n, dtype=bool))
    done = block(0, begin)[1] if blocks == 1 else _until_all_ended(block, begin, blocks, size)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1)[:, :horizon], done)


def draws_noise(policy: Any) -> bool:
    """Whether a policy gives `noise` and `act`, so that the noise of a rollout is drawn at once."""
    return hasattr(policy, "noise") and hasattr(policy, "act")


def noise_of(policy: Any, keys: Array, horizon: int) -> Array:
    """The randomness of the actions of each trajectory, [n, H, ...]: noise, or a key for each step."""
    if draws_noise(policy):
        return jax.vmap(lambda key: policy.noise(key, (horizon,)))(keys)
    return jax.vmap(lambda key: jax.random.split(key, horizon))(keys)


def _until_all_ended(block: Any, start: Any, blocks: int, size: int) -> Trajectories:
    """The transitions of the blocks one after the other, [blocks · size, n, ...]; zeros after the end of all episodes."""

    def going(loop: tuple[Array, Any, Trajectories]) -> Array:
        number, (_, _, alive), _ = loop
        return (number < blocks) & (over_runs(alive.sum()) > 0)

    def advance(loop: tuple[Array, Any, Trajectories]) -> tuple[Array, Any, Trajectories]:
        number, carry, record = loop
        carry, new = block(number, carry)
        put = lambda all, part: jax.lax.dynamic_update_slice_in_dim(all, part, number * size, axis=0)
        return number + 1, carry, jax.tree.map(put, record, new)

    shapes = jax.eval_shape(block, 0, start)[1]
    record = jax.tree.map(lambda s: jnp.zeros((blocks * size, *s.shape[1:]), s.dtype), shapes)
    return jax.lax.while_loop(going, advance, (jnp.zeros((), dtype=int), start, record))[2]


def over_runs(count: Any) -> Any:
    """A sum over all runs of a mapped batch: the same for each, so that a loop that asks it is one loop, not a masked one."""
    try:
        return jax.lax.psum(count, RUNS)
    except NameError:  # not mapped, or not under that name
        return count


def mean_return(trajectories: Trajectories) -> Array:
    """The mean undiscounted return of the batch."""
    return trajectories.reward.sum(axis=1).mean()


def discounted(trajectories: Trajectories, gamma: Array | float) -> Array:
    """γ^h r_h, [n, H]."""
    return trajectories.reward * gamma ** jnp.arange(trajectories.reward.shape[1], dtype=trajectories.reward.dtype)

"""evaluate(): the returns of a policy with fixed parameters over new episodes."""

import functools
import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs import AnyEnvironment, Environment, OutsideEnvironment
from stormpg.errors import InputError
from stormpg.machine.xla import DEFAULTS, Program
from stormpg.pytrees import Opaque, Tree, traceable
from stormpg.sampling.episodes import Sampler
from stormpg.sampling.rollouts import rollout

MEMORY = 2**28  # bytes of trajectories in memory at the same time


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths, one for each episode."""

    returns: np.ndarray
    lengths: np.ndarray


class Greedy(NamedTuple):
    """A policy that always takes the mode of another one."""

    policy: Any

    def sample(self, params: Tree, key: Array, observation: Array) -> Array:
        return cast(Array, self.policy.mode(params, observation))

    def log_prob(self, params: Tree, observation: Array, action: Array) -> Array:
        return jnp.zeros(())


def episodes_key(seed: int, run: tuple[int, ...] = ()) -> Array:
    """The key of the episodes for a seed. It differs from all keys of a training run with that seed.

    `run`: numbers that identify one of several policies (setting and training seed). Each gets different episodes, so that
    the errors of their means are independent.
    """
    return functools.reduce(jax.random.fold_in, run, jax.random.fold_in(jax.random.key(seed), 2**31))


def evaluate(
    env: AnyEnvironment,
    policy: Any,
    params: Tree,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = False,
    horizon: int | None = None,
    run: tuple[int, ...] = (),
) -> Evaluation:
    """Play episodes with sampled actions, or with the mode of the policy if `deterministic`.

    `run`: numbers that identify this policy among several that are evaluated with one seed, for independent episodes.
    """
    key = episodes_key(seed, run)
    length = env.horizon if horizon is None else horizon
    size = part_size(env, episodes, length)
    keys = [key if part == 0 else jax.random.fold_in(key, part) for part in range(-(-episodes // size))]
    if not env.in_jax:
        parts = []
        with Sampler(cast(OutsideEnvironment, env), length) as sampler:
            for one in keys:
                played = sampler.sample(policy, params, one, size, deterministic)
                parts.append((played.reward.sum(axis=1), played.mask.sum(axis=1)))
    else:
        parts = [_play(env, traceable(policy), params, one, size, length, deterministic) for one in keys]
    returns, lengths = (np.concatenate(column)[:episodes] for column in zip(*parts, strict=True))
    return Evaluation(returns, lengths.astype(int))


def part_size(env: AnyEnvironment, episodes: int, horizon: int) -> int:
    """The number of episodes played together, so that they fit into MEMORY. Raise InputError if one does not fit."""
    numbers = sum(
        math.prod(getattr(space, "shape", ())) for space in (env.observation_space, env.action_space, env.action_space)
    )
    each = 2 * 4 * horizon * (numbers + 3)  # observation, action and its noise, reward, mask and log-probability; twice
    if each > MEMORY:
        raise InputError(
            f"an episode of {horizon:,} steps in {env.name} takes {each / 2**30:.1f} GB, and evaluation uses at most "
            f"{MEMORY / 2**30:.1f} GB: give a shorter horizon."
        )
    parts = -(-episodes * each // MEMORY)
    return -(-episodes // parts)


@functools.partial(Program, options=DEFAULTS, static_argnames=("env", "episodes", "horizon", "deterministic"))
def _play(
    env: Environment, policy: Any, params: Tree, key: Array, episodes: int, horizon: int, deterministic: bool
) -> tuple[Array, Array]:
    actor = Opaque(Greedy(policy)) if deterministic else policy
    trajectories = rollout(env, actor, params, key, episodes, horizon)
    return trajectories.reward.sum(axis=1), trajectories.mask.sum(axis=1)

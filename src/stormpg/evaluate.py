"""evaluate(): the return of fixed parameters over fresh episodes."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs import AnyEnvironment, Environment, OutsideEnvironment
from stormpg.outside import Sampler
from stormpg.records import Opaque, Tree, traceable
from stormpg.trajectories import rollout


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths, one for each episode."""

    returns: np.ndarray
    lengths: np.ndarray


class Greedy(NamedTuple):
    """The policy that always takes the mode of another."""

    policy: Any

    def sample(self, params: Tree, key: Array, observation: Array) -> Array:
        return self.policy.mode(params, observation)

    def log_prob(self, params: Tree, observation: Array, action: Array) -> Array:
        return jnp.zeros(())


def episodes_key(seed: int, run: tuple[int, ...] = ()) -> Array:
    """The key of the episodes that are played with a seed, apart from the keys a training run with it draws.

    `run`: numbers that name one of several policies (setting and training seed). Each has episodes of its own, so that the
    errors of their means are independent.
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
    """Play episodes with the policy as it samples, or (deterministic) with its mode.

    `run`: to play several policies with one seed and independent episodes, the numbers that name this one.
    """
    key = episodes_key(seed, run)
    length = env.horizon if horizon is None else horizon
    if isinstance(env, OutsideEnvironment):
        with Sampler(env, length) as sampler:
            played = sampler.sample(policy, params, key, episodes, deterministic)
        return Evaluation(np.asarray(played.reward.sum(axis=1)), np.asarray(played.mask.sum(axis=1)).astype(int))
    returns, lengths = _play(env, traceable(policy), params, key, episodes, length, deterministic)
    return Evaluation(np.asarray(returns), np.asarray(lengths).astype(int))


@functools.partial(jax.jit, static_argnames=("env", "episodes", "horizon", "deterministic"))
def _play(env: Environment, policy: Any, params: Tree, key: Array, episodes: int, horizon: int, deterministic: bool):
    actor = Opaque(Greedy(policy)) if deterministic else policy
    trajectories = rollout(env, actor, params, key, episodes, horizon)
    return trajectories.reward.sum(axis=1), trajectories.mask.sum(axis=1)

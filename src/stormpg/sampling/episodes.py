"""Episodes of environments outside JAX, played in slots.

A batch of n trajectories is n episodes. Each is played in one slot from its reset to its end. A slot whose episode has ended
waits, so no episode is selected by how early it ends. As in a rollout inside JAX, the randomness of a trajectory belongs to its
index: the seed of its reset and the noise of its actions come from its own keys.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable
from math import isfinite
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs.base import Box, Discrete, OutsideEnvironment, VectorEnv
from stormpg.errors import EnvironmentFailure
from stormpg.machine.stopping import Halted, Stop
from stormpg.policies.acting import Actor, actor
from stormpg.pytrees import Tree, traceable
from stormpg.sampling.rollouts import noise_of
from stormpg.scores import log_probs_in_blocks
from stormpg.trajectories import Trajectories


class Sampler:
    """Keeps the slots of an outside environment open, and plays episodes in them."""

    def __init__(self, env: OutsideEnvironment, horizon: int, acting: Callable[[Any, Tree], Actor] = actor) -> None:
        self.env, self.horizon, self.acting = env, horizon, acting
        self.slots: VectorEnv | None = None
        self.asked = 0
        self.least = 1  # slots to open: with a fixed number, a resumed run has the same rounding
        self.stop: Stop | None = None  # a batch is abandoned if a stop is requested

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        slots, self.slots = self.slots, None
        if slots is not None:
            # A broken environment may fail to close. Its error has been reported already.
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                slots.close()

    def open(self, n: int) -> VectorEnv:
        """Open n slots, or as many as the environment has."""
        n = max(n, self.least)
        if self.slots is None or self.asked < n:
            self.close()
            self.slots, self.asked = self.env.open_slots(n), n
        return self.slots

    def sample(self, policy: Any, params: Tree, key: Array, n: int, deterministic: bool = False) -> Trajectories:
        """n trajectories under π_ξ, without their log-probabilities, which JAX computes for the whole batch."""
        return self.play(policy, params, *self.randomness(policy, key, n), deterministic)

    def sample_both(self, policy: Any, params: Tree, other: Tree, chosen: Array, key: Array) -> Trajectories:
        """As `sample`, with the trajectories that are `chosen`, [n], sampled at `other`."""
        seeds, noise = self.randomness(policy, key, len(chosen))
        parts = [(np.flatnonzero(np.asarray(chosen) == which), at) for which, at in ((False, params), (True, other))]
        played = [self.play(policy, at, seeds[places], noise[places]) for places, at in parts if len(places)]
        order = np.argsort(np.concatenate([places for places, _ in parts]))
        joined: Trajectories = jax.tree.map(lambda *columns: np.concatenate(columns)[order], *played)
        return joined

    def randomness(self, policy: Any, key: Array, n: int) -> tuple[np.ndarray, Any]:
        """The seeds of the resets of n episodes, and the noise of their actions."""
        words, noise = _randomness(traceable(policy), key, n, self.horizon)
        if not jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
            noise = np.asarray(noise)
        return np.asarray(words)[:, -1] >> 1, noise

    def play(self, policy: Any, params: Tree, seeds: np.ndarray, noise: Any, deterministic: bool = False) -> Trajectories:
        """The episodes of these seeds, [n], with this noise in their actions, [n, H, ...]."""
        n = len(seeds)
        slots = self.open(n)
        acting, count = self.acting(policy, params), slots.num_envs
        parts: list[Any] = []
        for first in range(0, n, count):
            mine = np.minimum(np.arange(first, first + count), n - 1)
            own = noise[mine].swapaxes(0, 1).copy()  # the noise of a time step as one piece
            act = lambda h, seen, own=own: acting.mode(seen) if deterministic else acting.act(seen, own[h])
            wanted = [int(seed) if first + i < n else None for i, seed in enumerate(seeds[mine])]  # the remaining slots wait
            parts.append(self.episodes(slots, wanted, act))
        joined: Trajectories = jax.tree.map(lambda *columns: np.concatenate(columns)[:n], *parts)
        return joined

    def episodes(self, slots: VectorEnv, seeds: list[int | None], act: Callable[[int, np.ndarray], np.ndarray]) -> Trajectories:
        """Play one episode in each slot that has a seed."""
        env, alive = self.env, np.array([seed is not None for seed in seeds])
        n = living = len(seeds)
        low, high, held = env.low, env.high, getattr(slots, "holds_ended", False)
        # Time steps come first while the episodes are played: each is then written as one piece.
        record = blank_trajectories(env, self.horizon, n)
        observations, actions, rewards, mask, _ = cast(tuple[np.ndarray, ...], record)
        try:
            seen, _ = slots.reset(seed=seeds)
            self.check(0, seen, np.zeros(n), alive, seeds)
            seen = seen if alive.all() else np.where(alive[:, None], seen, 0.0)
            for h in range(self.horizon):
                if self.stop:
                    raise Halted("the batch was abandoned")
                action = act(h, seen)
                observations[h], actions[h], mask[h] = seen, action, alive
                sent = action if low is None or high is None else np.minimum(np.maximum(action, low), high)
                seen, reward, terminated, truncated, _ = slots.step(sent)
                # A sum of squares is not finite if one number is not, and faster than a test of each.
                if not (isfinite(np.vdot(reward, reward)) and isfinite(np.vdot(seen, seen))):
                    self.check(h + 1, seen, reward, alive, seeds)
                rewards[h] = reward if held or living == n else np.where(alive, reward, 0.0)
                alive = alive > (terminated | truncated)
                living = int(np.count_nonzero(alive))
                if living == 0:
                    break
                if living < n and not held:  # such a slot may return anything: keep its last observation, which is finite
                    seen = np.where(alive[:, None], seen, observations[h])
        except (EnvironmentFailure, Halted):
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise EnvironmentFailure(f"{env.name} failed in an episode of the seeds {seeds}: {reason}") from error
        return Trajectories(*(column.swapaxes(0, 1) for column in record))

    def check(self, step: int, seen: np.ndarray, reward: np.ndarray, alive: np.ndarray, seeds: list[int | None]) -> None:
        """Raise EnvironmentFailure if a running episode returned a number that is not finite."""
        for name, values in (("a reward", reward), ("an observation", seen)):
            bad = alive & ~np.isfinite(values.reshape(len(alive), -1)).all(axis=1)
            if bad.any():
                slot = int(bad.argmax())
                raise EnvironmentFailure(
                    f"{self.env.name} gave {name} that is not a finite number ({values[slot]}) at step {step} "
                    f"of the episode with seed {seeds[slot]}."
                )


def blank_trajectories(env: OutsideEnvironment, n: int, horizon: int) -> Trajectories:
    """n empty trajectories."""
    steps, actions = (n, horizon), env.action_space
    zeros: Any = np.zeros
    return Trajectories(
        zeros((*steps, *env.observation_space.shape), np.float32),
        zeros(
            steps if isinstance(actions, Discrete) else (*steps, *actions.shape),
            np.float32 if isinstance(actions, Box) else np.int32,
        ),
        *zeros((3, *steps), np.float32),
    )


def sample(env: OutsideEnvironment, policy: Any, params: Tree, key: Array, n: int, horizon: int) -> Trajectories:
    """Sample a batch in slots that are opened for it."""
    with Sampler(env, horizon) as sampler:
        batch = sampler.sample(policy, params, key, n)
    done: Trajectories = jax.jit(with_log_probs)(traceable(policy), params, jax.tree.map(jnp.asarray, batch))
    return done


def blank_sample(env: OutsideEnvironment, policy: Any, params: Tree, key: Array, n: int, horizon: int) -> Trajectories:
    """As `sample`, but nothing is played and the trajectories are empty."""
    return with_log_probs(policy, params, jax.tree.map(jnp.asarray, blank_trajectories(env, n, horizon)))


@functools.partial(jax.jit, static_argnames=("n", "horizon"))
def _randomness(policy: Any, key: Array, n: int, horizon: int) -> tuple[Array, Array]:
    """The reset key of each trajectory as integers, and the noise of its actions, as `rollout` draws them."""
    keys = jax.random.split(key, (n, 3))
    return jax.random.key_data(keys[:, 0]), noise_of(policy, keys[:, 1], horizon)


def with_log_probs(policy: Any, params: Tree, batch: Trajectories) -> Trajectories:
    """The batch with its log-probabilities under these parameters."""
    return batch._replace(log_prob=log_probs_in_blocks(policy, params, batch))

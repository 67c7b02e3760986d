"""The loop for environments outside JAX: batches are sampled in slots, everything else is the compiled loop's own.

A batch of n trajectories is n episodes, each in a slot of its own from its own seed to its own end; a slot whose episode has
ended waits, and nothing is ever chosen by how soon it finished. The randomness of a trajectory belongs to its index, as in
a rollout inside JAX: the seed of its reset and the noise of its actions are drawn from its own keys.
"""

import contextlib
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.acting import Actor, actor
from stormpg.algorithms import Algorithm
from stormpg.envs.base import Box, Discrete, OutsideEnvironment, VectorEnv
from stormpg.errors import EnvironmentFailure
from stormpg.iteration import Budget, Row, State, begin, draws, large_iteration, small_iteration
from stormpg.notices import Forecast
from stormpg.records import Tree, traceable
from stormpg.scores import log_probs_in_blocks
from stormpg.stopping import Halted, Stop
from stormpg.trajectories import RUNS, Trajectories, noise_of


class Sampler:
    """Keeps the slots of an outside environment open, and plays episodes in them."""

    def __init__(self, env: OutsideEnvironment, horizon: int, acting: Callable[[Any, Tree], Actor] = actor) -> None:
        self.env, self.horizon, self.acting = env, horizon, acting
        self.slots: VectorEnv | None = None
        self.asked = 0
        self.stop: Stop | None = None  # a batch that is asked to stop is given up

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        slots, self.slots = self.slots, None
        if slots is not None:
            # A broken environment may not close, or complain; what it broke with has been told.
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                slots.close()

    def open(self, n: int) -> VectorEnv:
        """n slots, or as many as can be had."""
        if self.slots is None or self.asked < n:
            self.close()
            self.slots, self.asked = self.env.open_slots(n), n
        return self.slots

    def sample(self, policy: Any, params: Tree, key: Array, n: int, deterministic: bool = False) -> Trajectories:
        """n trajectories under π_ξ, without their log-probabilities, which JAX computes for the whole batch at once."""
        words, noise = _randomness(traceable(policy), key, n, self.horizon)
        if not jax.dtypes.issubdtype(noise.dtype, jax.dtypes.prng_key):
            noise = np.asarray(noise)
        return self.play(policy, params, np.asarray(words)[:, -1] >> 1, noise, deterministic)

    def play(self, policy: Any, params: Tree, seeds: np.ndarray, noise: Any, deterministic: bool = False) -> Trajectories:
        """The episodes of these seeds, [n], with this noise in their actions, [n, H, ...]."""
        n = len(seeds)
        slots = self.open(n)
        acting, count = self.acting(policy, params), slots.num_envs
        parts: list[Any] = []
        for first in range(0, n, count):
            mine = np.minimum(np.arange(first, first + count), n - 1)
            act = lambda h, seen, mine=mine: acting.mode(seen) if deterministic else acting.act(seen, noise[mine, h])
            wanted = [int(seed) if first + i < n else None for i, seed in enumerate(seeds[mine])]  # the other slots wait
            parts.append(self.episodes(slots, wanted, act))
        return jax.tree.map(lambda *columns: np.concatenate(columns)[:n], *parts)

    def episodes(self, slots: VectorEnv, seeds: list[int | None], act: Callable[[int, np.ndarray], np.ndarray]) -> Trajectories:
        """One episode in each slot that has a seed."""
        env, alive = self.env, np.array([seed is not None for seed in seeds])
        record: Any = self.blank(len(seeds))
        observations, actions, rewards, mask, _ = record
        try:
            seen, _ = slots.reset(seed=seeds)
            self.check(0, seen, np.zeros(len(seeds)), alive, seeds)
            seen = seen if alive.all() else np.where(alive[:, None], seen, 0.0)
            for h in range(self.horizon):
                if self.stop:
                    raise Halted("the batch was given up")
                action = act(h, seen)
                observations[:, h], actions[:, h], mask[:, h] = seen, action, alive
                sent = action if env.low is None else np.clip(action, env.low, env.high)
                seen, reward, terminated, truncated, _ = slots.step(sent)
                if not (np.isfinite(reward).all() and np.isfinite(seen).all()):
                    self.check(h + 1, seen, reward, alive, seeds)
                rewards[:, h] = np.where(alive, reward, 0.0)
                alive &= ~(terminated | truncated)
                if not alive.any():
                    break
                if not alive.all():  # a slot may give anything after its end; it stays at its last observation, a finite one
                    seen = np.where(alive[:, None], seen, observations[:, h])
        except (EnvironmentFailure, Halted):
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise EnvironmentFailure(f"{env.name} failed in an episode of the seeds {seeds}: {reason}") from error
        return record

    def blank(self, n: int) -> Trajectories:
        """n trajectories in which nothing happens."""
        steps, actions = (n, self.horizon), self.env.action_space
        zeros: Any = np.zeros
        return Trajectories(
            zeros((*steps, *self.env.observation_space.shape), np.float32),
            zeros(
                steps if isinstance(actions, Discrete) else (*steps, *actions.shape),
                np.float32 if isinstance(actions, Box) else np.int32,
            ),
            *zeros((3, *steps), np.float32),
        )

    def check(self, step: int, seen: np.ndarray, reward: np.ndarray, alive: np.ndarray, seeds: list[int | None]) -> None:
        """EnvironmentFailure where an episode that runs gave a number that is not finite."""
        for name, values in (("a reward", reward), ("an observation", seen)):
            bad = alive & ~np.isfinite(values.reshape(len(alive), -1)).all(axis=1)
            if bad.any():
                slot = int(bad.argmax())
                raise EnvironmentFailure(
                    f"{self.env.name} gave {name} that is not a finite number ({values[slot]}) at step {step} "
                    f"of the episode with seed {seeds[slot]}."
                )


def sample(env: OutsideEnvironment, policy: Any, params: Tree, key: Array, n: int, horizon: int) -> Trajectories:
    """A whole batch, in slots that are opened for it."""
    with Sampler(env, horizon) as sampler:
        batch = sampler.sample(policy, params, key, n)
    return jax.jit(_with_log_probs)(traceable(policy), params, jax.tree.map(jnp.asarray, batch))


@functools.partial(jax.jit, static_argnames=("n", "horizon"))
def _randomness(policy: Any, key: Array, n: int, horizon: int) -> tuple[Array, Array]:
    """The words of each trajectory's reset key, and the noise of its actions, as `rollout` draws them."""
    keys = jax.random.split(key, (n, 3))
    return jax.random.key_data(keys[:, 0]), noise_of(policy, keys[:, 1], horizon)


def _each_run(function: Callable[..., Any], *axes: int | None) -> Callable[..., Any]:
    return jax.jit(jax.vmap(function, in_axes=axes, axis_name=RUNS))


def _with_log_probs(policy: Any, params: Tree, batch: Trajectories) -> Trajectories:
    return batch._replace(log_prob=log_probs_in_blocks(policy, params, batch))


def _large(
    policy: Any, algorithm: Algorithm, state: State, batch: Trajectories, budget: Budget
) -> tuple[State, Row, Trajectories]:
    batch = _with_log_probs(policy, state.params, batch)
    return *large_iteration(policy, algorithm, state, batch, draws(state), budget), batch


def _small(policy: Any, algorithm: Algorithm, state: State, batch: Trajectories, budget: Budget) -> tuple[State, Row]:
    batch = _with_log_probs(policy, state.params, batch)
    return small_iteration(policy, algorithm, state, batch, draws(state), budget)


def _drawn(policy: Any, algorithm: Algorithm, state: State, whole: Trajectories, budget: Budget) -> tuple[State, Row]:
    return small_iteration(policy, algorithm, state, None, draws(state), budget, whole)


begin_each = _each_run(begin, 0, 0, 0)
draws_each = _each_run(draws, 0)
large_each, small_each, drawn_each = (_each_run(f, 0, 0, 0, 0, None) for f in (_large, _small, _drawn))


class Outside:
    """How `train` runs an environment outside JAX: one run at a time, a unit of its schedule a chunk.

    `workers`: the number of Ray actors; None: in this process. `runs`: their number, to tell how long all will take.
    """

    goes_ahead = False

    def __init__(
        self, env: OutsideEnvironment, horizon: int, workers: int | None = None, runs: int = 1, stop: Stop | None = None
    ) -> None:
        self.sampler, self.forecast = Sampler(env, horizon), Forecast(env.name, runs)
        if workers is not None:
            from stormpg.distant import Distant

            self.sampler = Distant(env, horizon, workers)
        self.sampler.stop = stop

    def start(self, policy: Any, algorithm: Algorithm, seeds: Array, budget: Budget) -> tuple[State, Row | None]:
        states = begin_each(policy, algorithm, seeds)
        if algorithm.schedule.m is not None:
            return states, None
        batch = self.batch(policy, states, algorithm.schedule.S0, budget)
        states, row, _ = large_each(policy, algorithm, states, batch, budget)
        return states, jax.tree.map(lambda x: x[None], row)

    def chunk(self, policy: Any, algorithm: Algorithm, states: State, budget: Budget, pause: Array) -> tuple[int, State, Row]:
        """One unit, after which one may pause anyway. Rows are [1, 1 + m, 1]."""
        schedule, rows = algorithm.schedule, []
        whole = None
        if schedule.m is not None:
            states, row, whole = large_each(policy, algorithm, states, self.batch(policy, states, schedule.S0, budget), budget)
            rows.append(row)
        for _ in range(1 if schedule.m is None else schedule.m):
            states, row = self.small(policy, algorithm, states, whole, budget)
            rows.append(row)
        return 1, states, jax.tree.map(lambda *parts: jnp.stack(parts)[None], *rows)

    def small(
        self, policy: Any, algorithm: Algorithm, states: State, whole: Trajectories | None, budget: Budget
    ) -> tuple[State, Row]:
        schedule = algorithm.schedule
        if not schedule.resample:
            return drawn_each(policy, algorithm, states, whole, budget)
        live = ~states.ended & budget.holds(states.trajectories, states.steps, schedule.B)
        if not bool(live.any()):  # nothing is sampled that nobody counts
            batch = jax.tree.map(lambda x: x[None], self.sampler.blank(schedule.B))
        else:
            batch = self.batch(policy, states, schedule.B, budget)
        return small_each(policy, algorithm, states, batch, budget)

    def batch(self, policy: Any, states: State, n: int, budget: Budget) -> Trajectories:
        """n trajectories of the one run, with its axis in front."""
        began = time.perf_counter()
        first = lambda tree: jax.tree.map(lambda x: x[0], tree)
        sampled = self.sampler.sample(first(policy), first(states.params), draws_each(states).rollout[0], n)
        share = max(n / int(budget.trajectories), float(np.sum(sampled.mask)) / int(budget.steps))
        self.forecast.count(share, time.perf_counter() - began)
        return jax.tree.map(lambda x: x[None], sampled)

    def close(self) -> None:
        self.sampler.close()

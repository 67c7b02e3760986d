"""Brax's robots, many at a time inside JAX: our training beside the environments alone, and beside Brax's own PPO.

All three count every slot of every environment: an episode has a fixed number of steps here, ended or not.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

import stormpg
from stormpg.bench.measure import BenchTable, Row, Tell, in_turns
from stormpg.errors import InputError

ROBOTS = {"ant": "spring", "halfcheetah": "spring"}  # and Brax's physics
TOGETHER, HORIZON = 4096, 100
ALONE, OURS, PPO = "the environments alone", "STORM-PG", "Brax PPO"


def alone(env: Any, together: int, horizon: int) -> Callable[[], float]:
    """Million steps a second with random actions."""

    @jax.jit
    def play(key: Any) -> Any:
        reset, act = jax.random.split(key)
        state, _ = jax.vmap(env.reset)(jax.random.split(reset, together))

        def step(state: Any, key: Any) -> tuple[Any, Any]:
            action = jax.random.uniform(key, (together, *env.action_space.shape), minval=-1.0)
            state, _, reward, _ = jax.vmap(env.step)(jax.random.split(key, together), state, action)
            return state, reward.sum()

        return jax.lax.scan(step, state, jax.random.split(act, horizon))[1].sum()

    def measure() -> float:
        began = time.perf_counter()
        for seed in range(3):
            jax.block_until_ready(play(jax.random.key(seed)))
        return 3 * together * horizon / (time.perf_counter() - began) / 1e6

    return measure


def ours(env: Any, together: int, horizon: int, iterations: int) -> Callable[[], float]:
    """Million steps a second of a whole training: batches of all environments."""
    policy = stormpg.policy_for(env, hidden=(64,))

    def measure() -> float:
        algorithm, began = stormpg.storm_pg(S0=together, B=together), time.perf_counter()
        stormpg.train(env, algorithm, together * iterations, seeds=1, horizon=horizon, policy=policy)
        return together * iterations * horizon / (time.perf_counter() - began) / 1e6

    return measure


def replicated(tree: Any, devices: Sequence[Any]) -> Any:
    """A copy for each device, as leading axis."""
    return jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)


def ppo(name: str, backend: str, together: int, horizon: int, iterations: int) -> float:
    """Million steps a second of Brax's PPO with its settings for these robots: of its last epoch, after compilation."""
    from brax import envs
    from brax.training.agents.ppo import networks, train

    speeds: list[float] = []
    # Brax 0.14 calls a function of JAX that newer versions do not have.
    with mock.patch.object(jax, "device_put_replicated", replicated, create=True):
        train.train(
            environment=envs.get_environment(name, backend=backend),
            num_timesteps=3 * together * horizon * iterations,
            episode_length=horizon,
            num_envs=together,
            num_eval_envs=16,
            num_evals=4,  # three epochs; the first one compiles
            batch_size=together // 2,
            num_minibatches=32,
            num_updates_per_batch=4,
            unroll_length=5,
            learning_rate=3e-4,
            network_factory=functools.partial(
                networks.make_ppo_networks, policy_hidden_layer_sizes=(64,), value_hidden_layer_sizes=(64,)
            ),
            progress_fn=lambda steps, metrics: speeds.append(float(metrics.get("training/sps", 0.0))),
        )
    return speeds[-1] / 1e6


def robots(rounds: int, tell: Tell, together: int = TOGETHER, horizon: int = HORIZON, iterations: int = 10) -> BenchTable:
    """Three rows for each robot."""
    rows: list[Row] = []
    for name, backend in ROBOTS.items():
        try:
            env = stormpg.make(f"brax:{name}", backend=backend)
        except InputError as error:
            rows.append(Row(name, [], {"missing": str(error)}))
            continue
        figures = in_turns(
            {ALONE: alone(env, together, horizon), OURS: ours(env, together, horizon, iterations)}, rounds, tell
        )  # fmt: skip
        # PPO compiles in every call, so it is measured once: its last epoch has that many steps again.
        tell(f"{name}, {PPO}")
        theirs = Row(f"{name}, {PPO}", [ppo(name, backend, together, horizon, iterations)])
        first, mine = (Row(f"{name}, {key}", figures[key]) for key in (ALONE, OURS))
        share, times = mine.median / first.median, mine.median / theirs.median
        rows += [first, mine._replace(about={"share of the environments": share, "times PPO": times}), theirs]
    note = (
        f"{together} environments, {horizon} steps an episode, one hidden layer of 64. STORM-PG: a whole training from its "
        "start, without compilation. PPO has Brax's settings: minibatches, four passes over each batch, and a critic."
    )
    return BenchTable("robots", "Brax's robots inside JAX", "million steps a second", rows, note)

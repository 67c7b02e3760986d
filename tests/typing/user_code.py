"""Typical user code: it must pass Pyright and `mypy --strict` against the installed package. It is checked, not run."""

from pathlib import Path

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jax import Array

import stormpg
from stormpg import Agent, Algorithm, Batch, Here, Result, Sample, Tracked, algorithm, estimators, schedules, steps, trackers
from stormpg.contract import Blank
from stormpg.pytrees import Tree, add, as_float, record, static


def researcher() -> float:
    env = stormpg.make("cartpole-continuous", horizon=100)
    policy = stormpg.policy_for(env, hidden=(32,), sigma=0.5)
    sweep = [stormpg.storm_pg(eta=eta, alpha=0.9, S0=10, B=5) for eta in (0.001, 0.01)]
    result: Result = stormpg.train(env, sweep, trajectories=500, seeds=8, policy=[policy, policy], out="sweep")
    again: Result = stormpg.load("sweep")
    print(result.metrics, again.final_return().mean(), result.params("best", seed=3))
    batch = stormpg.rollout(env, policy, policy.init(jax.random.key(0)), jax.random.key(1), 10, 100)
    gradient = stormpg.gradient(estimators.gpomdp(0.99, baseline="time"), policy, result.params(), batch)
    print(jax.tree.map(jnp.shape, gradient), batch.reward.sum(), stormpg.gpomdp(S0=5).settings["S0"])
    return float(result.final_return().mean())


def practitioner(folder: Path) -> Agent:
    agent = Agent("gym:Hopper-v5", "storm-pg", seed=0, eta=0.003).learn(trajectories=1000, progress_bar=True)
    action = agent.predict([0.0] * 11, deterministic=True)
    print(action.shape, agent.evaluate(episodes=10).returns.mean(), agent.save(folder))
    return Agent.load(folder)


def loop() -> Array:
    env = stormpg.make("pendulum")
    policy, adam = stormpg.policy_for(env), stormpg.storm_pg(optimizer=optax.adam(1e-3))
    state = stormpg.init(env, policy, adam, seed=0)
    for _ in range(3):
        state, info = stormpg.step(env, policy, adam, state)
        print(info.mean_return, info.gradient_norm)
    return state.trajectories


@record
class Averaged:
    """A tracker of one's own: the mean of the last gradient and this one."""

    share: Array
    name: str = static(default="averaged")

    def init(self, params: Tree, blank: Blank) -> Tree:
        return jax.tree.map(jnp.zeros_like, params)

    def wants(self, here: Here, memory: Tree) -> tuple[Sample, ...]:
        return (Sample(here.n),)

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Tree) -> Tracked:
        d = here.estimate(here.params, batches[0]).gradient
        return Tracked(d if here.large else add(memory, add(d, memory, -1), self.share), d, batches[0])


@algorithm("averaged")
def averaged(eta: float = 0.01, share: float = 0.5, S0: int = 10, B: int = 5) -> Algorithm:
    """Registered under its name, with its settings checked."""
    return Algorithm(estimators.gpomdp(0.99), Averaged(as_float(share)), schedules.once(S0, B), steps.optax_step(eta, "sgd"))


def own_rows() -> list[Algorithm]:
    mixed = Algorithm(estimators.pgt(0.9), trackers.storm(0.5), schedules.every(3, 10, 5), steps.natural_gradient())
    return [averaged(share=0.2), mixed, stormpg.make_algorithm("svrpg", m=5)]

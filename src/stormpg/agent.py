"""Agent: one policy on one environment, with the verbs of Stable-Baselines3: learn, predict, evaluate, save, load."""

import contextlib
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from stormpg import store
from stormpg.acting import actor
from stormpg.algorithms import Algorithm, make_algorithm
from stormpg.envs import OutsideEnvironment, as_environment
from stormpg.errors import InputError
from stormpg.evaluate import Evaluation, evaluate
from stormpg.policies import policy_for
from stormpg.records import Tree, traceable
from stormpg.result import Progress, Result
from stormpg.train import check_training
from stormpg.training import Training
from stormpg.trajectories import draws_noise


class Agent:
    """A policy that learns: `Agent("gym:Hopper-v5").learn(1000).save("hopper")`.

    env         a name, an environment, or a Gymnasium environment, vector environment or factory
    algorithm   its name, or what its constructor returns
    seed        of the first parameters and of everything that is sampled
    policy      `policy_for(env)` by default; `policy_for(env, normalise=True)` normalises observations
    horizon     H; the environment's own by default
    """

    def __init__(
        self, env: Any, algorithm: Algorithm | str = "storm-pg", seed: int = 0, policy: Any = None, horizon: int | None = None
    ) -> None:
        env = as_environment(env)
        algorithm = make_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
        self.training = check_training(env, [algorithm], [policy_for(env) if policy is None else policy], [seed], horizon)
        self.result: Result | None = None
        self.calls = 0

    @property
    def env(self) -> Any:
        return self.training.env

    @property
    def policy(self) -> Any:
        return self.training.policies[0]

    @property
    def params(self) -> Tree:
        """ξ, the last iterate."""
        if self.result is None:
            return self.policy.init(jax.random.fold_in(jax.random.key(self.training.seeds[0]), 0))
        return self.result.params()

    @property
    def metrics(self) -> Any:
        """The table of all iterations so far."""
        return None if self.result is None else self.result.metrics

    def learn(
        self, trajectories: int = 1000, progress_bar: bool = False, callback: Callable[[Progress], Any] | None = None
    ) -> "Agent":
        """Train on so many trajectories, more each time it is called. `callback`: called after every chunk; False stops."""
        before = self.result
        done = 0 if before is None else int(before.states.trajectories[0])
        schedule = self.training.algorithms[0].schedule
        least = schedule.B if before is not None and schedule.m is None else schedule.S0
        if not isinstance(trajectories, int) or trajectories < least:
            raise InputError(f"trajectories is {trajectories!r}; expected at least {least}, which is the next batch.")
        with _bar(self.training) if progress_bar else contextlib.nullcontext(lambda now: None) as show:

            def progress(now: Progress) -> Any:
                show(now)
                return None if callback is None else callback(now)

            self.result = self.training.run(done + trajectories, progress, before=before)
        self.__dict__.pop("_actor", None)
        return self

    def predict(self, observation: Any, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or those for a batch: the policy's mode, or (not deterministic) a sample.

        It is what the environment takes: within its bounds and of its shape.
        """
        env = self.env
        flat = env.flatten(observation) if isinstance(env, OutsideEnvironment) else np.asarray(observation)
        shape = env.observation_space.shape if hasattr(env.observation_space, "shape") else ()
        if flat.shape[-len(shape) or flat.ndim :] != shape or flat.ndim - len(shape) not in (0, 1):
            raise InputError(f"the observation has shape {list(flat.shape)}; expected {list(shape)}, or a batch of such.")
        batch = flat if flat.ndim > len(shape) else flat[None]
        actions = self._actor.mode(batch) if deterministic else self._actor.act(batch, self._noise(len(batch)))
        actions = env.unflatten(actions) if isinstance(env, OutsideEnvironment) else _clipped(env.action_space, actions)
        return actions if flat.ndim > len(shape) else actions[0]

    @functools.cached_property
    def _actor(self) -> Any:
        return actor(self.policy, self.params)

    def _noise(self, n: int) -> Any:
        self.calls += 1
        key = jax.random.fold_in(jax.random.key(self.training.seeds[0]), 2**30 + self.calls)
        drawn = _draw(traceable(self.policy), key, n)
        return np.asarray(drawn) if draws_noise(self.policy) else drawn  # keys stay JAX's

    def evaluate(self, episodes: int = 100, deterministic: bool = False, seed: int = 0) -> Evaluation:
        """Returns and lengths of fresh episodes."""
        return evaluate(self.env, self.policy, self.params, episodes, seed, deterministic, self.training.horizon)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a folder with everything that `load` needs to predict and to learn on; an agent that is there is replaced."""
        if self.result is None:
            raise InputError("this agent has not learned yet: there is nothing to save.")
        path = Path(path)
        if path.exists() and not (path / "policy.safetensors").is_file() and (path.is_file() or any(path.iterdir())):
            raise InputError(f"{path} holds something that is not an agent: give another folder.")
        part = path.with_name(f".{path.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        store.save(self.result, part)
        if path.exists():
            old = path.with_name(f".{path.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
            part.rename(path)
            shutil.rmtree(old)
        else:
            part.rename(path)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str], env: Any = None, policy: Any = None) -> "Agent":
        """The agent saved in a folder, or the first seed of a run. `env`, `policy`: where they are of your own making."""
        run = store.Run(path, env, policy)
        agent = cls(run.env, run.algorithms()[0], run.seeds[0], run.policies[0], run.horizon)
        states, table = run.first()
        agent.result = agent.training.result(int(states.trajectories[0]), table, states)
        return agent

    def export_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the policy's mode as an ONNX model, observations [n, ...] to actions [n, ...]; needs the extra `onnx`."""
        from stormpg.export import write_onnx

        return write_onnx(self.policy, self.params, self.env, Path(path))


@functools.partial(jax.jit, static_argnames=("n",))
def _draw(policy: Any, key: Any, n: int) -> Any:
    return policy.noise(key, (n,)) if draws_noise(policy) else jax.random.split(key, n)


def _clipped(space: Any, actions: np.ndarray) -> np.ndarray:
    return np.clip(actions, space.low, space.high) if hasattr(space, "low") else actions


def _bar(training: Training) -> Any:
    from stormpg.terminal import progress_bar

    return progress_bar(f"{training.algorithms[0].name} on {training.env.name}")

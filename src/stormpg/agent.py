"""Agent: one policy on one environment, with the interface of Stable-Baselines3: learn, predict, evaluate, save, load."""

import contextlib
import dataclasses
import functools
import inspect
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.algorithms import ALGORITHMS, DEFAULT, Algorithm, make_algorithm, others_with
from stormpg.engine.budget import LIMIT, Budget
from stormpg.envs import Box, as_environment
from stormpg.envs.base import AnyEnvironment, action_bounds
from stormpg.errors import InputError, choose, nearest
from stormpg.evaluate import Evaluation, evaluate
from stormpg.machine.stopping import add_note
from stormpg.policies.acting import actor
from stormpg.policies.constructors import KINDS, policy_of_algorithm, usual_kind
from stormpg.pytrees import Tree, traceable
from stormpg.report.card import in_words, untrained_card
from stormpg.report.notebook import in_notebook
from stormpg.runs import run_folder
from stormpg.runs.logs import Logger, open_logs
from stormpg.runs.result import Progress, Result
from stormpg.runs.training import RunOptions, Training
from stormpg.sampling.rollouts import draws_noise
from stormpg.train import budget_of, check_training, whole

NOISE = 1024  # actions whose noise `predict` draws at once


class Agent:
    """A policy that learns: `Agent("gym:Hopper-v5").learn(steps=300_000).save("hopper")`.

    env         a name, an environment, or a Gymnasium environment, vector environment or factory
    algorithm   its name, or the result of its constructor
    seed        of the initial parameters and of all sampling
    policy      a policy, or one of the kinds of `policy_for`; by default `policy_for(env)` with the settings that the algorithm
                recommends
    horizon     H; the horizon of the environment by default
    settings    settings of the algorithm, such as gamma and B, if it is given by name; and settings of `policy_for`, such as
                sigma, hidden and normalise, if `policy` is not a policy object
    """

    def __init__(
        self,
        env: Any,
        algorithm: Algorithm | str = DEFAULT,
        seed: int = 0,
        policy: Any = None,
        horizon: int | None = None,
        **settings: Any,
    ) -> None:
        env = as_environment(env)
        seed = whole("seed", seed, 0)
        horizon = None if horizon is None else whole("horizon", horizon)
        of_algorithm, of_policy = _parted(env, algorithm, policy, settings)
        algorithm = make_algorithm(algorithm, **of_algorithm) if isinstance(algorithm, str) else algorithm
        if policy is None or isinstance(policy, str):
            policy = policy_of_algorithm(env, algorithm.policy.content, policy, **of_policy)
        self.training = check_training(env, [algorithm], [policy], [seed], horizon)
        self._result: Callable[[], Result] | None = None
        self._blocks, self._drawn = 0, np.empty(0)

    def __repr__(self) -> str:
        words = (
            f"{self.training.algorithms[0].name} on {self.env.name}, not trained"
            if self.result is None
            else in_words(self.result)
        )
        return f"Agent({words})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the result so far, or the settings."""
        return untrained_card(self.training) if self.result is None else self.result._repr_html_()

    @property
    def env(self) -> Any:
        return self.training.env

    def set_env(self, env: Any) -> "Agent":
        """Continue with another environment with the same spaces. The horizon does not change."""
        env = as_environment(env)
        _same_spaces(self.env, env)
        self.training = dataclasses.replace(self.training, env=env)
        if self.result is not None:
            result = dataclasses.replace(self.result, env=env)
            self._reach(lambda: result)
        return self

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
        self,
        trajectories: int | None = None,
        steps: int | None = None,
        progress_bar: bool = False,
        callback: Callable[[Progress], Any] | None = None,
        logs: Sequence[Logger | str] = (),
        out: str | os.PathLike[str] | None = None,
    ) -> "Agent":
        """Train on this number of additional trajectories (default: 1000) or environment steps.

        steps      no batch starts after this number of environment steps of this call
        callback   called after every chunk with a `Progress`; return False to stop. The agent is up to date and may predict
        logs       loggers, or their names; these write to the folder `OUT-logs` beside `out`
        out        a folder in which the agent is saved at the end, also if it is stopped

        Ctrl-C, SIGTERM and errors end training after the current chunk. What was learned is kept, and the error is raised.
        """
        before = self.result
        done = 0 if before is None else int(before.states.trajectories[0])
        taken = 0 if before is None else int(before.states.steps[0])
        least = self.training.next_batch(before)
        more = budget_of(1000 if trajectories is None and steps is None else trajectories, steps)
        if more.trajectories < least:
            raise InputError(f"trajectories is {trajectories!r}; expected at least {least}, which is the next batch.")
        named = [log for log in logs if isinstance(log, str)]

        def progress(now: Progress) -> Any:
            show(now)
            self._reach(now.result)
            return None if callback is None else callback(now)

        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(open_logs(named, None if out is None else Path(f"{Path(out)}-logs")))
            show = stack.enter_context(_bar(self.training)) if progress_bar else lambda now: None
            try:
                budget = Budget(
                    min(done + more.trajectories, LIMIT), LIMIT if steps is None else min(taken + more.steps, LIMIT)
                )
                all_logs = [*opened, *(log for log in logs if not isinstance(log, str))]
                result = self.training.run(budget, RunOptions(progress, before=before, logs=all_logs))
                self._reach(lambda: result)
            except BaseException as error:
                partial = getattr(error, "result", None)
                if partial is not None and len(partial.columns["iteration"]):
                    self._reach(lambda: partial)
                add_note(error, "The agent keeps what it has learned so far: `learn` continues from there.")
                raise
            finally:
                if out is not None and self.result is not None:
                    self.save(out)
        return self

    @property
    def result(self) -> Result | None:
        """The result so far; None before the first `learn`."""
        return None if self._result is None else self._result()

    def _reach(self, result: Callable[[], Result]) -> None:
        """Set a new result. `result` is called when it is needed."""
        self._result = functools.cache(result)
        self.__dict__.pop("_actor", None)

    def predict(self, observation: Any, deterministic: bool = False) -> np.ndarray:
        """The action for one observation, or the actions for a batch: sampled, or the mode of the policy.

        Actions have the shape and the bounds of the environment. The sampling noise depends on the seed of the agent and on the
        number of predictions since it was created or loaded.
        """
        env = self.env
        flat = env.flatten(observation)
        shape = env.observation_space.shape if hasattr(env.observation_space, "shape") else ()
        if flat.shape[-len(shape) or flat.ndim :] != shape or flat.ndim - len(shape) not in (0, 1):
            raise InputError(f"the observation has shape {list(flat.shape)}; expected {list(shape)}, or a batch of such.")
        batch = flat if flat.ndim > len(shape) else flat[None]
        sampled = self._actor.mode(batch) if deterministic else self._actor.act(batch, self._noise(len(batch)))
        actions: np.ndarray = env.unflatten(sampled)
        return actions if flat.ndim > len(shape) else actions[0]

    @functools.cached_property
    def _actor(self) -> Any:
        return actor(self.policy, self.params)

    def _noise(self, n: int) -> Any:
        """The noise of the next n actions. It is drawn in blocks, because a call of JAX per action is slower than acting."""
        if len(self._drawn) < n:
            self._blocks += 1
            key = jax.random.fold_in(jax.random.key(self.training.seeds[0]), 2**30 + self._blocks)
            drawn = _draw(traceable(self.policy), key, NOISE * -(-n // NOISE))
            keys = jnp.issubdtype(drawn.dtype, jax.dtypes.prng_key)  # for a policy without `noise`
            self._drawn = drawn if keys else np.asarray(drawn)
        noise, self._drawn = self._drawn[:n], self._drawn[n:]
        return noise

    def evaluate(self, episodes: int = 100, deterministic: bool = False, seed: int = 0) -> Evaluation:
        """Returns and lengths of new episodes, with the actions of `predict`."""
        episodes, seed = whole("episodes", episodes), whole("seed", seed, 0)
        return evaluate(self.env, self.policy, self.params, episodes, seed, deterministic, self.training.horizon)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a folder with everything that `load` needs to predict and to learn more. An existing agent is replaced."""
        if self.result is None:
            raise InputError("this agent has not learned yet: there is nothing to save.")
        path = Path(path)
        if path.exists() and not (path / "policy.safetensors").is_file() and (path.is_file() or any(path.iterdir())):
            raise InputError(f"{path} holds something that is not an agent: give another folder.")
        part = path.with_name(f".{path.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        run_folder.save(self.result, part)
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
    def load(
        cls, path: str | os.PathLike[str], env: Any = None, policy: Any = None, algorithm: Algorithm | str | None = None
    ) -> "Agent":
        """Load an agent from a folder, or the first seed of a run.

        `env`, `policy`, `algorithm`: needed if they are your own, because the folder cannot recreate them.
        """
        run = run_folder.Run(path, env, policy, make_algorithm(algorithm) if isinstance(algorithm, str) else algorithm)
        agent = cls(run.env, run.algorithms()[0], run.seeds[0], run.policies[0], run.horizon)
        states, table = run.first()
        result = agent.training.result(int(states.trajectories[0]), table, states)
        agent._reach(lambda: result)
        return agent

    def export_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the policy mode as an ONNX model from observations [n, ...] to actions [n, ...]. Needs the extra `onnx`."""
        from stormpg.policies.onnx import write_onnx

        return write_onnx(self.policy, self.params, self.env, Path(path))


@functools.partial(jax.jit, static_argnames=("n",))
def _draw(policy: Any, key: Any, n: int) -> Any:
    return policy.noise(key, (n,)) if draws_noise(policy) else jax.random.split(key, n)


def _settings(algorithm: str) -> Mapping[str, inspect.Parameter]:
    """The settings of the algorithm with this name."""
    return inspect.signature(ALGORITHMS[choose("algorithm", algorithm, ALGORITHMS)]).parameters


def _parted(
    env: AnyEnvironment, algorithm: Algorithm | str, policy: Any, settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into those of the algorithm and those of the policy. Raise InputError if one fits neither."""
    if isinstance(policy, str) and policy not in KINDS:
        raise InputError(f"policy is {policy!r}; expected one of the kinds of policy_for ({', '.join(KINDS)}), or a policy.")
    of_algorithm = list(_settings(algorithm)) if isinstance(algorithm, str) else []
    of_policy = KINDS[policy or usual_kind(env)] if policy is None or isinstance(policy, str) else ()
    for name in settings:
        if name in of_algorithm and name in of_policy:
            raise InputError(f"{name} is a setting of the algorithm and of the policy: give it to the constructor of one.")
        if name in of_algorithm or name in of_policy:
            continue
        if not isinstance(algorithm, str) and any(name in _settings(known) for known in ALGORITHMS):
            raise InputError(f"{name} was given beside an algorithm that is made already: give it to its constructor instead.")
        if not of_policy and any(name in known for known in KINDS.values()):
            raise InputError(f"{name} was given beside a policy that is made already: give it to policy_for instead.")
        raise InputError(f"Agent has no setting {name!r}: {nearest(name, [*of_algorithm, *of_policy])}{others_with(name)}.")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    return {k: v for k, v in plain.items() if k in of_algorithm}, {k: v for k, v in plain.items() if k in of_policy}


def _same_spaces(old: AnyEnvironment, new: AnyEnvironment) -> None:
    """Raise InputError if a policy for one environment cannot play the other."""
    for kind, a, b in (
        ("observations", old.observation_space, new.observation_space),
        ("actions", old.action_space, new.action_space),
    ):
        shapes = [space.shape if isinstance(space, Box) else space for space in (a, b)]
        if type(a) is not type(b) or shapes[0] != shapes[1]:
            raise InputError(f"{new.name} has {kind} in {b}; expected {a}, as {old.name} has.")
    if isinstance(old.action_space, Box):
        bounds = [action_bounds(env) for env in (old, new)]
        if not np.array_equal(bounds[0], bounds[1]):
            words = [f"{low.tolist()} to {high.tolist()}" for low, high in bounds]
            raise InputError(f"{new.name} has actions from {words[1]}; expected {words[0]}, as {old.name} has.")


def _bar(training: Training) -> Any:
    """A progress bar, for the terminal or for a notebook. That of the terminal needs the extra `cli`."""
    if in_notebook():
        from stormpg.report.notebook import progress_bar
    else:
        from stormpg.report.terminal import progress_bar
    return progress_bar(f"{training.algorithms[0].name} on {training.env.name}")

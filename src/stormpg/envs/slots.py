"""Slots for the episodes of Gymnasium environments. Each slot has one environment, in this process or in its own process."""

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from stormpg.envs.flattening import flat_actions, flat_observations, flatten_one, unflatten_one
from stormpg.errors import EnvironmentFailure


class OneEpisode(gymnasium.Wrapper):
    """An environment in a slot: flattened, with one episode per seed, and idle after its end.

    After a reset without a seed, which vector environments do after an episode, it stays idle. An error is reported with the
    seed that reproduces it.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = flat_observations(env.observation_space)
        self.action_space = flat_actions(env.action_space)
        self.seed: int | None = None
        self.idle, self.steps = True, 0
        self.seen = np.zeros(self.observation_space.shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.idle = seed is None
        if seed is not None:
            self.seed, self.steps = seed, 0
            self.seen = self._flat(self._guard(self.env.reset, seed=seed, options=options)[0])
        return self.seen, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.idle:
            return self.seen, 0.0, True, False, {}
        self.steps += 1
        observation, reward, terminated, truncated, _ = self._guard(self.env.step, unflatten_one(self.env.action_space, action))
        self.seen, self.idle = self._flat(observation), bool(terminated or truncated)
        return self.seen, float(reward), bool(terminated), bool(truncated), {}

    def _flat(self, observation: Any) -> np.ndarray:
        """Return the flattened observation, after checking its size."""
        flat: np.ndarray = self._guard(flatten_one, self.env.observation_space, observation)
        if flat.shape != self.seen.shape:
            self._fail(f"returned an observation of {flat.size} numbers; expected {self.seen.size}")
        return flat

    def _guard(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function of the environment, and report its errors as EnvironmentFailure."""
        try:
            return call(*arguments, **named)
        except Exception as error:
            self._fail(f"raised {type(error).__name__}: {error}")

    def _fail(self, what: str) -> None:
        raise EnvironmentFailure(f"{name_of(self.env)} {what}, at step {self.steps} of the episode with seed {self.seed}.")


def name_of(env: gymnasium.Env) -> str:
    """Return the ID of a registered environment, or its class name."""
    spec = env.unwrapped.spec
    return spec.id if spec is not None else type(env.unwrapped).__name__


class Patient(gymnasium.vector.AsyncVectorEnv):
    """A vector environment with one process per environment. A step or reset that takes longer than `seconds` fails."""

    def __init__(self, build: Sequence[Callable[[], gymnasium.Env]], seconds: float | None) -> None:
        # This process must not be forked, because JAX has threads. The fork server is forked instead, with the imports done.
        multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
        super().__init__(build, shared_memory=True, context="forkserver")
        self.seconds = seconds

    def reset_wait(self, timeout: float | None = None) -> Any:
        return self._patiently(super().reset_wait)

    def step_wait(self, timeout: float | None = None) -> Any:
        return self._patiently(super().step_wait)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Kill all processes, including those that hang or have died."""
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.parent_pipes:
            pipe.close()

    def _patiently(self, wait: Callable[..., Any]) -> Any:
        """Wait for a reply, and report a timeout or a dead process as EnvironmentFailure."""
        try:
            return wait(timeout=self.seconds)
        except multiprocessing.TimeoutError:
            raise EnvironmentFailure(f"an environment took longer than {self.seconds} seconds for a step.") from None
        except (EOFError, ConnectionError) as error:
            codes = [p.exitcode for p in self.processes if not p.is_alive()]
            raise EnvironmentFailure(f"the process of an environment died (exit codes {codes}).") from error

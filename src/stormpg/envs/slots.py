"""Slots for the episodes of Gymnasium environments. Each slot has one environment, in this process or in its own process.

How many are opened is decided in `sampling.episodes`.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from stormpg.envs.flattening import flat_actions, flat_observations, flatten_one, shaped, unflatten_one
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
            self.seen = self.flat(self._guard(self.env.reset, seed=seed, options=options)[0])
        return self.seen, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.idle:
            return self.seen, 0.0, True, False, {}
        self.steps += 1
        observation, reward, terminated, truncated, _ = self._guard(self.env.step, unflatten_one(self.env.action_space, action))
        self.seen, self.idle = self.flat(observation), bool(terminated or truncated)
        return self.seen, float(reward), bool(terminated), bool(truncated), {}

    def flat(self, observation: Any) -> np.ndarray:
        """Return the flattened observation, after checking its size."""
        flat: np.ndarray = self._guard(flatten_one, self.env.observation_space, observation)
        if flat.shape != self.seen.shape:
            self.fail(f"returned an observation of {flat.size} numbers; expected {self.seen.size}")
        return flat

    def _guard(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function of the environment, and report its errors as EnvironmentFailure."""
        try:
            return call(*arguments, **named)
        except Exception as error:
            self.raised(error)

    def raised(self, error: Exception) -> NoReturn:
        self.fail(f"raised {type(error).__name__}: {error}")

    def fail(self, what: str) -> NoReturn:
        raise EnvironmentFailure(f"{name_of(self.env)} {what}, at step {self.steps} of the episode with seed {self.seed}.")


def name_of(env: gymnasium.Env) -> str:
    """Return the ID of a registered environment, or its class name."""
    spec = env.unwrapped.spec
    return spec.id if spec is not None else type(env.unwrapped).__name__


class InTurn:
    """Slots in this process. A step is one pass over the episodes that are running; the other slots cost nothing.

    The arrays that `reset` and `step` return are overwritten by the next step.
    """

    holds_ended = True

    def __init__(self, envs: Sequence[OneEpisode]) -> None:
        self.envs, self.num_envs = envs, len(envs)
        self.steps, self.limits = zip(*(unwrapped(one.env) for one in envs), strict=True)
        self.age, self.running, self.ended = 0, list[int](), list[int]()  # the last: those that ended in the last step
        self.seen = np.zeros((len(envs), *envs[0].seen.shape), np.float32)
        self.reward, self.terminated, self.truncated = (np.zeros(len(envs), kind) for kind in (float, bool, bool))
        self.actions, space = envs[0].env.action_space, envs[0].env.observation_space
        # A vector of floats, which most environments return, is flattened by copying it.
        vectors = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)
        self.shape = space.shape if vectors else None

    def reset(self, seed: Sequence[int | None]) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in each slot that has a seed."""
        self.age, self.running, self.ended = 0, [slot for slot, one in enumerate(seed) if one is not None], []
        self.reward[:], self.terminated[:], self.truncated[:] = 0.0, [one is None for one in seed], False
        for slot in self.running:
            self.seen[slot] = self.envs[slot].reset(seed=seed[slot])[0]
        return self.seen, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """A step of the running episodes. After its end a slot keeps its last observation and gets no rewards."""
        for slot in self.ended:
            self.running.remove(slot)
            self.reward[slot] = 0.0
        self.ended, sent = [], shaped(self.actions, actions)
        self.age += 1
        steps, seen, reward, shape, last = self.steps, self.seen, self.reward, self.shape, self.age in self.limits
        each = list(sent)  # looking an action up in a list takes a third of the time
        for slot in self.running:
            try:
                observation, reward[slot], terminated, truncated, _ = steps[slot](each[slot])
            except Exception as error:
                self.aged(slot).raised(error)
            if type(observation) is np.ndarray and observation.shape == shape:
                seen[slot] = observation
            else:
                seen[slot] = self.aged(slot).flat(observation)
            if terminated or truncated or (last and self.limits[slot] == self.age):
                self.terminated[slot], self.truncated[slot] = terminated, not terminated
                self.ended.append(slot)
        return seen, reward, self.terminated, self.truncated, {}

    def aged(self, slot: int) -> OneEpisode:
        """The environment of a slot, with the number of its steps."""
        one = self.envs[slot]
        one.steps = self.age
        return one

    def close(self) -> None:
        for one in self.envs:
            one.close()


def unwrapped(env: gymnasium.Env) -> tuple[Callable[[Any], Any], int | None]:
    """Return the step of an environment without the outer wrappers that `gymnasium.make` adds, and their time limit.

    A slot resets an environment before it steps it and counts the steps, so that the wrappers only cost time.
    """
    inner: Any = env
    limits = []
    while type(inner) in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
        limits += [inner._max_episode_steps] if isinstance(inner, TimeLimit) else []
        inner = inner.env
    return inner.step, min(limits, default=None)


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

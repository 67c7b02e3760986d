"""`gym:ID`, and any Gymnasium environment, vector environment or factory of the user's.

Observations are flattened (Dict, Tuple, Discrete and Box of any shape become a vector), Box actions too; actions are clipped
to the bounds of each dimension on their way into the environment. Time limits are the environment's own, unless a horizon
is given; an episode that is truncated ends as one that terminates does, because these estimators look no further.
"""

import functools
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stormpg.envs.base import Box, Discrete, OutsideEnvironment
from stormpg.errors import EnvironmentFailure, InputError, nearest

NO_LIMIT = 1000  # the horizon of an environment that has no time limit


class OneEpisode(gymnasium.Wrapper):
    """An environment as a slot sees it: flat, one episode for each seed, idle after its end.

    A reset without a seed, as vector environments give after an episode, lets it wait. What goes wrong is told with the seed
    that repeats it.
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
        observation, reward, terminated, truncated, _ = self._guard(self.env.step, self._shaped(action))
        self.seen, self.idle = self._flat(observation), bool(terminated or truncated)
        return self.seen, float(reward), bool(terminated), bool(truncated), {}

    def _shaped(self, action: Any) -> Any:
        space = self.env.action_space
        if isinstance(space, spaces.Discrete):
            return int(action) + int(space.start)
        return np.asarray(action, space.dtype).reshape(space.shape)

    def _flat(self, observation: Any) -> np.ndarray:
        flat = self._guard(spaces.flatten, self.env.observation_space, observation)
        if flat.shape != self.seen.shape:
            self._fail(f"gave an observation of {flat.size} numbers; expected {self.seen.size}")
        return flat.astype(np.float32, copy=False)

    def _guard(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except Exception as error:
            self._fail(f"raised {type(error).__name__}: {error}")

    def _fail(self, what: str) -> None:
        name = self.env.spec.id if self.env.spec else type(self.env.unwrapped).__name__
        raise EnvironmentFailure(f"{name} {what}, at step {self.steps} of the episode with seed {self.seed}.")


def flat_observations(space: spaces.Space) -> spaces.Box:
    try:
        flat = spaces.flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, spaces.Box):
        raise InputError(f"observations in {space} cannot be flattened; expected a Box, Discrete, Dict or Tuple space.")
    return spaces.Box(-np.inf, np.inf, flat.shape, np.float32)


def flat_actions(space: spaces.Space) -> spaces.Box | spaces.Discrete:
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (bound.reshape(-1).astype(np.float32) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=np.float32)
    raise InputError(f"actions in {space} are not supported; expected a Box of floats or a Discrete space.")


def make(name: str, asynchronous: bool = False, timeout: float | None = None, **settings: Any) -> OutsideEnvironment:
    """`make("gym:Hopper-v5")`. `asynchronous`: one process for each slot. `timeout`: seconds that a step may take, which
    needs processes. Other settings go to `gymnasium.make`."""
    if name not in gymnasium.registry and ":" not in name:
        raise InputError(f"Gymnasium has no environment {name!r}: {nearest(name, gymnasium.registry)[:300]}.")
    given = {"asynchronous": asynchronous, "timeout": timeout, **settings}

    def factory(**more: Any) -> gymnasium.Env:
        try:
            return gymnasium.make(name, **{**settings, **more})
        except gymnasium.error.DependencyNotInstalled as error:
            raise InputError(f"{name} needs a package that is not installed: {error}.") from None
        except (gymnasium.error.Error, TypeError, ValueError) as error:
            raise InputError(f"gymnasium.make({name!r}) failed: {error}.") from None

    return from_factory(f"gym:{name}", factory, asynchronous, timeout, {k: v for k, v in given.items() if v})


def from_factory(
    name: str,
    factory: Callable[..., gymnasium.Env],
    asynchronous: bool = False,
    timeout: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> OutsideEnvironment:
    """An environment from a function that makes one, `factory(render_mode=...)`."""
    one = OneEpisode(factory())
    limit = one.spec.max_episode_steps if one.spec else None

    def open_slots(n: int) -> Any:
        build = [lambda: OneEpisode(factory())] * n
        if asynchronous or timeout is not None:
            return Patient(build, timeout)
        return gymnasium.vector.SyncVectorEnv(build, copy=False)

    inner = one.env
    described = _describe(name, inner.observation_space, inner.action_space, open_slots, limit or NO_LIMIT, settings, factory)
    one.close()
    return described


class Patient(gymnasium.vector.AsyncVectorEnv):
    """One process for each environment; a step or reset that takes longer than `seconds` is a failure."""

    def __init__(self, build: Sequence[Callable[[], gymnasium.Env]], seconds: float | None) -> None:
        # Not a fork of this process, whose JAX has threads; the server that is forked instead has imported all there is.
        multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
        super().__init__(build, shared_memory=True, context="forkserver")
        self.seconds = seconds

    def reset_wait(self, timeout: float | None = None) -> Any:
        return self._patiently(super().reset_wait)

    def step_wait(self, timeout: float | None = None) -> Any:
        return self._patiently(super().step_wait)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Whatever state they are in, hanging or gone."""
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.parent_pipes:
            pipe.close()

    def _patiently(self, wait: Callable[..., Any]) -> Any:
        try:
            return wait(timeout=self.seconds)
        except multiprocessing.TimeoutError:
            raise EnvironmentFailure(f"an environment took longer than {self.seconds} seconds for a step.") from None
        except (EOFError, ConnectionError) as error:
            codes = [p.exitcode for p in self.processes if not p.is_alive()]
            raise EnvironmentFailure(f"the process of an environment died (exit codes {codes}).") from error


def adapt(thing: Any) -> OutsideEnvironment:
    """What a user may pass in: a Gymnasium environment, a vector environment, or a function that makes an environment."""
    # A function is called with render_mode="rgb_array" when it is to be drawn, and with nothing otherwise.
    if isinstance(thing, gymnasium.vector.VectorEnv):
        return _from_vector(thing)
    if isinstance(thing, gymnasium.Env):
        if thing.spec is not None:
            spec = thing.spec
            return from_factory(f"gym:{spec.id}", lambda **more: gymnasium.make(spec, **more))
        return from_single(thing)
    if callable(thing):
        return from_factory(getattr(thing, "__name__", "factory"), lambda **more: thing(**more))
    raise InputError(
        f"cannot make an environment of {type(thing).__name__}: give a name, a stormpg or Gymnasium environment, a vector "
        "environment, or a function that makes one."
    )


def from_single(env: gymnasium.Env) -> OutsideEnvironment:
    """One environment that cannot be made again: its episodes are played one after the other."""
    one = OneEpisode(env)
    slot = gymnasium.vector.SyncVectorEnv([lambda: one], copy=False)
    slot.close_extras = lambda **_: None  # type: ignore[method-assign] # it is the user's, and stays open
    return _describe(type(env).__name__, env.observation_space, env.action_space, lambda n: slot, NO_LIMIT, None, None)


def _from_vector(vector: Any) -> OutsideEnvironment:
    """A vector environment of the user's: as many slots as it has, whatever they do after an episode."""
    observations, actions = vector.single_observation_space, vector.single_action_space
    if not isinstance(observations, spaces.Box) or len(observations.shape) != 1:
        raise InputError(f"the vector environment observes {observations}; expected a flat Box: wrap it, or give a factory.")
    name = vector.spec.id if vector.spec else type(vector).__name__
    limit = vector.spec.max_episode_steps if vector.spec else None
    return _describe(f"gym:{name}", observations, actions, lambda n: _Lent(vector), limit or NO_LIMIT, None, None)


class _Lent:
    """A vector environment that is not ours to close."""

    def __init__(self, vector: Any) -> None:
        self.vector, self.num_envs = vector, vector.num_envs

    def reset(self, seed: list[int | None]) -> Any:
        seeds = [one or 0 for one in seed]
        try:
            return self.vector.reset(seed=seeds)
        except (gymnasium.error.Error, TypeError, ValueError):  # one that takes a single seed for all
            return self.vector.reset(seed=seeds[0])

    def step(self, actions: np.ndarray) -> Any:
        space = self.vector.single_action_space
        if isinstance(space, spaces.Discrete):
            return self.vector.step(actions + int(space.start))
        return self.vector.step(actions.reshape(self.num_envs, *space.shape).astype(space.dtype))

    def close(self) -> None: ...


def _describe(
    name: str,
    observations: spaces.Space,
    actions: spaces.Space,
    open_slots: Callable[[int], Any],
    horizon: int,
    settings: Mapping[str, Any] | None,
    frames: Callable[..., Any] | None,
) -> OutsideEnvironment:
    """The environment of these spaces, which are its own and not yet flat."""
    seen: Any = flat_observations(observations)
    taken: Any = flat_actions(actions)
    whole = isinstance(taken, spaces.Discrete)
    return OutsideEnvironment(
        name,
        open_slots,
        Box(seen.shape),
        Discrete(int(taken.n)) if whole else Box(taken.shape),
        None if whole else taken.low,
        None if whole else taken.high,
        functools.partial(_flatten, observations),
        functools.partial(_unflatten, actions),
        horizon,
        settings or {},
        frames,
    )


def _flatten(space: spaces.Space, observation: Any) -> np.ndarray:
    """An observation, or a batch (an array with one more axis, or a list of observations), as vectors."""
    if isinstance(space, spaces.Box):
        values = np.asarray(observation, np.float32)
        if values.shape == space.shape:
            return values.reshape(-1)
        return values.reshape(len(values), -1) if values.shape[1:] == space.shape else values
    if isinstance(observation, list) or (isinstance(observation, np.ndarray) and observation.ndim == 1):
        return np.stack([_flatten(space, one) for one in observation])
    return np.asarray(spaces.flatten(space, observation), np.float32)


def _unflatten(space: Any, actions: np.ndarray) -> np.ndarray:
    if isinstance(space, spaces.Discrete):
        return actions + int(space.start)
    return np.clip(actions.reshape(-1, *space.shape), space.low, space.high).astype(space.dtype)

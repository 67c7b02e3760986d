"""`gym:ID`, and any Gymnasium environment, vector environment or factory of the user.

Observations and actions are flattened (`flattening`), and actions are clipped to the bounds of each dimension before they are
passed to the environment. The environment's own time limit applies, unless a horizon is given. A truncated episode is treated
like a terminated one, because the estimators use no rewards after the last step.

An environment given as an object is used as it is. It is never made again from its name, or copied, because this would lose the
user's changes to it, and it is never closed. A single environment plays its episodes one after the other.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from stormpg.envs.base import OWN, OutsideEnvironment
from stormpg.envs.flattening import flat_actions, flatten, seen_space, taken_space, unflatten
from stormpg.envs.slots import InTurn, OneEpisode, Patient, name_of
from stormpg.errors import InputError, nearest, tell

NO_LIMIT = 1000  # the horizon of an environment without a time limit


def time_limit(env: gymnasium.Env) -> int:
    """Return the time limit of an environment: that of its wrappers, otherwise the registered one, otherwise NO_LIMIT."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        limits += [env._max_episode_steps] if isinstance(env, TimeLimit) else []
        env = env.env
    registered = env.spec.max_episode_steps if env.spec is not None else None
    return min(limits, default=registered or NO_LIMIT)


def install_hint(said: str) -> str:
    """How to install what Gymnasium misses: by an extra, if one brings it; otherwise as Gymnasium says."""
    extra = next((extra for extra in ("mujoco", "box2d") if extra in said.lower()), None)
    return f'pip install "stormpg[{extra}]"' if extra else said


def make(name: str, asynchronous: bool = False, timeout: float | None = None, **settings: Any) -> OutsideEnvironment:
    """Return the environment for `make("gym:Hopper-v5")`, or for `make("gym:module:ID")` if importing a module registers it.

    `asynchronous`: one process per slot. `timeout`: the largest number of seconds for a step, which also uses processes. Other
    settings are passed to `gymnasium.make`.
    """
    if name not in gymnasium.registry and ":" not in name:
        raise InputError(f"Gymnasium has no environment {name!r}: {nearest(name, gymnasium.registry)[:300]}.")
    given = {"asynchronous": asynchronous, "timeout": timeout, **settings}

    def factory(**more: Any) -> gymnasium.Env:
        try:
            return gymnasium.make(name, **{**settings, **more})
        except gymnasium.error.DependencyNotInstalled as error:
            raise InputError(f"{name} needs a package that is not installed: {install_hint(str(error))}.") from None
        except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
            raise InputError(f"gymnasium.make({name!r}) failed: {error}.") from None

    return from_factory(f"gym:{name}", factory, asynchronous, timeout, {k: v for k, v in given.items() if v})


def from_factory(
    name: str,
    factory: Callable[..., gymnasium.Env],
    asynchronous: bool = False,
    timeout: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> OutsideEnvironment:
    """Return an environment from a function that makes one, `factory(render_mode=...)`."""
    one = factory()
    if not isinstance(one, gymnasium.Env):
        raise InputError(f"{name} made a {type(one).__name__}; expected a function that makes a Gymnasium environment.")

    def open_slots(n: int) -> Any:
        if asynchronous or timeout is not None:
            return Patient([lambda: OneEpisode(factory())] * n, timeout)
        slots = InTurn([OneEpisode(factory()) for _ in range(n)])
        if len({id(slot.unwrapped) for slot in slots.envs}) < n:
            raise InputError(
                f"{name} returns the same environment every time: give the environment, or a function that makes a new one."
            )
        return slots

    described = describe(name, one.observation_space, one.action_space, open_slots, time_limit(one), settings, factory)
    one.close()
    return described


def adapt(thing: Any) -> OutsideEnvironment:
    """Return an environment from a Gymnasium environment, a vector environment, or a function that makes an environment."""
    # A function is called with render_mode="rgb_array" for rendering, and without arguments otherwise.
    if isinstance(thing, gymnasium.vector.VectorEnv):
        return from_vector(thing)
    if isinstance(thing, gymnasium.Env):
        return from_instance(thing)
    if callable(thing):
        name = getattr(thing, "__name__", "factory").strip("<>")
        return from_factory(f"{OWN}:{name}", lambda **more: thing(**more))
    raise InputError(
        f"cannot make an environment from {type(thing).__name__}: give a name, a stormpg or Gymnasium environment, a vector "
        "environment, or a function that makes one."
    )


class Kept(gymnasium.Wrapper):
    """An environment of the user, which is never closed."""

    def close(self) -> None: ...


def from_instance(env: gymnasium.Env) -> OutsideEnvironment:
    """Return an environment that uses the given object. Its episodes are played one after the other."""
    name, kept = f"{OWN}:{name_of(env)}", Kept(env)
    one, warned = OneEpisode(kept), list[bool]()

    def open_slots(n: int) -> Any:
        if n > 1 and not warned:
            warned.append(True)
            tell(
                f"{name_of(env)} is one environment: its episodes are played one after the other; give a function that makes "
                "environments to play several at a time."
            )
        return InTurn([one])

    def frames(render_mode: str) -> gymnasium.Env:
        if env.render_mode != render_mode:
            raise InputError(
                f"{name_of(env)} was made with render_mode={env.render_mode!r} and cannot be drawn: make it with "
                f"render_mode={render_mode!r}."
            )
        return kept

    limit = time_limit(env)
    return describe(name, env.observation_space, env.action_space, open_slots, limit, None, frames, copies=False)


def from_vector(vector: Any) -> OutsideEnvironment:
    """Return an environment that uses the given vector environment and its slots. Any autoreset mode is supported."""
    observations, actions = vector.single_observation_space, vector.single_action_space
    if not isinstance(observations, spaces.Box):
        raise InputError(
            f"the vector environment has observations in {observations}; expected a Box: wrap it, or give a factory."
        )
    inner = getattr(vector.unwrapped, "envs", None)
    first = inner[0] if isinstance(inner, list | tuple) and isinstance(inner[0], gymnasium.Env) else None
    spec = first.unwrapped.spec if vector.spec is None and first is not None else vector.spec
    limit = time_limit(first) if first is not None else (spec.max_episode_steps if spec else None) or NO_LIMIT
    name = f"{OWN}:{spec.id if spec else type(vector.unwrapped).__name__}"
    return describe(name, observations, actions, lambda n: _Lent(vector), limit, None, None, copies=False)


class _Lent:
    """A vector environment of the user, which is never closed."""

    def __init__(self, vector: Any) -> None:
        self.vector, self.num_envs = vector, vector.num_envs
        mode = vector.metadata.get("autoreset_mode")
        self.by_hand = getattr(mode, "name", mode) == "DISABLED"  # the caller must reset environments whose episodes have ended
        self.over = np.zeros(self.num_envs, bool)

    def reset(self, seed: list[int | None]) -> Any:
        seeds = [one or 0 for one in seed]
        self.over[:] = False
        try:
            return self._seen(*self.vector.reset(seed=seeds))
        except (gymnasium.error.Error, TypeError, ValueError):  # some take a single seed for all
            return self._seen(*self.vector.reset(seed=seeds[0]))

    def step(self, actions: np.ndarray) -> Any:
        if self.by_hand and self.over.any():
            self.vector.reset(options={"reset_mask": self.over.copy()})
        stepped = self.vector.step(unflatten(self.vector.single_action_space, actions))
        self.over = np.asarray(stepped[2] | stepped[3], bool)
        return self._seen(*stepped)

    def _seen(self, observations: Any, *rest: Any) -> tuple[Any, ...]:
        return np.reshape(observations, (self.num_envs, -1)).astype(np.float32, copy=False), *rest

    def close(self) -> None: ...


def describe(
    name: str,
    observations: spaces.Space[Any],
    actions: spaces.Space[Any],
    open_slots: Callable[[int], Any],
    horizon: int,
    settings: Mapping[str, Any] | None,
    frames: Callable[..., Any] | None,
    copies: bool = True,
) -> OutsideEnvironment:
    """Return the environment with these Gymnasium spaces, which are not flattened yet."""
    taken: Any = flat_actions(actions)
    box = isinstance(taken, spaces.Box)
    return OutsideEnvironment(
        name,
        open_slots,
        seen_space(observations),
        taken_space(actions),
        taken.low if box else None,
        taken.high if box else None,
        functools.partial(flatten, observations),
        functools.partial(unflatten, actions),
        horizon,
        settings or {},
        frames,
        copies,
    )

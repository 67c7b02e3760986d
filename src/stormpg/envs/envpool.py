"""`envpool:ID`: the environments of EnvPool, which steps all slots in one call, in C++ and on threads of its own.

EnvPool takes seeds only when a pool is made. So each batch has its own pool, made with the seeds of its trajectories: as for
all environments, the randomness of a trajectory belongs to its index. The same seed gives the same run with any number of
threads, and a resumed run continues bit for bit.

Only running episodes are stepped. So EnvPool never gets to its automatic reset, which would begin a second episode.
"""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import envpool
import numpy as np
from gymnasium import spaces

from stormpg.envs.base import OutsideEnvironment
from stormpg.envs.flattening import flatten, shaped
from stormpg.envs.gym import NO_LIMIT, describe
from stormpg.errors import InputError, nearest

OURS = ("num_envs", "batch_size", "seed", "env_seed", "env_type", "gym_reset_return_info", "max_num_players", "from_pixels")
UNLIMITED = 2**31 - 1  # what EnvPool calls the time limit of an environment that has none
THREADS = 256


def make(name: str, **settings: Any) -> OutsideEnvironment:
    """Return the environment for `make("envpool:HalfCheetah-v4", num_threads=4)`. Settings are passed to `envpool.make`."""
    known = envpool.list_all_envs()
    if name not in known:
        raise InputError(f"EnvPool has no environment {name!r}: {nearest(name, known)[:300]}.")
    for setting in settings:
        if setting in OURS:
            raise InputError(f"envpool:{name} cannot take {setting}, which this library chooses: leave it out.")
    threads = settings.get("num_threads", 0)
    if not isinstance(threads, int) or not 0 <= threads <= THREADS:
        raise InputError(f"num_threads is {threads}; expected a whole number from 0, which is one for each core, to {THREADS}.")
    try:
        one, _ = begin(name, settings, [0])
    except (AssertionError, AttributeError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"EnvPool cannot make {name}: {str(error).rstrip('.')}.") from None
    observations, actions, limit = one.observation_space, one.action_space, one.config["max_episode_steps"]
    if not isinstance(observations, spaces.Box | spaces.Discrete):
        kind = type(observations).__name__
        raise InputError(f"envpool:{name} has observations in a {kind} space; expected a Box or Discrete: choose another.")
    open_slots = functools.partial(Pools, name, settings, observations, actions)
    horizon = NO_LIMIT if limit == UNLIMITED else limit
    return describe(f"envpool:{name}", observations, actions, open_slots, horizon, settings, None)


def begin(name: str, settings: Mapping[str, Any], seeds: Sequence[int]) -> tuple[Any, Any]:
    """Return a pool with an environment for each seed, and its first observations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's, that bounds lose precision as float32
        pool = envpool.make(name, env_type="gymnasium", num_envs=len(seeds), seed=list(seeds), **settings)
        return pool, pool.reset()[0]


class Pools:
    """Slots of EnvPool: each reset makes a pool for the slots that have a seed."""

    holds_ended = True

    def __init__(
        self, name: str, settings: Mapping[str, Any], observations: spaces.Space[Any], actions: spaces.Space[Any], n: int
    ) -> None:
        self.begin = functools.partial(begin, name, settings)
        self.flat, self.actions, self.num_envs = functools.partial(flatten, observations), actions, n
        self.seen = np.zeros((n, spaces.flatdim(observations)), np.float32)

    def reset(self, seed: Sequence[int | None]) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in each slot that has a seed."""
        self.slots = np.array([slot for slot, one in enumerate(seed) if one is not None])  # of the environments of the pool
        self.running = np.arange(len(self.slots), dtype=np.int32)  # the environments whose episodes run
        self.reward, self.terminated, self.truncated = (np.zeros(self.num_envs, kind) for kind in (float, bool, bool))
        self.pool, first = self.begin([one for one in seed if one is not None])
        self.seen[self.slots] = self.flat(first)
        return self.seen, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """A step of the running episodes. After its end a slot keeps its last observation and gets no rewards."""
        slots = self.slots[self.running]
        seen, reward, terminated, truncated, _ = self.pool.step(shaped(self.actions, actions)[slots], self.running)
        self.seen[slots], self.reward[:] = self.flat(seen), 0.0
        self.reward[slots], self.terminated[slots], self.truncated[slots] = reward, terminated, truncated
        self.running = self.running[~(terminated | truncated)]
        return self.seen, self.reward, self.terminated, self.truncated, {}

    def close(self) -> None:
        self.pool = None

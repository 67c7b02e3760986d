"""Episodes on Ray actors, for slow environments outside JAX: each actor plays a part of every batch.

The result depends only on the seeds and the noise, which belong to the index of a trajectory. It does not depend on the number
of actors, or on whether an actor died and its part was played again.
"""

import contextlib
import functools
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.envs.base import AnyEnvironment, Environment, OutsideEnvironment
from stormpg.errors import EnvironmentFailure, InputError
from stormpg.machine import retries
from stormpg.machine.ray_cluster import HERE, cluster, imported
from stormpg.policies.acting import Actor, actor
from stormpg.pytrees import Tree, traceable
from stormpg.sampling.episodes import Sampler
from stormpg.trajectories import Trajectories

PATIENCE = 2.0  # seconds that environments have to close before their actor is killed


def sendable(env: AnyEnvironment) -> bytes:
    """The pickled environment. Raise InputError if it cannot be played on actors."""
    if isinstance(env, Environment):
        raise InputError(f"{env.name} runs inside JAX; rollout_workers is for environments outside it: leave it out.")
    if not env.copies:
        raise InputError(f"{env.name} is one object, and rollout_workers need their own: give a function that makes one.")
    return pickled(env.name, env)


def pickled(name: str, thing: Any) -> bytes:
    """Pickle an object for another process. Raise InputError if that is not possible."""
    ray = imported()
    try:
        return cast(bytes, ray.cloudpickle.dumps(thing))
    except Exception as error:
        what = " ".join(f"{name} cannot be sent to rollout_workers ({type(error).__name__}: {error})".split())
        raise InputError(f"{what}: give one that is made of what can be pickled, or leave rollout_workers out.") from None


def one_by_one(policy: Any, params: Tree) -> Actor:
    """The policy at ξ, applied to one observation at a time.

    A matrix product rounds a row differently if the other rows differ, in NumPy and in XLA. Applied to one row at a time, the
    action is the same on every actor, whatever else that actor plays.
    """
    acting = actor(policy, params)

    def rows(function: Callable[..., np.ndarray], *batch: Any) -> np.ndarray:
        return np.concatenate([function(*(part[row] for part in batch)) for row in np.arange(len(batch[0]))[:, None]])

    return Actor(functools.partial(rows, acting.act), functools.partial(rows, acting.mode))


class Player:
    """Runs in an actor and plays the episodes with the given seeds and noise.

    What it unpickles comes from the process that started it, through Ray, which pickles everything itself.
    """

    def __init__(self, path: list[str], env: bytes, horizon: int) -> None:
        # JAX has not started here yet. One thread is enough, and the accelerators belong to the process that learns.
        os.environ["NPROC"] = "1"
        jax.config.update("jax_platforms", "cpu")
        sys.path.extend(folder for folder in path if folder not in sys.path)  # for the user's own modules
        self.env, self.horizon, self.sent = env, horizon, b""

    @functools.cached_property
    def sampler(self) -> Sampler:
        return Sampler(pickle.loads(self.env), self.horizon, one_by_one)

    def play(self, broadcast: Any, seeds: np.ndarray, noise: Any, keys: str | None, deterministic: bool) -> Trajectories:
        sent, params, wide = broadcast
        if sent != self.sent:  # so that a policy is compiled once
            self.sent, self.policy = sent, pickle.loads(sent)
        with jax.enable_x64(wide):
            noise = noise if keys is None else jax.random.wrap_key_data(noise, impl=keys)
            return self.sampler.play(self.policy, params, seeds, noise, deterministic)

    def close(self) -> None:
        self.sampler.close()


class RaySampler(Sampler):
    """Plays episodes on a number of actors, which start with the first batch."""

    def __init__(self, env: OutsideEnvironment, horizon: int, workers: int) -> None:
        super().__init__(env, horizon)
        self.workers, self.content = workers, sendable(env)
        self.held, self.actors = contextlib.ExitStack(), list[Any]()

    def start(self) -> None:
        """Start Ray and the actors."""
        self.ray = self.held.enter_context(cluster(HERE))
        # Slow environments mostly wait: an actor reserves no core, so that there may be more actors than cores.
        make = self.ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=retries.ROLLOUTS)(Player)
        path = list(map(os.path.abspath, sys.path))
        self.actors = [make.remote(path, self.content, self.horizon) for _ in range(self.workers)]

    def play(self, policy: Any, params: Tree, seeds: np.ndarray, noise: Any, deterministic: bool = False) -> Trajectories:
        if not self.actors:
            self.start()
        policy, params = jax.tree.map(np.asarray, (traceable(policy), params))
        wide = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        broadcast = self.ray.put((pickled("the policy", policy), params, wide))
        keys = str(jax.random.key_impl(noise)) if jnp.issubdtype(noise.dtype, jax.dtypes.prng_key) else None
        noise = noise if keys is None else np.asarray(jax.random.key_data(noise))  # keys cannot be pickled
        parts = [part for part in np.array_split(np.arange(len(seeds)), self.workers) if len(part)]
        begun = [
            one.play.remote(broadcast, seeds[part], noise[part], keys, deterministic)
            for one, part in zip(self.actors, parts, strict=False)
        ]
        done = [self.outcome(reference, seeds[part]) for reference, part in zip(begun, parts, strict=True)]
        return cast(Trajectories, jax.tree.map(lambda *columns: np.concatenate(columns), *done))

    def outcome(self, reference: Any, seeds: np.ndarray) -> Trajectories:
        """The episodes of an actor, or its error."""
        try:
            return cast(Trajectories, self.ray.get(reference))
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            if isinstance(error, self.ray.exceptions.RayActorError):  # Ray has retried, and has no more details
                reason = f"it died each of {retries.ROLLOUTS + 1} times, out of memory, or ended by a library."
            what = f"a rollout worker could not play the episodes of the seeds {seeds.tolist()}"
            raise EnvironmentFailure(f"{self.env.name}: {what}: {reason}") from error

    def close(self) -> None:
        actors, self.actors = self.actors, []
        if actors:
            with contextlib.suppress(Exception):
                self.ray.wait([one.close.remote() for one in actors], num_returns=len(actors), timeout=PATIENCE)
            for one in actors:
                self.ray.kill(one)
        self.held.close()

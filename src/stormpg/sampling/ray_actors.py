"""Rollouts on Ray actors, for environments outside JAX that are slow: each actor plays a part of every batch.

What comes back depends on the seeds and the noise alone, which belong to the index of a trajectory: not on how many actors
there are, nor on whether one of them died and played its part again.
"""

import contextlib
import functools
import os
import pickle
import sys
from typing import Any

import jax
import numpy as np

from stormpg.envs.base import AnyEnvironment, Environment, OutsideEnvironment
from stormpg.errors import EnvironmentFailure, InputError
from stormpg.machine.ray_cluster import HERE, cluster, imported
from stormpg.policies.acting import Actor, actor
from stormpg.records import Tree, traceable
from stormpg.sampling.episodes import Sampler
from stormpg.trajectories import Trajectories

AGAIN = 3  # times that a part of a batch is played again after its actor died
PATIENCE = 2.0  # seconds for environments to close before their actor is ended


def sendable(env: AnyEnvironment) -> bytes:
    """An environment as actors are sent it; InputError where it cannot be played on them."""
    if isinstance(env, Environment):
        raise InputError(f"{env.name} runs inside JAX; rollout_workers is for environments outside it: leave it out.")
    if not env.copies:
        raise InputError(f"{env.name} is one object, and rollout_workers need their own: give a function that makes one.")
    return pickled(env.name, env)


def pickled(name: str, thing: Any) -> bytes:
    """For another process; InputError where it cannot be."""
    ray = imported()
    try:
        return ray.cloudpickle.dumps(thing)
    except Exception as error:
        what = " ".join(f"{name} cannot be sent to rollout_workers ({type(error).__name__}: {error})".split())
        raise InputError(f"{what}: give one that is made of what can be pickled, or leave rollout_workers out.") from None


def one_by_one(policy: Any, params: Tree) -> Actor:
    """The policy at ξ, observation by observation.

    A product of matrices, in NumPy as in XLA, rounds a row differently with other rows beside it. On its own, and at the
    beginning of its own memory, a row gives the same action whichever actor plays it and whatever else that one plays.
    """
    acting = actor(policy, params)
    each = lambda batch: np.arange(len(batch[0]))[:, None]
    rows = lambda f: lambda *batch: np.concatenate([f(*(part[row] for part in batch)) for row in each(batch)])
    return Actor(rows(acting.act), rows(acting.mode))


class Player:
    """What runs in an actor: it plays the episodes whose seeds and noise it is sent.

    What it unpickles comes from the process that started it, by way of Ray, which pickles everything itself.
    """

    def __init__(self, path: list[str], env: bytes, horizon: int) -> None:
        # JAX is not in use here yet: it needs one thread, and must leave the accelerators to the process that learns.
        os.environ["NPROC"] = "1"
        jax.config.update("jax_platforms", "cpu")
        sys.path.extend(folder for folder in path if folder not in sys.path)  # where a user's own modules are
        self.env, self.horizon, self.sent = env, horizon, b""

    @functools.cached_property
    def sampler(self) -> Sampler:
        return Sampler(pickle.loads(self.env), self.horizon, one_by_one)

    def play(self, broadcast: Any, seeds: np.ndarray, noise: Any, keys: str | None, deterministic: bool) -> Trajectories:
        sent, params, wide = broadcast
        if sent != self.sent:  # one policy object compiles once
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
        """Ray, and the actors on it."""
        self.ray = self.held.enter_context(cluster(HERE))
        # Slow environments wait more than they compute: an actor asks for no core, so that there may be more than cores.
        make = self.ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=AGAIN)(Player)
        path = list(map(os.path.abspath, sys.path))
        self.actors = [make.remote(path, self.content, self.horizon) for _ in range(self.workers)]

    def play(self, policy: Any, params: Tree, seeds: np.ndarray, noise: Any, deterministic: bool = False) -> Trajectories:
        if not self.actors:
            self.start()
        policy, params = jax.tree.map(np.asarray, (traceable(policy), params))
        wide = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        broadcast = self.ray.put((pickled("the policy", policy), params, wide))
        keys = str(jax.random.key_impl(noise)) if jax.dtypes.issubdtype(noise.dtype, jax.dtypes.prng_key) else None
        noise = noise if keys is None else np.asarray(jax.random.key_data(noise))  # keys cannot be pickled
        parts = [part for part in np.array_split(np.arange(len(seeds)), self.workers) if len(part)]
        ask = lambda one, part: one.play.remote(broadcast, seeds[part], noise[part], keys, deterministic)
        begun = [ask(one, part) for one, part in zip(self.actors, parts, strict=False)]
        done = [self.outcome(reference, seeds[part]) for reference, part in zip(begun, parts, strict=True)]
        return jax.tree.map(lambda *columns: np.concatenate(columns), *done)

    def outcome(self, reference: Any, seeds: np.ndarray) -> Trajectories:
        """What an actor has played; its error where it raised one."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            if isinstance(error, self.ray.exceptions.RayActorError):  # Ray has played it again, and can say no more
                reason = f"it died each of {AGAIN + 1} times, for lack of memory or by a library that ends its process."
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

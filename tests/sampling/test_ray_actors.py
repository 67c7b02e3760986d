"""Rollouts on Ray actors: any number of actors gives the same numbers, even if some are killed."""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import stormpg
from stormpg.engine import python_loop
from stormpg.envs import gym
from stormpg.errors import EnvironmentFailure, InputError
from stormpg.machine import retries
from stormpg.machine.ray_cluster import cluster, imported
from stormpg.sampling import ray_actors
from tests.conftest import killed_after

PENDULUM, CARTPOLE = "gym:Pendulum-v1", "gym:CartPole-v1"
SMALL = {"trajectories": 20, "seeds": 1, "horizon": 15}
ALGORITHM = stormpg.storm_pg(S0=5, B=3)


class Toy(gymnasium.Env):
    """The reward is the action. Step 3 causes the given trouble: always, or `times` times, counted in the file `noted`."""

    def __init__(self, trouble=None, noted=None, times=None, render_mode=None):
        self.observation_space, self.action_space = spaces.Box(-9, 9, (3,)), spaces.Box(-1, 1, (1,))
        self.trouble, self.noted, self.times = trouble, noted, times

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(size=3).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = float(action[0])
        if self.trouble and self.steps == 3 and (self.times is None or count(self.noted) < self.times):
            if self.noted:
                with self.noted.open("a") as file:
                    file.write("again\n")
            if self.trouble == "raise":
                raise ZeroDivisionError("the wheel came off")
            if self.trouble == "reward":
                reward = float("nan")
            if self.trouble == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return self.np_random.uniform(size=3).astype(np.float32), reward, self.steps >= 6, False, {}


def count(noted):
    """The number of lines of a file, 0 if it does not exist."""
    return len(noted.read_text().splitlines()) if noted.exists() else 0


def toy(**settings):
    """A toy environment, always with the same name, so that all runs of a test use the same environment."""
    return gym.from_factory("toy", lambda **more: Toy(**settings, **more))


class Coin:
    """A user-defined policy without a `noise` method, so that actors are sent keys."""

    def init(self, key):
        return jax.random.normal(key, (4,))

    def logit(self, params, observation):
        return params @ observation

    def sample(self, params, key, observation):
        return jax.random.bernoulli(key, jax.nn.sigmoid(self.logit(params, observation))).astype(int)

    def log_prob(self, params, observation, action):
        return jax.nn.log_sigmoid((2 * action - 1) * self.logit(params, observation))

    def mode(self, params, observation):
        return (self.logit(params, observation) > 0).astype(int)


@contextlib.contextmanager
def small_clusters():
    """Start clusters without monitoring processes, dashboard and prestarted workers."""
    imported()
    from ray._private.node import Node

    with pytest.MonkeyPatch.context() as patch:
        for name in ("start_monitor", "start_log_monitor", "start_api_server"):
            patch.setattr(Node, name, lambda self, **options: None)
        for name in ("RAY_enable_worker_prestart", "RAY_prestart_worker_first_driver"):
            patch.setenv(name, "0")
        yield


@pytest.fixture(scope="module")
def ray():
    """One cluster for all tests, because starting one takes seconds."""
    with contextlib.ExitStack() as held:
        with warnings.catch_warnings(), small_clusters():
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX warns about the processes that Ray starts
            started = held.enter_context(cluster("ray"))
        yield started


class Thrifty:
    """Ray, but killed actors are kept and reused for the next actor, because starting a process takes seconds."""

    def __init__(self, ray):
        self.ray, self.kept = ray, []

    def __getattr__(self, name):
        return getattr(self.ray, name)

    def remote(self, **options):
        def of(kind):
            make = self.ray.remote(**options)(kind)
            return types.SimpleNamespace(remote=lambda *given: self.anew(given) if self.kept else make.remote(*given))

        return of

    def anew(self, given):
        def begin(player, *given):
            vars(player).clear()
            player.__init__(*given)

        one = self.kept.pop()
        self.ray.get(one.__ray_call__.remote(begin, *given))
        return one

    def kill(self, one):
        self.kept.append(one)


@pytest.fixture(scope="module")
def thrifty(ray):
    return Thrifty(ray)


@contextlib.contextmanager
def processes_of(thrifty):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_actors, "cluster", lambda where: contextlib.nullcontext(thrifty))
        yield


@pytest.fixture
def same_processes(thrifty):
    """Reuse the processes of earlier actors, for tests that do not depend on how actors start and end."""
    with processes_of(thrifty):
        yield


@pytest.fixture(scope="module")
def one_actor(thrifty):
    """The result with one actor, computed once for each environment, algorithm and policy."""

    @functools.cache
    def of(env, algorithm=ALGORITHM, policy=None):
        with processes_of(thrifty):
            return stormpg.train(env, algorithm, **SMALL, policy=policy, rollout_workers=1)

    return of


def check_same(a, b):
    """Check that all numbers of two results are bitwise equal."""
    for name, column in a.columns.items():
        np.testing.assert_array_equal(column, b.columns[name], name)
    jax.tree.map(np.testing.assert_array_equal, a.states.params, b.states.params)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "policy"), [(PENDULUM, None), (CARTPOLE, None), (CARTPOLE, Coin())], ids=["pendulum", "cartpole", "keys"]
)
def test_any_number_of_actors_gives_the_same_numbers(same_processes, one_actor, env, policy):
    one, three = one_actor(env, policy=policy), stormpg.train(env, ALGORITHM, **SMALL, policy=policy, rollout_workers=3)
    check_same(one, three)
    here = stormpg.train(env, ALGORITHM, **SMALL, policy=policy)
    np.testing.assert_allclose(one.columns["return"][:4], here.columns["return"][:4], rtol=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5), one.states.params, here.states.params)


@pytest.mark.slow
def test_schedules_normalisation_and_more_actors_than_trajectories(same_processes):
    policy = stormpg.policy_for(stormpg.make(PENDULUM), normalise=True, learn_sigma=True)
    algorithm = stormpg.make_algorithm("svrpg", S0=5, B=2, m=2)
    check_same(*(stormpg.train(PENDULUM, algorithm, **SMALL, policy=policy, rollout_workers=n) for n in (1, 3)))


@pytest.mark.slow
def test_a_function_of_the_users_makes_the_environments(same_processes):
    def factory(**more):
        return Toy(**more)

    a, b = (stormpg.train(factory, ALGORITHM, **SMALL, rollout_workers=n) for n in (None, 2))
    np.testing.assert_allclose(a.columns["return"], b.columns["return"], rtol=1e-4)


def pids(ray, sampler):
    return ray.get([one.__ray_call__.remote(lambda player: os.getpid()) for one in sampler.actors])


def ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_actors_that_are_killed_play_their_parts_again_and_all_end_with_the_run(ray, thrifty, tmp_path, monkeypatch):
    """One actor is killed in the middle of an episode, one between two batches."""
    samplers, seen = [], []

    class Watched(ray_actors.RaySampler):
        def start(self):
            super().start()
            samplers.append(self)

    def kill(now):
        if len(seen) < 2:
            seen.append(pids(ray, samplers[0]))
        if len(seen) == 1:
            os.kill(seen[0][0], signal.SIGKILL)

    noted = tmp_path / "noted"
    with processes_of(thrifty):
        untroubled = stormpg.train(toy(), ALGORITHM, **SMALL, rollout_workers=1)
    monkeypatch.setattr(python_loop, "RaySampler", Watched)
    troubled = toy(trouble="kill", noted=noted, times=1)
    killed = stormpg.train(troubled, ALGORITHM, **SMALL, rollout_workers=2, progress=kill)
    assert noted.exists()
    check_same(killed, untroubled)
    before, after = seen
    assert after[0] != before[0]
    assert after[1] == before[1]
    until = time.monotonic() + 20
    while not all(map(ended, after)) and time.monotonic() < until:
        time.sleep(0.1)
    assert all(map(ended, after))


@pytest.mark.slow
def test_an_actor_that_dies_each_time_ends_the_run(ray, tmp_path, monkeypatch):
    assert retries.ROLLOUTS == 3
    monkeypatch.setattr(retries, "ROLLOUTS", 1)
    troubled = toy(trouble="kill", noted=tmp_path / "noted")
    with pytest.raises(EnvironmentFailure, match=r"toy: a rollout worker .* seeds \[\d+.* died each of 2 times") as caught:
        stormpg.train(troubled, ALGORITHM, **SMALL, rollout_workers=1, out=tmp_path / "run")
    assert count(tmp_path / "noted") == 2
    assert "--resume" in caught.value.__notes__[0]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["raise", "reward"])
def test_a_failure_of_the_environment_is_told_as_without_actors(same_processes, trouble):
    told = []
    for workers in (None, 1):
        with pytest.raises(EnvironmentFailure, match=r"at step 3 of the episode with seed \d+\.$") as failure:
            stormpg.train(toy(trouble=trouble), ALGORITHM, **SMALL, rollout_workers=workers)
        told.append(str(failure.value))
    assert told[0] == told[1]


@pytest.mark.slow
def test_a_run_is_resumed_with_any_number_of_actors(same_processes, one_actor, tmp_path):
    whole, stop = one_actor(PENDULUM), lambda now: now.trajectories < 10
    part = tmp_path / "part"
    assert not stormpg.train(PENDULUM, ALGORITHM, **SMALL, rollout_workers=2, out=part, progress=stop).complete
    for workers in (1, None):
        folder = shutil.copytree(part, tmp_path / f"run-{workers}")
        resumed = stormpg.train(PENDULUM, ALGORITHM, **SMALL, rollout_workers=workers, out=folder, resume=True)
        assert resumed.complete
        if workers:
            check_same(whole, resumed)
        else:
            np.testing.assert_allclose(whole.columns["return"], resumed.columns["return"], rtol=1e-4)


@pytest.mark.slow
def test_the_command(same_processes, command, tmp_path):
    sizes = ["--algorithm", "storm-pg", "--S0", "4", "--B", "2", "--trajectories", "8", "--seeds", "1", "--horizon", "5"]
    assert command("train", CARTPOLE, *sizes, "--rollout-workers", "2", "--out", "run")[0] == 0
    code, out, _ = command("train", "--resume", "run", "--rollout-workers", "1")
    assert code == 0
    assert "is finished" in out


@pytest.mark.slow
def test_sigterm_still_saves_the_run(tmp_path):
    """A cluster started by the command does not intercept its signals."""
    sizes = ["--algorithm", "storm-pg", "--S0", "4", "--B", "2", "--trajectories", "100000", "--seeds", "1", "--horizon", "5"]
    call = [
        sys.executable,
        "-m",
        "stormpg",
        "train",
        CARTPOLE,
        *sizes,
        "--rollout-workers",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    running = subprocess.Popen([*call, "--checkpoint-iterations", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with killed_after(running):
        until = time.monotonic() + 90
        while not list((tmp_path / "run").glob("checkpoint-*")) and running.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        running.terminate()
        said = running.communicate(timeout=60)[0].decode()
    assert running.returncode == 128 + signal.SIGTERM, said
    assert "Resume: stormpg train --resume" in said
    assert "Warning" not in said


class Held(gymnasium.Env):
    """An environment whose factory cannot be pickled."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))


def test_what_cannot_be_played_on_actors_is_refused(tmp_path):
    lock = threading.Lock()
    bare = gymnasium.make("CartPole-v1").unwrapped
    bare.spec = None
    vector = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    for env, workers, words in (
        ("cartpole", 2, "cartpole runs inside JAX; rollout_workers is for environments outside it"),
        (CARTPOLE, 0, "rollout_workers is 0; expected a whole number from 1"),
        (CARTPOLE, 1.5, "rollout_workers is 1.5; expected a whole number"),
        (bare, 2, "CartPoleEnv is one object, and rollout_workers need their own"),
        (vector, 2, "is one object, and rollout_workers need their own"),
        (lambda **more: lock and Held(), 2, "cannot be sent to rollout_workers .*lock"),
    ):
        with pytest.raises(InputError, match=words):
            stormpg.train(env, ALGORITHM, **SMALL, rollout_workers=workers, out=tmp_path / "run")
    policy = Coin()
    policy.lock = lock
    with pytest.raises(InputError, match=r"the policy cannot be sent to rollout_workers .*lock"):
        stormpg.train(CARTPOLE, ALGORITHM, **SMALL, policy=policy, rollout_workers=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    vector.close()


def test_the_flag_is_checked(command):
    for arguments, words in (
        (["pendulum", "--rollout-workers", "2"], "pendulum runs inside JAX"),
        ([CARTPOLE, "--rollout-workers", "two"], "rollout_workers is 'two'; expected a whole number"),
        ([CARTPOLE, "--rollout-workers", "0"], "rollout_workers is 0"),
    ):
        code, _, err = command("train", *arguments)
        assert code == 2
        assert words in err

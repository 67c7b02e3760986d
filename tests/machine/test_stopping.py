"""However a training run is stopped, it keeps its progress, leaves no thread running, and says how to resume."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import stormpg
from stormpg import Agent
from stormpg.errors import EnvironmentFailure
from stormpg.machine.stopping import Stop, Terminated, completed, listening
from stormpg.runs.checkpoints import CheckpointInterval
from stormpg.runs.logs import Logger

ENV, ALGORITHM = "cartpole-continuous", stormpg.storm_pg(S0=4, B=2)
JOB = {"env": ENV, "algorithm": ALGORITHM, "trajectories": 3000, "seeds": 3, "horizon": 5}
FINAL = ("metrics.parquet", "policy.safetensors", "state.safetensors")


@pytest.fixture(autouse=True)
def usual_handlers():
    """Python's default signal handlers, because a test runner may install its own."""
    before = {number: signal.signal(number, handler) for number, handler in (
        (signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))}  # fmt: skip
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_comes_to_another_thread_is_seen_while_the_main_one_waits():
    """Nothing wakes the main thread in this case, so it has to poll."""
    stop, began = Stop(), time.monotonic()
    with listening(stop), ThreadPoolExecutor(1) as pool:
        work = pool.submit(stop.event.wait, 20)
        other = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
        threading.Timer(0.5, other.start).start()
        assert list(completed([work])) == [work]
    assert work.result()
    assert isinstance(stop.error, KeyboardInterrupt)
    assert time.monotonic() - began < 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    stormpg.train(**JOB, out=folder)
    return folder


def leaves_by(number: int):
    """Return a callback that sends a signal to this process, once."""
    once = iter([number])
    return lambda now: os.kill(os.getpid(), found) if (found := next(once, None)) else None


def raises(now) -> None:
    raise ZeroDivisionError("of the callback")


def failing_logger() -> Logger:
    return Logger(lambda run, step, values: 1 / 0, lambda: None)


WAYS = {
    "ctrl-c": ({"progress": lambda: leaves_by(signal.SIGINT)}, KeyboardInterrupt),
    "sigterm": ({"progress": lambda: leaves_by(signal.SIGTERM)}, Terminated),
    "callback": ({"progress": lambda: raises}, ZeroDivisionError),
    "logger": ({"logs": lambda: [failing_logger()]}, ZeroDivisionError),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_done_is_on_the_exception_and_in_the_folder(tmp_path, whole, way):
    arguments, error = WAYS[way]
    threads = set(threading.enumerate())
    with pytest.raises(error) as caught:
        stormpg.train(**JOB, **{name: make() for name, make in arguments.items()}, out=tmp_path / "run")
    assert not set(threading.enumerate()) - threads
    result = caught.value.result
    assert not result.complete
    assert 0 < int(result.states.trajectories.max()) < 3000
    assert len(result.metrics) == len(result.columns["iteration"]) > 0
    assert result.final_return().shape == (1, 3)
    assert f"--resume {tmp_path / 'run'}" in " ".join(caught.value.__notes__)
    assert stormpg.train(**JOB, out=tmp_path / "run", resume=True).complete
    for name in FINAL:
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes(), name


def test_without_a_folder_the_result_is_on_the_exception():
    with pytest.raises(KeyboardInterrupt) as caught:
        stormpg.train(**JOB, progress=leaves_by(signal.SIGINT))
    first = caught.value.result
    complete = stormpg.train(**JOB)
    count = int((first.columns["seed"] == 0).sum())
    np.testing.assert_array_equal(
        first.columns["return"][first.columns["seed"] == 0],
        complete.columns["return"][complete.columns["seed"] == 0][:count],
    )


def test_handlers_of_the_caller_stay():
    """A handler other than Python's default is not replaced. Our handlers are removed afterwards."""
    came = []
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    stormpg.train(**JOB | {"trajectories": 50}, progress=leaves_by(signal.SIGTERM))
    assert came == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_signal_is_raised_at_once():
    stop = Stop()
    with listening(stop):
        signal.raise_signal(signal.SIGINT)
        assert stop
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("way", ["ctrl-c", "callback"])
def test_an_agent_keeps_what_it_has_learned(tmp_path, way):
    """A stopped agent continues and ends with the parameters of an uninterrupted one."""
    arguments, error = WAYS[way]
    agent = Agent(ENV, ALGORITHM, horizon=5)
    with pytest.raises(error) as caught:
        agent.learn(3000, callback=arguments["progress"]())
    done = int(agent.result.states.trajectories[0])
    assert 0 < done < 3000
    assert "learn" in caught.value.__notes__[0]
    agent.learn(3000 - done)
    jax.tree.map(np.testing.assert_array_equal, agent.params, Agent(ENV, ALGORITHM, horizon=5).learn(3000).params)


def test_an_agent_is_up_to_date_in_its_callback(tmp_path):
    """It can be saved as early as the first call of the callback."""
    agent, seen = Agent(ENV, ALGORITHM, horizon=5), []

    def callback(now) -> bool:
        agent.save(tmp_path / "agent")
        seen.append((now.trajectories, now.steps))
        return len(seen) < 2

    agent.learn(3000, callback=callback)
    loaded = Agent.load(tmp_path / "agent")
    assert int(loaded.result.states.trajectories[0]) == seen[-1][0]
    assert int(loaded.result.states.steps[0]) == seen[-1][1] == loaded.result.columns["steps"][-1]
    jax.tree.map(np.testing.assert_array_equal, loaded.params, agent.params)


class Dying(gymnasium.Env):
    """Raises in its 40th episode."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        type(self).episodes += 1
        if self.episodes >= 40:
            raise OSError("the simulator is gone")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(action), True, False, {}


def test_an_agent_survives_its_environment():
    Dying.episodes = 0
    agent = Agent(Dying, ALGORITHM)
    with pytest.raises(EnvironmentFailure, match="the simulator is gone"):
        agent.learn(200)
    assert 4 <= int(agent.result.states.trajectories[0]) < 40
    assert agent.predict(np.zeros(2)) in (0, 1)


def test_a_budget_of_steps():
    """No batch starts after the budget is used up, and the values equal the first values of a longer run."""
    result = stormpg.train(ENV, ALGORITHM, steps=200, seeds=2, horizon=20)
    assert result.complete
    assert result.states.steps.tolist() == [result.columns["steps"][result.columns["seed"] == s].max() for s in (0, 1)]
    for seed in (0, 1):
        steps = result.columns["steps"][result.columns["seed"] == seed]
        assert steps[-1] >= 200 > steps[-2]
    agent = Agent(ENV, ALGORITHM, horizon=20).learn(steps=120).learn(steps=30)
    steps = agent.result.columns["steps"]
    assert steps[-1] >= 150 > steps[-2] - 30
    longer = stormpg.train(ENV, ALGORITHM, trajectories=100, seeds=2, horizon=20).columns
    mine = longer["seed"] == 0
    np.testing.assert_array_equal(result.columns["return"][result.columns["seed"] == 0], longer["return"][mine][: sum(
        result.columns["seed"] == 0)])  # fmt: skip


SCRIPT = """
import sys, threading, time, stormpg
came = []
def progress(now):
    if not came:
        came.append(time.monotonic())
        print("running", flush=True)
try:
    stormpg.train("chain", trajectories=10**8, seeds=30, horizon=5, progress=progress)
except KeyboardInterrupt as error:
    print(int(error.result.states.trajectories.min()), threading.active_count(), flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_in_a_script_that_trains_many_blocks():
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    done, threads = map(int, out.split())
    assert 0 < done < 10**8
    assert threads == 1
    assert process.returncode == 0


STUDY = ("compare", "chain", "--algorithms", "gpomdp,storm-pg", "--horizon", "5", "--seeds", "2")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_study_stops_within_a_chunk_and_is_resumed(tmp_path, number, code):
    """Its units would take minutes. Finished units are kept; here none is finished."""
    words = [*STUDY, "--trajectories", "100000000", "--out", str(tmp_path / "study")]
    program = (
        "import sys, signal, threading, os; from stormpg import cli; from stormpg.runs import training\n"
        "chunks = training.chunks\n"
        "def told(*a):\n    for x in chunks(*a):\n        print('running', flush=True); yield x\n"
        f"training.chunks = told; sys.argv = ['stormpg', *{words}]; cli.main()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "running\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "run the same command again to resume" in out.splitlines()[-1]
    assert not list((tmp_path / "study").glob("runs/*/*"))


def test_a_checkpoint_interval_of_nothing_still_keeps_a_stopped_run(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        stormpg.train(**JOB, out=tmp_path, checkpoint=CheckpointInterval(None, None), progress=leaves_by(signal.SIGINT))
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1

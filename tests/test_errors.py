"""Warnings about probable mistakes: each is shown once, and the command prints it as one line."""

import subprocess
import sys
import warnings
from types import SimpleNamespace

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import stormpg
from stormpg.envs import as_environment
from stormpg.errors import Forecast, StormpgWarning, warn_diverged

ALGORITHM = stormpg.storm_pg(S0=4, B=2)


class Screen(gymnasium.Env):
    def __init__(self, shape=(96, 96, 3), render_mode=None):
        self.observation_space, self.action_space = spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


def test_raw_pictures_into_an_mlp():
    large, small = as_environment(Screen), as_environment(lambda **_: Screen((8, 8)))
    for settings in ({}, {"normalise": True}):
        with pytest.warns(StormpgWarning, match="observes 27648 numbers, as raw pictures have"):
            stormpg.policy_for(large, **settings)
    with pytest.warns(StormpgWarning, match="observes bytes from 0 to 255.*normalise=True"):
        stormpg.Agent(small, ALGORITHM)
    stormpg.policy_for(small, normalise=True)  # no warning: pytest would turn it into an error
    own = stormpg.categorical((lambda key: jax.numpy.zeros(2), lambda params, seen: params), 2)
    stormpg.Agent(large, ALGORITHM, policy=own)


def test_diverged_seeds_but_not_those_of_a_sweep():
    states = SimpleNamespace(diverged=np.array([True, False, True]))
    result = SimpleNamespace(states=states, algorithms=(ALGORITHM,), env=SimpleNamespace(name="here"))
    with pytest.warns(StormpgWarning, match=r"^2 of 3 seeds of storm-pg on here diverged"):
        assert warn_diverged(result) is result
    result.algorithms = (ALGORITHM, ALGORITHM)
    warn_diverged(result)


def test_hours_of_work_are_told_once():
    """The first batch is not measured, because it includes startup and compilation."""
    forecast = Forecast("slow", runs=30)
    forecast.count(10 / 4000, 100.0)
    with pytest.warns(StormpgWarning, match=r"the 30 seeds of this run on slow will take about 33\.3 hours: "):
        forecast.count(10 / 4000, 10.0)
    forecast.count(10 / 4000, 10.0)
    quick = Forecast("quick", runs=30)
    for _ in range(3):
        quick.count(10 / 4000, 0.01)


@pytest.mark.slow
def test_training_asks_for_a_forecast(monkeypatch):
    """The forecast uses the seeds and the budget of the run and the duration of its second batch."""
    monkeypatch.setattr("stormpg.errors.LONG", 1e-6)
    with pytest.warns(StormpgWarning, match=r"the 2 seeds of this run on gym:CartPole-v1 will take about 0\.0 hours"):
        stormpg.train("gym:CartPole-v1", ALGORITHM, trajectories=12, seeds=2, horizon=5)


@pytest.mark.slow
def test_the_command_prints_one_line(tmp_path):
    """Runs in a separate process. Warnings of other libraries are not reformatted."""
    code = (
        "import sys, warnings, stormpg.errors, stormpg.cli; stormpg.errors.LONG = 0.0;"
        "sys.argv = ['stormpg', 'train', 'gym:CartPole-v1', '--seeds', '2', '--trajectories', '30', '--horizon', '5'];"
        "stormpg.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        line for line in done.stderr.splitlines() if line.startswith("stormpg: warning: to play")
    ]
    assert done.stderr.count("\n") == 1
    assert "will take about" in done.stderr


def test_a_warning_is_silenced_as_any_other():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StormpgWarning)
        stormpg.policy_for(as_environment(Screen))

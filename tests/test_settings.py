"""The table of settings covers every setting of every algorithm, and feeds help and search spaces."""

import inspect

import pytest

import stormpg
from stormpg.algorithms.settings import SETTINGS, Choices, Range, tuned_values
from stormpg.cli.base import setting_help
from stormpg.runs.options import POLICY_OPTIONS, POLICY_SETTINGS


def test_every_setting_has_a_meaning():
    used = {name for make in stormpg.ALGORITHMS.values() for name in inspect.signature(make).parameters}
    assert used == set(SETTINGS)
    assert set(POLICY_OPTIONS) == set(POLICY_SETTINGS)


@pytest.mark.parametrize("name", stormpg.ALGORITHMS)
def test_a_default_is_within_its_range(name):
    """So that a search can start from it."""
    defaults = {key: p.default for key, p in inspect.signature(stormpg.ALGORITHMS[name]).parameters.items()}
    for key, values in tuned_values(name).items():
        if isinstance(values, Range):
            assert values.low <= defaults[key] <= values.high
        else:
            assert isinstance(values, Choices)


def test_help_says_what_a_setting_is():
    assert setting_help("gamma") == "γ: discount."
    assert setting_help("sigma") == "σ: standard deviation of a Gaussian policy."
    assert "is-mbpg" in setting_help("floor")
    assert "others" in setting_help("eta")


def test_the_command_says_what_it_will_run():
    from stormpg.runs.options import Job

    words = Job({"env": "cartpole-continuous", "algorithm": "storm-pg", "eta": "0.02", "trajectories": "50"}).words()
    assert "storm-pg on cartpole-continuous, 30 seeds of 50 trajectories: eta 0.02" in words
    assert "(alpha, S0, B, gamma: the paper's table)" in words
    steps = Job({"env": "pendulum", "steps": "500"}).words()
    assert "window-npg on pendulum, 30 seeds of 500 steps: K 16" in steps
    assert "4000 trajectories" in Job({"env": "pendulum"}).words()

"""The table of settings covers every setting of every algorithm, and feeds help and search spaces."""

import inspect
import math
import re

import pytest

import stormpg
from stormpg.algorithms.registry import defaults_of, tuned_values
from stormpg.algorithms.settings import SETTINGS, Choices, Range
from stormpg.errors import InputError
from stormpg.runs.options import POLICY_OPTIONS, POLICY_SETTINGS


def test_every_setting_has_a_meaning():
    used = {name for make in stormpg.ALGORITHMS.values() for name in defaults_of(make)}
    assert used == set(SETTINGS)
    assert set(POLICY_OPTIONS) == set(POLICY_SETTINGS)


@pytest.mark.parametrize("name", stormpg.ALGORITHMS)
def test_a_default_is_within_its_range(name):
    """So that a search can start from it."""
    defaults = defaults_of(stormpg.ALGORITHMS[name])
    for key, values in tuned_values(name).items():
        if isinstance(values, Range):
            assert values.low <= defaults[key] <= values.high
        else:
            assert isinstance(values, Choices)


@pytest.mark.parametrize("name", stormpg.ALGORITHMS)
def test_the_allowed_values_are_those_that_the_constructor_accepts(name):
    """The ends of each range, and values beyond them."""
    make = stormpg.ALGORITHMS[name]
    for key, default in defaults_of(make).items():
        allowed = SETTINGS[key].allowed
        if allowed is None:
            assert isinstance(default, bool | str), f"{key} is a number without a range"
            continue
        whole = isinstance(default, int)
        for end, value in (("low", allowed.low), ("high", allowed.high)):
            if math.isinf(value):
                continue
            outside = value + (-1 if end == "low" else 1)
            refused = [outside, value] if end in allowed.open.split() else [outside]
            for wrong in refused:
                if (name, key, wrong) == ("window-npg", "delta", 0):
                    continue  # switches that part of the limit off
                with pytest.raises(InputError):
                    make(**{key: int(wrong) if whole else wrong})
            if end not in allowed.open.split():
                more = {"B": 1} if (name, key) == ("svrpo", "S0") else {}  # B trajectories are drawn from the S0
                make(**{key: int(value) if whole else float(value), **more})


def test_docstrings_list_the_settings():
    text = inspect.getdoc(stormpg.storm_pg)
    assert text.startswith("STORM-PG, Algorithm 1")
    assert "    alpha: α, weight of the new estimate; 1: no memory. From 0 to 1. Default: 0.9. Tuned over 0.05 to 1." in text
    for name, make in stormpg.ALGORITHMS.items():
        listed = re.findall(r"^    (\w+): ", inspect.getdoc(make).partition("\nArgs:\n")[2], re.MULTILINE)
        assert listed == list(defaults_of(make)), name


def test_an_algorithm_of_ones_own_lists_its_settings_too():
    try:

        @stormpg.algorithm("documented")
        def documented(eta: float = 0.5, quality: int = 3):
            """One line."""

        assert documented.__doc__.splitlines()[0] == "One line."
        assert "    eta: η, step size. Above 0. Default: 0.5." in documented.__doc__
        assert "    quality: Default: 3." in documented.__doc__
    finally:
        del stormpg.ALGORITHMS["documented"]

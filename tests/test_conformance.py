"""The conformance table: every environment, policy, estimator and algorithm runs through `stormpg.testing`."""

import dataclasses
import inspect

import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import testing
from stormpg.baselines import BASELINES
from tests.test_estimators import ESTIMATORS

EXTRA = {
    "svrpg of Papini": lambda: stormpg.svrpg(adaptive=True, two_optimizers=True, S0=8, B=3, m=4),
    "storm-pg with the optimal baseline": lambda: stormpg.storm_pg(baseline="optimal", S0=6, B=3),
    "storm-pg with rate decay": lambda: stormpg.storm_pg(decay=0.9, decay_every=10, optimizer="sgd"),
}


def mostly_slow(names, *fast):
    """All names as test parameters; those not in `fast` are marked slow, which excludes them from `make check`."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", mostly_slow(stormpg.ENVIRONMENTS, *(set(stormpg.ENVIRONMENTS) - {"rllab-mountain-car"})))
def test_environment(name):
    testing.check_environment(stormpg.make(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", stormpg.ENVIRONMENTS)
def test_usual_policy(name):
    env = stormpg.make(name)
    testing.check_policy(env, stormpg.policy_for(env))


@pytest.mark.parametrize(("name", "baseline"), [(n, b) for n, bs in BASELINES.items() for b in bs])
def test_estimator(name, baseline):
    testing.check_estimator(ESTIMATORS[name](0.95, baseline))


@pytest.mark.parametrize("name", mostly_slow(stormpg.ALGORITHMS, "gpomdp", "storm-pg"))
def test_algorithm(name):
    testing.check_algorithm(stormpg.make_algorithm(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["def-storm-pg", "ha-mbpg"])
def test_a_successor_outside_jax(name):
    """Mixtures, and points between two iterates."""
    pytest.importorskip("gymnasium")
    testing.check_algorithm(stormpg.make_algorithm(name), stormpg.make("gym:CartPole-v1"))


def is_resumed(name, where, folder):
    """A run that is stopped and resumed equals one that is not, bit for bit."""
    job = {"trajectories": 60, "seeds": 1, "horizon": 6, "algorithm": stormpg.make_algorithm(name)}
    whole = stormpg.train(where, **job, out=folder / "whole")
    calls = iter(range(2))
    stormpg.train(where, **job, out=folder / "part", progress=lambda now: next(calls, None) is not None)
    resumed = stormpg.resume(folder / "part")
    for column in whole.columns:
        np.testing.assert_array_equal(whole.columns[column], resumed.columns[column], column)


@pytest.mark.slow
@pytest.mark.parametrize("name", stormpg.ALGORITHMS)
def test_an_algorithm_is_resumed_outside_jax(name, tmp_path):
    pytest.importorskip("gymnasium")
    is_resumed(name, "gym:CartPole-v1", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["def-storm-pg", "meta-storm", "mars-pg"])
def test_a_successor_is_resumed_in_jax(name, tmp_path):
    is_resumed(name, "pendulum", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTRA)
def test_variant(name):
    testing.check_algorithm(EXTRA[name]())


@pytest.mark.parametrize("name", ["gpomdp", "storm-pg"])
def test_algorithm_on_a_table(name):
    testing.check_algorithm(stormpg.make_algorithm(name), stormpg.make("chain"))


def test_a_bad_environment_is_found():
    good = stormpg.make("pendulum")

    def unclipped(key, state, action):
        state, observation, reward, terminated = good.step(key, state, action)
        return state, observation * jnp.exp(jnp.ravel(action)[0]), reward, terminated

    with pytest.raises(AssertionError, match="clip it"):
        testing.check_environment(dataclasses.replace(good, step=unclipped))


def test_a_bad_policy_is_found():
    env = stormpg.make("pendulum")
    good = stormpg.policy_for(env)

    class Shifted:
        init, sample, mode = good.init, good.sample, good.mode

        @staticmethod
        def log_prob(params, observation, action):
            return good.log_prob(params, observation, action + 0.5)

    with pytest.raises(AssertionError, match="not the sampler's"):
        testing.check_policy(env, Shifted())


ROWS = [
    name for name in stormpg.ALGORITHMS if name not in ("reinforce", "pgt", "gpomdp", "svrpo", "svrpg", "srvr-pg", "storm-pg")
]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_short(name):
    """Signature, docstring and body of a constructor: at most 30 lines."""
    assert len(inspect.getsource(inspect.unwrap(stormpg.ALGORITHMS[name])).splitlines()) <= 30

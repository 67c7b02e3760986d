"""The conformance table: every environment, policy, estimator and algorithm runs through `stormpg.testing`."""

import dataclasses

import jax.numpy as jnp
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

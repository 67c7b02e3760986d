"""Identities between the trackers, and the equation of STORM-PG."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import schedules, trackers
from stormpg.algorithms import Algorithm
from stormpg.contract import Here
from stormpg.errors import InputError
from stormpg.estimators import gradient
from stormpg.pytrees import add
from stormpg.steps import optax_step
from stormpg.theory.enumeration import sampled_by, small_chain
from stormpg.trajectories import Batch
from tests.test_estimators import two_parameters

POLICY = stormpg.softmax_table(3, 2)
ESTIMATOR = stormpg.estimators.gpomdp(0.9)


@pytest.fixture
def setting(float64):
    """ξ_t, a memory at other parameters, and a batch sampled at ξ_t."""
    here, there = two_parameters(POLICY)
    every, _ = sampled_by(POLICY, here, small_chain(3))
    batch = jax.tree.map(lambda x: x[5:25:4], every)
    return here, trackers.Memory(there, {"logits": jnp.ones((3, 2)) * 0.3}), batch


def at(params, large=False):
    return Here(jax.random.key(0), jnp.asarray(1), params, POLICY, ESTIMATOR, large, 5)


def small(tracker, here, memory, batch):
    return tracker.track(at(here), (Batch(batch, here),), memory)


def test_alpha_one_is_plain(setting):
    here, memory, batch = setting
    np.testing.assert_allclose(
        small(trackers.storm(1.0), here, memory, batch).gradient["logits"],
        trackers.plain().track(at(here, large=True), (Batch(batch, here),), ()).gradient["logits"],
        rtol=1e-12,
    )


def test_alpha_zero_is_sarah(setting):
    here, memory, batch = setting
    storm, sarah = small(trackers.storm(0.0), here, memory, batch), small(trackers.sarah(), here, memory, batch)
    np.testing.assert_array_equal(storm.gradient["logits"], sarah.gradient["logits"])


def test_the_equation(setting):
    """g = d(ξ_t) + (1 − α)[c − d^{ξ_t}(ξ_ref)], computed with public functions."""
    here, memory, batch = setting
    d_here = gradient(ESTIMATOR, POLICY, here, batch)
    d_there = gradient(ESTIMATOR, POLICY, memory.params, batch)
    expected = add(d_here, add(memory.gradient, d_there, -1.0), 0.75)
    found = small(trackers.storm(0.25), here, memory, batch)
    np.testing.assert_allclose(found.gradient["logits"], expected["logits"], rtol=1e-10)
    np.testing.assert_array_equal(found.memory.gradient["logits"], found.gradient["logits"])
    np.testing.assert_array_equal(found.memory.params["logits"], here["logits"])


def test_no_move_no_correction(setting):
    """If ξ_ref = ξ_t, the two estimates cancel and g is the gradient in memory, moved by α towards d (here α = 0)."""
    here, memory, batch = setting
    kept = small(trackers.sarah(), here, memory._replace(params=here), batch)
    np.testing.assert_allclose(kept.gradient["logits"], memory.gradient["logits"], rtol=1e-10)


def test_svrg_keeps_its_snapshot(setting):
    here, memory, batch = setting
    kept = small(trackers.svrg(), here, memory, batch).memory
    assert kept.params is memory.params
    assert kept.gradient is memory.gradient


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_is_checked(alpha):
    with pytest.raises(InputError, match="alpha"):
        trackers.storm(alpha)


def same_run(one: Algorithm, other: Algorithm):
    """Check that both algorithms train the same parameters from the same random numbers."""
    a, b = (stormpg.train("cartpole-continuous", x, trajectories=60, seeds=2, horizon=20) for x in (one, other))
    np.testing.assert_allclose(a.columns["return"], b.columns["return"], rtol=1e-5)
    for x, y in zip(jax.tree.leaves(a.states.params), jax.tree.leaves(b.states.params), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_whole_run_alpha_one_is_gpomdp():
    """STORM-PG with α = 1 and S0 = B is GPOMDP."""
    plain = stormpg.make_algorithm("gpomdp", eta=0.01, S0=5)
    same_run(stormpg.storm_pg(eta=0.01, alpha=1.0, S0=5, B=5), plain)


@pytest.mark.slow
def test_whole_run_alpha_zero_is_srvr_pg():
    """STORM-PG with α = 0 is SRVR-PG during its first epoch."""
    same_run(stormpg.storm_pg(eta=0.01, alpha=0.0, S0=10, B=5), stormpg.srvr_pg(eta=0.01, S0=10, B=5, m=10))


def test_any_combination_runs():
    """The parts combine freely: REINFORCE with STORM's tracker and a large batch every third step."""
    mixed = Algorithm(
        stormpg.estimators.reinforce(0.9), trackers.storm(0.5), schedules.every(2, 6, 3), optax_step(0.01, "rmsprop")
    )
    result = stormpg.train("cartpole-continuous", mixed, trajectories=40, seeds=2, horizon=15)
    assert np.isfinite(result.columns["gradient_norm"]).all()
    np.testing.assert_array_equal(result.columns["trajectories"][:7], [6, 9, 12, 18, 21, 24, 30])


def test_a_part_is_not_larger_than_the_whole():
    with pytest.raises(InputError, match="B is 7 and S0 is 6; a batch drawn from the large one cannot be larger"):
        stormpg.svrpo(S0=6, B=7)
    own = Algorithm(ESTIMATOR, trackers.svrg_within(), schedules.every(2, 6, 7), optax_step(0.01))
    with pytest.raises(InputError, match="B is 7 and S0 is 6"):
        stormpg.train("chain", own, trajectories=20, seeds=1, horizon=3)

"""Schedules: which batches are large."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import Algorithm, estimators, schedules, steps, trackers
from stormpg.contract import Moment
from stormpg.errors import InputError
from stormpg.pytrees import record


def followed(schedule, rates) -> list[bool]:
    """Which batches are large in a run whose steps have these rates."""
    memory, found = schedule.init(), []
    for t, rate in enumerate(rates):
        large = bool(schedule.large(memory, Moment(jax.random.key(0), jnp.asarray(t))))
        memory = schedule.after(memory, large, jnp.asarray(rate))
        found.append(large)
    return found


@pytest.mark.parametrize(
    "schedule", [schedules.always(3), schedules.once(5, 2), schedules.every(1, 5, 2), schedules.every(3, 5, 2)]
)
def test_large_is_what_the_pattern_says(schedule):
    np.testing.assert_array_equal(followed(schedule, [1.0] * 9), schedule.larges(9))


def test_the_patterns():
    assert schedules.always(3).larges(3).tolist() == [True] * 3
    assert schedules.once(5, 2).larges(3).tolist() == [True, False, False]
    assert schedules.every(2, 5, 2).larges(5).tolist() == [True, False, False, True, False]
    assert [s.unit_size for s in (schedules.always(3), schedules.once(5, 2), schedules.every(3, 5, 2))] == [3, 2, 11]


def test_an_epoch_ends_when_a_large_batch_buys_more():
    """Papini's rule: an epoch ends after the first small step with ρ_large/S0 > ρ_small/B; S0 = 4, B = 2, m = 3."""
    adaptive = schedules.every(3, 4, 2, adaptive=True)
    assert followed(adaptive, [1.0] * 5) == [True, False, False, False, True]
    assert followed(adaptive, [1.0, 0.4, 1.0, 0.6, 0.49, 1.0]) == [True, False, True, False, False, True]
    nan = float("nan")
    assert followed(adaptive, [1.0, nan, nan, nan, nan]) == [True, False, False, False, True]  # diverged: there is no rate


@pytest.mark.parametrize(("p", "share"), [(0.0, 0.0), (0.3, 0.3), (1.0, 1.0)])
def test_a_coin(p, share):
    schedule = schedules.coin(p, 5, 2)
    large = jax.vmap(lambda t: schedule.large((), Moment(jax.random.key(1), t)))(jnp.arange(2000))
    assert bool(large[0])
    assert abs(float(large[1:].mean()) - share) <= 4 * np.sqrt(share * (1 - share) / 1999)


@pytest.mark.parametrize(
    "make", [lambda: schedules.always(0), lambda: schedules.once(2, True), lambda: schedules.every(0, 1, 1)]
)
def test_sizes_are_checked(make):
    with pytest.raises(InputError, match="expected a whole number of at least 1"):
        make()


def test_a_probability_is_checked():
    with pytest.raises(InputError, match=r"p is 1\.5; expected a probability"):
        schedules.coin(1.5, 2, 1)


@record
class Alternating(schedules.Schedule):
    """Asks for small batches, and lists only large ones."""

    def large(self, memory, moment):
        return moment.iteration % 2 == 0


@pytest.mark.parametrize("env", ["chain", "gym:CartPole-v1"])
def test_a_schedule_whose_unit_lacks_a_size_is_refused(env):
    """It would repeat its unit forever."""
    algorithm = Algorithm(estimators.gpomdp(0.9), trackers.sarah(), Alternating(4, 2), steps.optax_step(0.01))
    with pytest.raises(InputError, match="not in its `unit`"):
        stormpg.train(env, algorithm, trajectories=20, seeds=1, horizon=3)

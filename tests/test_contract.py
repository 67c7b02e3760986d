"""The contract covers algorithms other than the paper's: four of them, each in a few lines that use public names only."""

import inspect
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import stormpg
from stormpg import Algorithm, Sample, Tracked, estimators, files, schedules, steps, trackers
from stormpg.pytrees import Tree, add, as_float, norm, record
from stormpg.testing import check_algorithm

pytest.importorskip("gymnasium")

# ---- N-PG-IGT (Fatkhullin et al. 2023): samples at an extrapolated point


class Before(NamedTuple):
    params: Tree
    gradient: Tree


@record
class Extrapolated:
    """g_t = (1 − η) g_{t−1} + η d(ξ̃_t), sampled at ξ̃_t = ξ_t + (1 − η)/η · (ξ_t − ξ_{t−1})."""

    eta: Array

    def init(self, params, blank):
        return Before(params, jax.tree.map(jnp.zeros_like, params))

    def wants(self, here, memory):
        return (Sample(here.n, add(here.params, add(here.params, memory.params, -1), (1 - self.eta) / self.eta)),)

    def track(self, here, batches, memory):
        d = here.estimate(batches[0].sampled_at, batches[0]).gradient
        g = d if here.large else add(memory.gradient, add(d, memory.gradient, -1), self.eta)
        return Tracked(g, Before(here.params, g), batches[0], info={"ahead": norm(add(here.params, memory.params, -1))})


@record
class UnitLength:
    """ξ_{t+1} = ξ_t + rate · g_t / ‖g_t‖."""

    rate: Array

    def init(self, params):
        return ()

    def apply(self, here, tracked, state):
        return add(here.params, tracked.gradient, self.rate / (norm(tracked.gradient) + 1e-12)), state


def n_pg_igt() -> Algorithm:
    tracker, step = Extrapolated(as_float(0.4)), UnitLength(as_float(0.05))
    return Algorithm(estimators.gpomdp(0.99), tracker, schedules.once(4, 2), step, "n-pg-igt")


# ---- HSPGA (Pham et al. 2020): two batches per iteration


@record
class TwoBatches:
    """g_t = α d(ξ_t) on one batch + (1 − α) [g_{t−1} + d(ξ_t) − d^{ξ_t}(ξ_{t−1})] on another."""

    alpha: Array

    def init(self, params, blank):
        return Before(params, jax.tree.map(jnp.zeros_like, params))

    def wants(self, here, memory):
        return (Sample(here.n),) if here.large else (Sample(here.n), Sample(here.n))

    def track(self, here, batches, memory):
        fresh = here.estimate(here.params, batches[0]).gradient
        if here.large:
            return Tracked(fresh, Before(here.params, fresh), batches[0])
        now = here.estimate(here.params, batches[1])
        then = here.estimate(memory.params, batches[1], now.baseline)
        recursive = add(memory.gradient, add(now.gradient, then.gradient, -1))
        g = add(recursive, add(fresh, recursive, -1), self.alpha)
        return Tracked(g, Before(here.params, g), batches[1], then.weight)


def hspga() -> Algorithm:
    return Algorithm(estimators.gpomdp(0.99), TwoBatches(as_float(0.3)), schedules.once(4, 2), steps.optax_step(0.01), "hspga")


# ---- PAGE-PG (Gargiani et al. 2022): random batch sizes


def page_pg() -> Algorithm:
    return Algorithm(estimators.gpomdp(0.99), trackers.sarah(), schedules.coin(0.4, 4, 2), steps.optax_step(0.01), "page-pg")


# ---- The last two batches, weighted by their mixture (balance heuristic)


@record
class LastTwo:
    """g_t = d^{mixture}(ξ_t): each trajectory of both batches is treated as sampled by the mixture of both policies."""

    def init(self, params, blank):
        return blank()

    def wants(self, here, memory):
        return (Sample(here.n),)

    def track(self, here, batches, memory):
        pooled = batches[0] if here.large else here.pool((batches[0], memory))
        d = here.estimate(here.params, pooled)
        return Tracked(d.gradient, batches[0], pooled, d.weight)


def window() -> Algorithm:
    return Algorithm(estimators.gpomdp(0.99, "none"), LastTwo(), schedules.once(4, 4), steps.optax_step(0.01), "window")


ROWS = {"n-pg-igt": n_pg_igt, "hspga": hspga, "page-pg": page_pg, "window": window}
PARTS = {"n-pg-igt": (Extrapolated, n_pg_igt), "hspga": (TwoBatches, hspga), "page-pg": (page_pg,), "window": (LastTwo, window)}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_short(name):
    assert sum(len(inspect.getsource(part).splitlines()) for part in PARTS[name]) <= 30


@pytest.mark.slow
@pytest.mark.parametrize("where", ["cartpole-continuous", "gym:Pendulum-v1"])
@pytest.mark.parametrize("name", ROWS)
def test_a_row_conforms(name, where):
    check_algorithm(ROWS[name](), stormpg.make(where))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["pendulum", "gym:Pendulum-v1"])
@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_resumed_bit_for_bit(name, where, tmp_path):
    job = {"trajectories": 40, "seeds": 2, "horizon": 6, "algorithm": ROWS[name]()}
    whole = stormpg.train(where, **job, out=tmp_path / "whole")
    calls = iter(range(2))
    part = stormpg.train(where, **job, out=tmp_path / "part", progress=lambda now: next(calls, None) is not None)
    assert where == "pendulum" or not part.complete
    resumed = stormpg.resume(tmp_path / "part", algorithm=ROWS[name]())
    for column in whole.columns:
        np.testing.assert_array_equal(whole.columns[column], resumed.columns[column], column)
    for (name, ours), (_, theirs) in zip(files.leaves(whole.states), files.leaves(resumed.states), strict=True):
        np.testing.assert_array_equal(ours, theirs, name)


@pytest.mark.slow
def test_what_a_tracker_adds_is_a_column():
    result = stormpg.train("pendulum", n_pg_igt(), trajectories=12, seeds=2, horizon=6)
    ahead = result.columns["ahead"].reshape(2, -1)
    np.testing.assert_allclose(ahead[:, 0], 0)
    np.testing.assert_allclose(ahead[:, 1:], 0.05, rtol=1e-3)  # the length of a step


def test_a_coin_falls_as_often_as_it_should():
    """The first batch is large, each later one with probability p, drawn independently for every seed."""
    result = stormpg.train("chain", page_pg(), trajectories=600, seeds=8, horizon=2)
    large, first = result.columns["large"], result.columns["iteration"] == 0
    assert large[first].all()
    assert abs(large[~first].mean() - 0.4) < 4 * np.sqrt(0.24 / (~first).sum())
    sizes = np.diff(result.columns["trajectories"])[np.diff(result.columns["seed"]) == 0]
    np.testing.assert_array_equal(sizes, np.where(large[1:][np.diff(result.columns["seed"]) == 0], 4, 2))


def test_public_names():
    """The names that other programs use, and no name in `__all__` that does not exist."""
    assert all(hasattr(stormpg, name) for name in stormpg.__all__)
    verbs = {"make", "policy_for", "rollout", "gradient", "init", "step", "load", "resume", "train", "evaluate", "Agent"}
    rows = {"reinforce", "pgt", "gpomdp", "svrpo", "svrpg", "srvr_pg", "storm_pg"}
    policies = {"gaussian_mlp", "gaussian_linear", "categorical_mlp", "softmax_table"}
    assert verbs | rows | policies | {"Trajectories", "estimators"} <= set(stormpg.__all__)
    assert all(isinstance(getattr(stormpg, name)(), Algorithm) for name in rows)

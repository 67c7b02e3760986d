"""The theory laboratory: counts, runs on traced problems, splitting errors, prescribed settings, rates, the adviser."""

import dataclasses
import itertools
import json
import math
import shutil
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax.tree_utils import tree_vdot

import stormpg
from stormpg.contract import Here
from stormpg.envs.chain import chain_tables, from_tables
from stormpg.errors import InputError
from stormpg.estimators import estimate
from stormpg.theory import (
    advice,
    counts,
    enumeration,
    gap,
    lemmas,
    linear,
    payoff,
    rates,
    summary,
    tabular,
    tracking_error,
)
from stormpg.theory.bounds import prescriptions
from stormpg.theory.constants import Measured, measured
from stormpg.theory.descent import LARGE, SMALL, Counted, Descent, Finite, Linear, sampled
from stormpg.theory.problems import COMMON, FAMILY, garnet, problem, random_system
from stormpg.theory.recording import recorded
from stormpg.trackers import Memory
from stormpg.trajectories import Batch


def points(seed: int, tables) -> dict[str, jax.Array]:
    return {"logits": jax.random.normal(jax.random.key(seed), tables.P.shape[:2])}


# ---- Exact quantities, each compared with a second derivation


def test_the_optimum_is_the_best_of_all_policies_that_change_with_time(float64):
    tables, gamma, horizon = garnet(2, 2, 2, seed=3), 0.9, 2
    values = []
    for choice in itertools.product(range(2), repeat=4):
        at = np.reshape(choice, (horizon, 2))
        value = np.zeros(2)
        for h in reversed(range(horizon)):
            value = np.array([tables.P[s, at[h, s]] @ (tables.R[s, at[h, s]] + gamma * value) for s in range(2)])
        values.append(tables.rho @ value)
    np.testing.assert_allclose(tabular.optimum(tables, gamma, horizon), max(values), rtol=1e-12)


@pytest.mark.slow
def test_what_noise_adds_to_the_variance(float64):
    """Compare with the moments of the sums of scores, and with simulation."""
    tables, gamma, horizon, noise = garnet(3, 2, 2, seed=1), 0.9, 4, 2.0
    params = points(0, tables)
    found = float(tabular.noise_variance(tables, params, gamma, horizon, noise))
    S, p = tabular.scores(params), 6
    eye = jnp.eye(1 + p)
    moving = lambda h: jnp.broadcast_to(eye, (*tables.P.shape, *eye.shape)).at[..., 1:, 0].set(S[:, :, None, :])
    sums = tabular.second_moments(tables, params, moving, lambda h: eye, 1, horizon)
    squares = jnp.trace(sums[:, 1:, 1:], axis1=1, axis2=2)
    np.testing.assert_allclose(found, noise**2 * (gamma ** (2 * np.arange(horizon)) * squares).sum(), rtol=1e-12)

    policy, estimator = stormpg.softmax_table(3, 2), stormpg.estimators.gpomdp(gamma, "none")
    batch = stormpg.rollout(from_tables(tables, horizon, noise=noise), policy, params, jax.random.key(1), 20_000, horizon)
    one = lambda t: jnp.ravel(estimate(estimator, policy, params, jax.tree.map(lambda x: x[None], t)).gradient["logits"])
    d = jax.lax.map(one, batch, batch_size=1000)
    spread = ((d - d.mean(axis=0)) ** 2).sum(axis=1)
    expected = found + float(tabular.estimate_moments(tables, params, gamma, horizon).variance)
    assert abs(spread.mean() - expected) < 4 * spread.std() / math.sqrt(len(d))


def test_a_linear_systems_objective_backwards(float64):
    """Compare with the cost-to-go as a quadratic form, computed from the last step to the first."""
    system, sigma, gamma, horizon = random_system(3, 2, seed=2), 0.4, 0.95, 12
    K = 0.2 * np.asarray(jax.random.normal(jax.random.key(0), (4, 2)))
    d = 3
    F = np.eye(d + 1)
    F[:d, :d] = system.A
    F[:d] += system.B @ K.T
    cost = K @ system.R @ K.T
    cost[:d, :d] += system.Q
    noise = system.noise**2 * np.eye(d) + sigma**2 * system.B @ system.B.T
    V, constant = np.zeros((d + 1, d + 1)), 0.0
    for _ in range(horizon):
        constant = sigma**2 * np.trace(system.R) + gamma * (constant + np.trace(V[:d, :d] @ noise))
        V = cost + gamma * F.T @ V @ F
    start = np.diag([*[system.start**2] * d, 1.0])
    found = linear.objective(system, {"mean": jnp.asarray(K)}, sigma, gamma, horizon)
    np.testing.assert_allclose(found, -(np.trace(V @ start) + constant), rtol=1e-10)


@pytest.mark.slow
def test_the_smoothness_of_a_linear_system(float64):
    """Compare with finite differences of the gradient along the axes."""
    system, at = random_system(2, 1, seed=5), (0.5, 0.9, 8)
    slope = lambda K: np.ravel(linear.gradient(system, {"mean": jnp.asarray(K.reshape(3, 1))}, *at)["mean"])
    step = 1e-6
    hessian = [(slope(step * unit) - slope(-step * unit)) / (2 * step) for unit in np.eye(3)]
    np.testing.assert_allclose(linear.curvature(system, *at), np.abs(np.linalg.eigvalsh(hessian)).max(), rtol=1e-6)
    family = Linear(8, 0.9)
    assert float(linear.curvature(payoff.scaled(system, family), *at)) == pytest.approx(1.0)


# ---- Counts


@pytest.mark.slow
def test_a_batch_of_counts_is_the_mean_over_its_trajectories(float64):
    """The leaves are all trajectories. With scaled rewards, the estimator's mean over the leaves is that over the n samples."""
    tables, horizon, n = problem(0), 2, 50.0
    policy, params, estimator = stormpg.softmax_table(3, 2), points(1, tables), stormpg.estimators.gpomdp(0.9, "none")
    process = counts.branches(tables)
    batch = counts.batch(process, policy, params, jax.random.key(5), n, horizon)
    assert batch.reward.shape == (48, 2)
    rewards = tables.R[batch.observation, batch.action].mean(axis=2)  # in a Garnet process they do not depend on the next state
    times = np.asarray(batch.reward / rewards)[:, 0] * n / 48
    np.testing.assert_allclose(times, np.round(times), atol=1e-9)
    assert times.sum() == pytest.approx(n)
    repeated = jax.tree.map(lambda x: jnp.repeat(x, np.round(times).astype(int), axis=0), batch._replace(reward=rewards))
    for at in (params, points(2, tables)):
        found, expected = (estimate(estimator, policy, at, b).gradient["logits"] for b in (batch, repeated))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_counts_have_the_law_of_samples(float64):
    """E g = ∇L and E‖g − ∇L‖² = Var d / n, compared with the exact moments."""
    tables, horizon, n = problem(1), 2, 7.0
    policy, params, estimator = stormpg.softmax_table(3, 2), points(3, tables), stormpg.estimators.gpomdp(0.9, "none")
    process = counts.branches(tables)
    one = lambda key: estimate(
        estimator, policy, params, counts.batch(process, policy, params, key, n, horizon)
    ).gradient["logits"]  # fmt: skip
    g = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=500))(jax.random.split(jax.random.key(0), 10_000))
    exact = tabular.estimate_moments(tables, params, 0.9, horizon)
    assert (jnp.abs(g.mean(axis=0) - exact.mean) < 5 * g.std(axis=0) / 100 + 1e-12).all()
    error = ((g - exact.mean) ** 2).sum(axis=(1, 2))
    assert abs(error.mean() - exact.variance / n) < 4 * error.std() / 100


def test_counts_refuse_a_process_that_ends():
    with pytest.raises(InputError, match="terminal"):
        counts.branches(chain_tables())


# ---- Runs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpomdp", "svrpg", "storm-pg"])
def test_runs_on_traced_problems_are_those_of_train(name, float64):
    """Two problems, two step sizes and three seeds in one batch, compared with `train` on each problem separately."""
    tables = [problem(seed) for seed in range(2)]
    settings = {"S0": 4} if name == "gpomdp" else {"S0": 4, "B": 2} | ({} if name == "storm-pg" else {"m": 2})
    algorithms = [stormpg.make_algorithm(name, **settings, eta=eta, **COMMON) for eta in (0.1, 0.5)]
    what = ("gradient", "error", "params")
    descent = Descent(FAMILY, [(one, 0.0) for one in tables], algorithms, range(3), what).go_on(4)
    iterations = len(descent.trajectories)
    for i, one in enumerate(tables):
        exact = lambda params, one=one: tabular.gradient(one, params, FAMILY.gamma, FAMILY.horizon)
        env = from_tables(one, FAMILY.horizon)
        for j, algorithm in enumerate(algorithms):
            watched = recorded(algorithm, exact, iterations)
            result = stormpg.train(env, watched, int(descent.trajectories[-1]), 3, horizon=FAMILY.horizon)
            assert (result.states.trajectories == descent.trajectories[-1]).all()
            for key in what[:2]:
                np.testing.assert_allclose(descent[key][i, j], getattr(result.states.step, key), rtol=1e-9, atol=1e-14)
            logits = result.states.step.params["logits"]
            np.testing.assert_allclose(descent["params"]["logits"][i, j], logits, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_each_problem_can_have_an_algorithm_of_its_own(float64):
    data = [(problem(seed), 0.0) for seed in range(2)]
    algorithms = [stormpg.make_algorithm("gpomdp", S0=4, eta=eta, **COMMON) for eta in (0.1, 0.5)]
    whole = Descent(FAMILY, data, algorithms, range(2)).go_on(3)["gradient"]
    paired = Descent(FAMILY, data, algorithms, range(2), paired=True).go_on(3)["gradient"]
    np.testing.assert_allclose(paired[:, 0], whole[[0, 1], [0, 1]], rtol=1e-12)


@pytest.mark.slow
def test_traced_batch_sizes_are_told_apart(float64):
    """SVRPG's large batches are much larger here. After one, its error is much smaller than GPOMDP's with small batches."""
    family = Counted(FAMILY.horizon, FAMILY.gamma)
    data = [(counts.branches(problem(0)), 1e6, 3.0)]
    svrpg = stormpg.make_algorithm("svrpg", S0=LARGE, B=SMALL, m=3, eta=1e-6, **COMMON)
    error = Descent(family, data, [svrpg], range(20), ("error",)).go_on(2)["error"][0, 0].mean(axis=0)
    exact = float(tabular.estimate_moments(problem(0), {"logits": np.zeros((3, 2))}, 0.9, 2).variance)
    np.testing.assert_allclose(error[[0, 4]], exact / 1e6, rtol=0.8)
    assert (error < 1e-5).all()  # the steps are tiny, so the corrections add almost nothing
    gpomdp = stormpg.make_algorithm("gpomdp", S0=LARGE, eta=1e-6, **COMMON)
    plain = Descent(family, [(data[0][0], 3.0, 3.0)], [gpomdp], range(200), ("error",)).go_on(5)["error"]
    np.testing.assert_allclose(plain.mean(), exact / 3, rtol=0.2)


def test_the_number_of_trajectories_of_each_iteration():
    schedule = stormpg.make_algorithm("svrpg", S0=7, B=2, m=2).schedule
    np.testing.assert_array_equal(sampled(schedule, 7, 2, 5), [7, 9, 11, 18, 20])
    np.testing.assert_array_equal(sampled(stormpg.storm_pg(S0=7, B=2).schedule, 7, 2, 3), [7, 9, 11])


# ---- Splitting an error into bias and variance


@pytest.mark.slow
@pytest.mark.parametrize("name", ["storm-pg", "srvr-pg", "svrpg"])
def test_the_bias_is_what_the_memory_carries(name, float64):
    """E[g_t] over all batches of two, for a memory with error e: ‖E g_t − ∇L(ξ_t)‖² equals the value of `bias_of`."""
    tables, horizon = chain_tables(3, slip=0.3), 2
    every, policy = enumeration.small_chain(horizon), stormpg.softmax_table(3, 2)
    here, there = points(0, tables), points(1, tables)
    algorithm = stormpg.make_algorithm(name, S0=4, B=2, **({"alpha": 0.3} if name == "storm-pg" else {"m": 2}), **COMMON)
    exact = lambda params: tabular.gradient(tables, params, COMMON["gamma"], horizon)
    off = {"logits": 0.1 * jnp.arange(6.0).reshape(3, 2)}
    memory = Memory(there, jax.tree.map(jnp.add, exact(there), off))
    trajectories, chance = enumeration.sampled_by(policy, here, every)
    at = Here(jax.random.key(0), jnp.asarray(1), here, policy, algorithm.estimator, False, 2)
    small = lambda batch: algorithm.tracker.track(at, (Batch(batch, here),), memory).gradient
    mean = enumeration.expectation_over_batches(small, trajectories, chance, 2)
    gap = jax.tree.map(jnp.subtract, mean, exact(here))
    error = np.array([float(tree_vdot(off, off)), 5.0])  # of the previous iteration or the large batch, and of this iteration
    np.testing.assert_allclose(tracking_error.bias_of(algorithm, error), [0.0, tree_vdot(gap, gap)], rtol=1e-10)
    later = tracking_error.bias_of(algorithm, np.array([2.0, 3.0, 4.0, 5.0]))
    expected = {"storm-pg": [0.0, 0.98, 1.47, 1.96], "srvr-pg": [0.0, 2.0, 3.0, 0.0], "svrpg": [0.0, 2.0, 2.0, 0.0]}
    np.testing.assert_allclose(later, expected[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", tracking_error.SUCCESSORS)
def test_tracking_errors_of_successors(name):
    """They count all batches, and tell bias and variance apart where the bias follows from the error before."""
    found = tracking_error.along_training("finite", 0, name, seeds=3, most=120)
    assert np.isfinite(found["error"]["estimate"]).all()
    assert ("bias" in found) == (name not in ("n-pg-igt", "storm-plus", "meta-storm"))
    if "bias" in found:
        assert found["whole"]["bias"][0] <= found["whole"]["error"][0]


def test_two_batches_are_counted_twice():
    algorithm = stormpg.hspga(S0=7, B=2, alpha=0.3, **COMMON)
    descent = Descent(FAMILY, [(problem(0), 0.0)], [algorithm], range(2)).go_on(2)
    np.testing.assert_array_equal(descent.trajectories, [7, 11, 15])
    assert descent.units(20) == 5


def test_momenta_of_a_rule():
    """HARPG's α_t = 2/(t + 2)."""
    found = tracking_error.momenta(stormpg.harpg().tracker, 4)
    np.testing.assert_allclose(found, [1.0, 2 / 3, 1 / 2, 2 / 5], rtol=1e-6)
    assert tracking_error.momenta(stormpg.n_pg_igt().tracker, 4) is None


@pytest.mark.slow
def test_tracking_errors_add_up():
    found = tracking_error.along_training("finite", 0, "storm-pg", seeds=3, most=60)
    for key in ("error", "bias", "variance", "gradient"):
        assert len(found[key]["estimate"]) == len(found["trajectories"])
    whole = {key: value[0] for key, value in found["whole"].items()}
    assert whole["error"] == pytest.approx(whole["bias"] + whole["variance"])
    assert found["lemma4"][0] == pytest.approx(found["error"]["estimate"][0])  # the bound starts at the first error


# ---- Lemmas


@pytest.mark.slow
def test_constants_along_an_ascent(float64):
    """σ² is at least the variance at the uniform policy, and the constants are consistent with each other."""
    tables = problem(2)
    found = measured(tables, FAMILY.gamma, FAMILY.horizon)
    uniform = {"logits": jnp.zeros((3, 2))}
    assert found.sigma2 >= float(tabular.estimate_moments(tables, uniform, FAMILY.gamma, FAMILY.horizon).variance) * (1 - 1e-9)
    assert found.difference >= 0.9 * found.smoothness**2 > 0  # E‖·‖² is at least the square of the mean
    assert 0 < found.gap < 2 * np.abs(tables.R).max()


@pytest.mark.slow
def test_ratios_of_lemmas():
    found = lemmas.exact_sides(0, count=3)
    first = found["rows"][0]
    assert math.isinf(first["lemma2/printed"])
    assert first["lemma2/printed/h"] == 0
    assert 0 < first["lemma2/mended"] < 1
    assert 0 < first["lemma3/mended"] < first["lemma3/printed"] * 10
    runs = lemmas.along_runs(0, seeds=4, T=8, batches=(5,))
    assert len(runs["rows"]) == len(lemmas.MOMENTA) * len(lemmas.ETAS)
    for row in runs["rows"]:
        for name in ("lemma4/printed", "lemma4/mended", "lemma5/printed", "lemma5/mended", "theorem1"):
            estimate_, low, high = row[name]
            assert 0 < low <= estimate_ <= high
        assert not row["admissible"]["proof"] or row["admissible"]["stated"]
    json.dumps(runs)


# ---- Rates and the map of where variance reduction pays


def test_prescriptions_grow_as_their_theories_say():
    few, many = (prescriptions(epsilon, 4.0, 2.0, 7.0, 0.5, B=4) for epsilon in (1e-3, 1e-5))
    for name, exponent in rates.CLAIMED.items():
        slope = math.log(many[name].trajectories / few[name].trajectories) / math.log(1e-5 / 1e-3)
        assert slope == pytest.approx(exponent, abs=0.03), name


@pytest.mark.parametrize("name", rates.TUNED)
def test_every_method_is_tuned_over_as_many_settings(name):
    """Twenty-four different ones, and steps of a given length are scaled by ‖∇L(ξ_0)‖."""
    constants = Measured(4.0, 0.5, 7.0, 2.0)
    groups = rates.candidates(name, constants, slope=0.1)
    settings = [tuple(sorted(one.settings.items(), key=str)) for group in groups for one in group]
    assert len(set(settings)) == len(settings) == 24
    assert all(len({repr(one.schedule) for one in group}) == 1 for group in groups)
    steps = [
        {one.settings["eta"] for group in rates.candidates(name, constants, slope) for one in group} for slope in (0.1, 0.2)
    ]
    assert (steps[0] == steps[1]) == (name not in (*tracking_error.OF_A_LENGTH, *tracking_error.RULES))


def test_the_first_passage_and_its_slope():
    gradient = np.array([[4.0, 0.0, 0.0, 0.0], [4.0, 2.0, 0.0, 0.0]])
    means = rates.running(gradient)
    np.testing.assert_allclose(means, [[4, 2, 4 / 3, 1], [4, 3, 2, 1.5]])
    trajectories = np.array([10, 15, 20, 25])
    assert rates.passage(means[0], trajectories, math.sqrt(2)) == 15
    assert rates.passage(means[0], trajectories, 0.5) == math.inf
    curve = rates.Curve(means, trajectories)
    assert rates.reached(curve, math.sqrt(2), np.array([0, 1])) == 20
    epsilons = np.array([1.0, 0.1, 0.01, 0.001])
    assert rates.slope(epsilons, np.array([5.0, 5e3, 5e6, np.inf])) == pytest.approx(-3)
    assert math.isnan(rates.slope(epsilons, np.array([5.0, 5e3, np.inf, np.inf])))
    thin = rates.Curve(np.tile(np.arange(5000.0), (2, 1)), np.arange(5000)).thinned()
    assert len(thin.trajectories) < 401
    assert thin.trajectories[[0, -1]].tolist() == [0, 4999]


def test_a_cell_of_the_map():
    cell = lambda N: {"N": N, "draws": [N] * 5}
    found = payoff.ratio([cell(400.0), cell(100.0)], [cell(100.0), cell(100.0)], 4000)
    assert found["ratio"] == pytest.approx(2.0)
    assert found["never"] == [0, 0]
    assert payoff.ratio([cell(math.inf)], [cell(math.inf)], 4000)["ratio"] is None
    limited = payoff.ratio([cell(math.inf)], [cell(1000.0)], 4000)
    assert limited["ratio"] == pytest.approx(4.0)
    assert limited["never"] == [1, 0]
    curves = np.stack([np.full((4, 3), 9.0), np.tile([9.0, 1.0, 0.0], (4, 1))])  # only the second setting reaches the target
    [near, *_] = payoff.numbers(curves, np.array([1, 2, 3]), first=4.0, seeds=2)
    assert (near["setting"], near["N"]) == (1, 2.0)


# ---- The adviser


@pytest.mark.slow
def test_the_pilot_of_a_problem_that_is_known(float64):
    """On `chain`, the sampled values are close to the exact ones, and the exact values are used where they are known."""
    env = stormpg.make("chain")
    policy = stormpg.policy_for(env)
    found = advice.pilot(env, policy, 0.99, 2000, env.horizon)
    assert {"sigma2", "gap", "phi2", "difference"} <= set(found.exact)
    other = advice.pilot(dataclasses.replace(env, name="copy"), policy, 0.99, 2000, env.horizon)
    assert other.exact == ()
    for name in ("sigma2", "phi2", "difference", "value"):
        assert getattr(other, name) == pytest.approx(getattr(found, name), rel=0.2), name
    assert found.M <= 2**0.5
    assert found.N <= 0.5 + 1e-9


@pytest.mark.slow
def test_a_gaussians_curvature(float64):
    """For a linear-Gaussian policy, ∇²log π = −ψψᵀ/σ². The result is the largest ‖ψ‖²/σ² of the inspected steps."""
    env = stormpg.make("lqr")
    policy = stormpg.policy_for(env, "gaussian-linear", sigma=0.5)
    params = policy.init(jax.random.key(0))
    batch = stormpg.rollout(env, policy, params, jax.random.key(0), 2, 20)
    _, found, _ = advice.at_steps(policy, params, params, batch)
    largest = max(float((s**2).sum()) + 1 for s in batch.observation.reshape(40, 2)) / 0.25
    assert found == pytest.approx(largest, rel=1e-6)


def test_advice_in_practice():
    found = advice.Pilot(100, 1.0, 1.0, 1.0, 0.0, 1.0, sigma2=4.0, signal=0.1, eta=0.0123456, difference=0.04, distance=1.0,
                         phi2=0.1)  # fmt: skip
    assert advice.in_practice(found) == {"eta": 0.0123, "alpha": 0.1, "S0": 40, "B": 8, "optimizer": "adam"}
    lost = advice.in_practice(found._replace(signal=-1.0))
    assert lost["S0"] == advice.LARGEST


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["measured", "practical"])
def test_advice_trains(variant, tmp_path, command):
    code, out, err = command(
        "theory", "advise", "chain", "--epsilon", "0.5", "--pilot", "50", "--variant", variant, "--json"
    )  # fmt: skip
    assert (code, err) == (0, "")
    said = json.loads(out.splitlines()[-1])
    assert set(said["prescribed"]["measured"]) == set(rates.CLAIMED)
    assert any(warning.startswith("stated") for warning in said["warnings"])
    content = tomllib.loads((tmp_path / "advice.toml").read_text())
    assert content["env"] == "chain"
    budget = str(content["S0"] + 20)
    assert command("train", "--config", "advice.toml", "--trajectories", budget, "--seeds", "2", "--out", "run")[0] == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"][0]["S0"] == content["S0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("chain", "--epsilon", "0"), "epsilon is 0"),
        (("chain", "--epsilon", "0.1", "--eta", "0.1"), "the adviser chooses eta itself"),
        (("chain", "--epsilon", "0.1", "--variant", "best"), "variant"),
        (("nowhere", "--epsilon", "0.1"), "unknown environment 'nowhere'"),
    ],
)
def test_bad_questions_to_the_adviser(arguments, message, tmp_path, command):
    code, _, err = command("theory", "advise", *arguments)
    assert code == 2
    assert message in err
    assert not list(tmp_path.iterdir())


def test_finite_families_are_equal_where_their_settings_are():
    """Families are part of the cache key of a program, so equal settings must compare equal."""
    assert Finite(3, 0.9) == Finite(3, 0.9)
    assert hash(Finite(3, 0.9)) == hash(Finite(3, 0.9))


def test_the_findings_in_one_paragraph():
    """Rates that cannot be measured are left out."""
    claims = [{"results": {"printed": {"verdict": "does not hold"}, "mended": {"verdict": "holds"}}}]
    slopes = [["gpomdp, prescribed", "–", "-3.98 (-4.1 to -3.9)"], ["gpomdp, tuned", "–", "-1.70 (-2 to -1)"]]
    slopes += [["storm-pg, prescribed", "–", "nan (nan to nan)"], ["sharp, tuned", "–", "-2.00 (-2 to -1)"]]
    assert summary.paragraph(claims, slopes, "Of 9 cells, 2 are decided") == (
        "Of 1 claims, judged as the papers print them, 0 hold, 1 does not and 0 cannot be told. "
        "Of 1 claims, judged as their proofs require, 1 holds, 0 do not and 0 cannot be told. "
        "The trajectories until the gradient is below ε grow like ε to the power −3.98 (`gpomdp`) with the settings that the "
        "theories prescribe; −1.70 (`gpomdp`) with settings tuned equally. "
        "Where variance reduction pays: of 9 cells, 2 are decided."
    )


# ---- The whole laboratory


@pytest.mark.slow
def test_the_whole_laboratory_in_small(tmp_path, command, finished_study):
    """Every figure, table and verdict, and the page. The report is repeated from stored results; other sizes are refused."""
    shutil.copytree(finished_study("theory", "all", "--size", "small"), "lab")
    code, out, err = command("theory", "all", "--size", "small", "--out", "lab", "--json")
    assert code == 0, err
    said = json.loads(out.splitlines()[-1])
    assert said["claims"]["lemma2"] == {"printed": "does not hold", "mended": "holds"}
    shown = {f"{name}, {way}" for name in ("gpomdp", "storm-pg") for way in ("prescribed", "tuned")}
    assert set(said["slopes"]) == shown | {"sharp, tuned"}
    folder = tmp_path / "lab"
    written = {file.name for file in folder.iterdir() if file.is_file()}
    sections = ("lemmas-2-and-3", "theorem-1", "tracking-error", "rates", "where-variance-reduction-pays")
    assert {f"{name}.{kind}" for name in sections for kind in ("png", "pdf")} <= written
    before = (folder / "tables.md").read_text()
    assert "## Where variance reduction pays" in before
    stored = (folder / "rates" / "tuned" / "gpomdp.json").stat().st_mtime_ns
    assert command("report", "lab")[0] == 0
    assert (folder / "tables.md").read_text() == before
    assert (folder / "rates" / "tuned" / "gpomdp.json").stat().st_mtime_ns == stored
    code, _, err = command("theory", "all", "--out", "lab")
    assert code == 2
    assert "holds a study with" in err
    page = (folder / "report.html").read_text()
    assert "Where variance reduction pays: of 6 cells, STORM-PG is significantly ahead in 0 and behind in 0" in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert {chart["section"] for chart in data["charts"]} >= {"Rates", "Tracking error", "Theorem 1"}


# ---- The gap to the optimum


@pytest.mark.slow
def test_the_gap_of_a_method(float64):
    """It starts at that of the uniform policy, and its slope is that of a least-squares fit."""
    found = gap.along(0, "tsivr-pg", seeds=2, most=3000)
    tables = problem(0)
    uniform = {"logits": jnp.zeros((3, 2))}
    sizes = FAMILY.gamma, FAMILY.horizon
    assert found["gap"]["estimate"][0] == pytest.approx(
        float(tabular.optimum(tables, *sizes) - tabular.objective(tables, uniform, *sizes))
    )
    x, y = np.array(found["trajectories"]), np.array(found["gap"]["estimate"])
    late = x >= x[-1] / gap.LAST
    assert found["slope"][0] == pytest.approx(np.polyfit(np.log(x[late]), np.log(y[late]), 1)[0])

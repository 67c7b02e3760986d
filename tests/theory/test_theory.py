"""Exact quantities of the theory, each checked by two independent derivations."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax.tree_utils import tree_vdot

import stormpg
from stormpg.envs.chain import chain_tables, from_tables
from stormpg.envs.lqr import from_system, system
from stormpg.errors import InputError
from stormpg.estimators import estimate
from stormpg.theory import enumeration, linear, tabular
from stormpg.theory.bounds import Constants, accumulated, admissible, corollary, one_step, theorem
from stormpg.theory.problems import garnet, random_system
from stormpg.theory.recording import recorded

GAMMA = 0.9
PROBLEMS = {"chain": (chain_tables(3, slip=0.3), 4), "garnet": (garnet(3, 2, 2, seed=4), 3)}


@pytest.fixture(params=PROBLEMS)
def problem(request, float64):
    """Tables, a horizon, all trajectories, a policy, two parameter sets, and a baseline."""
    tables, horizon = PROBLEMS[request.param]
    states, actions = tables.P.shape[:2]
    policy = stormpg.softmax_table(states, actions)
    draw = lambda seed: {"logits": jax.random.normal(jax.random.key(seed), (states, actions))}
    every = enumeration.enumerate_trajectories(tables, horizon)
    return tables, horizon, every, policy, draw(0), draw(1), jnp.linspace(0.3, -0.2, horizon)


def estimates(policy, params, trajectories, baseline):
    """d of each trajectory, off-policy if it was not sampled at these parameters: [n, parameters]."""
    one = lambda t: (
        estimate(stormpg.estimators.gpomdp(GAMMA), policy, params, jax.tree.map(lambda x: x[None], t), baseline[None]).gradient
    )
    return jax.lax.map(lambda t: jnp.ravel(one(t)["logits"]), trajectories)


def test_the_objective_is_the_sum_over_all_trajectories(problem):
    tables, horizon, every, policy, params, *_ = problem
    plain = functools.partial(enumeration.objective, policy, every=every, gamma=GAMMA)
    np.testing.assert_allclose(tabular.objective(tables, params, GAMMA, horizon), plain(params), rtol=1e-12)
    found, expected = tabular.gradient(tables, params, GAMMA, horizon), jax.grad(plain)(params)
    np.testing.assert_allclose(found["logits"], expected["logits"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("with_baseline", [False, True])
def test_the_moments_of_an_estimate(problem, with_baseline):
    """Compare with the enumeration of the estimator itself. Its mean is the gradient."""
    tables, horizon, every, policy, params, _, b = problem
    trajectories, chance = enumeration.sampled_by(policy, params, every)
    d = estimates(policy, params, trajectories, b if with_baseline else jnp.zeros(horizon))
    found = tabular.estimate_moments(tables, params, GAMMA, horizon, b if with_baseline else None)
    np.testing.assert_allclose(found.mean.ravel(), chance @ d, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.mean, tabular.gradient(tables, params, GAMMA, horizon)["logits"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.square, chance @ (d**2).sum(axis=1), rtol=1e-10)
    np.testing.assert_allclose(found.variance, chance @ ((d - chance @ d) ** 2).sum(axis=1), rtol=1e-10)


def test_the_variance_of_the_weights(problem):
    tables, horizon, every, policy, params, other, _ = problem
    trajectories, chance = enumeration.sampled_by(policy, params, every)
    ratio = enumeration.sampled_by(policy, other, every)[0].log_prob - trajectories.log_prob
    w = jnp.exp(jnp.cumsum(ratio, axis=1))
    found = tabular.weight_variance(tables, params, other, horizon)
    np.testing.assert_allclose(found, chance @ w**2 - (chance @ w) ** 2, rtol=1e-10)
    np.testing.assert_allclose(chance @ w, 1.0, rtol=1e-12)


@pytest.mark.parametrize("with_baseline", [False, True])
def test_the_moments_of_a_difference_of_estimates(problem, with_baseline):
    """The left side of Lemma 3: d^{ξ'}(ξ) − d(ξ')."""
    tables, horizon, every, policy, params, other, b = problem
    b = b if with_baseline else jnp.zeros(horizon)
    trajectories, chance = enumeration.sampled_by(policy, params, every)
    gap = estimates(policy, other, trajectories, b) - estimates(policy, params, trajectories, b)
    found = tabular.difference_moments(tables, params, other, GAMMA, horizon, b)
    np.testing.assert_allclose(found.square, chance @ (gap**2).sum(axis=1), rtol=1e-10)
    slopes = [tabular.gradient(tables, p, GAMMA, horizon)["logits"] for p in (other, params)]
    np.testing.assert_allclose(found.mean, slopes[0] - slopes[1], rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_a_long_horizon_by_simulation(float64):
    """Fifty steps, too many to enumerate: sampled estimates agree within four or five standard errors."""
    tables, horizon = garnet(5, 3, 2, seed=1), 50
    env, policy = from_tables(tables, horizon), stormpg.softmax_table(5, 3)
    params = {"logits": jax.random.normal(jax.random.key(3), (5, 3))}
    batch = stormpg.rollout(env, policy, params, jax.random.key(5), 4000, horizon)
    d = estimates(policy, params, batch, jnp.zeros(horizon))
    exact = tabular.estimate_moments(tables, params, GAMMA, horizon)
    squares = (d**2).sum(axis=1)
    assert abs(squares.mean() - exact.square) < 4 * squares.std() / np.sqrt(len(squares))
    gap = d.mean(axis=0) - exact.mean.ravel()
    assert (jnp.abs(gap) < 5 * d.std(axis=0) / np.sqrt(len(d))).all()


def test_everything_can_be_mapped_and_compiled(problem):
    tables, horizon, _, _, params, other, _ = problem
    both = jax.tree.map(lambda *x: jnp.stack(x), params, other)
    found = jax.jit(jax.vmap(lambda p: tabular.estimate_moments(tables, p, GAMMA, horizon).variance))(both)
    alone = [tabular.estimate_moments(tables, p, GAMMA, horizon).variance for p in (params, other)]
    np.testing.assert_allclose(found, jnp.stack(alone), rtol=1e-12)


def discounted_mean(env, policy, params, horizon, n=20_000):
    """Return L by simulation, and its standard error."""
    batch = stormpg.rollout(env, policy, params, jax.random.key(11), n, horizon)
    total = (batch.reward * GAMMA ** jnp.arange(horizon)).sum(axis=1)
    return total.mean(), total.std() / np.sqrt(n)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [system(2, 1), random_system(3, 2, seed=7)])
def test_a_linear_system_by_simulation(problem, float64):
    env, sigma, horizon = from_system(problem, 15), 0.4, 15
    policy = stormpg.policy_for(env, "gaussian-linear", sigma=sigma)
    params = jax.tree.map(lambda x: 0.1 * jax.random.normal(jax.random.key(2), x.shape), policy.init(jax.random.key(0)))
    exact = linear.objective(problem, params, sigma, GAMMA, horizon)
    mean, error = discounted_mean(env, policy, params, horizon)
    assert abs(mean - exact) < 4 * error
    batch = stormpg.rollout(env, policy, params, jax.random.key(1), 8000, horizon)
    one = lambda t: estimate(stormpg.estimators.gpomdp(GAMMA), policy, params, jax.tree.map(lambda x: x[None], t)).gradient[
        "mean"
    ]
    d = jax.lax.map(one, batch)
    slope = linear.gradient(problem, params, sigma, GAMMA, horizon)["mean"]
    assert (jnp.abs(d.mean(axis=0) - slope) < 5 * d.std(axis=0) / np.sqrt(len(d))).all()


def test_no_linear_policy_is_better_than_the_optimum(float64):
    problem, horizon = random_system(3, 2, seed=3), 15
    best = linear.optimum(problem, GAMMA, horizon)
    zero = {"mean": jnp.zeros((4, 2))}
    climb = lambda _, p: jax.tree.map(lambda x, g: x + 0.02 * g, p, linear.gradient(problem, p, 0.0, GAMMA, horizon))
    found = linear.objective(problem, jax.lax.fori_loop(0, 5000, climb, zero), 0.0, GAMMA, horizon)
    assert linear.objective(problem, zero, 0.0, GAMMA, horizon) < found < best
    assert (best - found) / abs(best) < 0.05  # the optimum may change with time, the policy may not


def test_random_problems_belong_to_their_seed():
    a, b, c = garnet(seed=1), garnet(seed=1), garnet(seed=2)
    np.testing.assert_array_equal(a.P, b.P)
    assert (a.P != c.P).any()
    np.testing.assert_allclose(a.P.sum(axis=2), 1.0)
    assert ((a.P > 0).sum(axis=2) == 2).all()
    np.testing.assert_allclose(np.abs(np.linalg.eigvals(random_system(4, 1, 0.8, seed=5).A)).max(), 0.8)
    with pytest.raises(InputError, match="branching"):
        garnet(2, 2, 3)
    with pytest.raises(InputError, match="radius"):
        random_system(radius=1.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["storm-pg", "svrpg", "gpomdp"])
def test_the_error_along_training_is_recorded(name):
    """The recorded values agree with the norms in the metrics, and recording does not change training."""
    tables, horizon = chain_tables(3), 4
    env = stormpg.make("chain")
    exact = functools.cache(lambda: lambda params: tabular.gradient(tables, params, 0.99, horizon))()
    settings = {"S0": 6} if name == "gpomdp" else {"S0": 6, "B": 3}
    algorithm = stormpg.make_algorithm(name, optimizer="sgd", eta=0.1, **settings)
    plain = stormpg.train(env, algorithm, 30, 3, horizon=horizon)
    result = stormpg.train(env, recorded(algorithm, exact, 50), 30, 3, horizon=horizon)
    np.testing.assert_allclose(result.columns["gradient_norm"], plain.columns["gradient_norm"], rtol=1e-5)
    found = result.states.step
    for run, seed in enumerate(result.seeds):
        mine = result.columns["seed"] == seed
        count = int(mine.sum())
        assert int(found.iteration[run]) == count
        np.testing.assert_allclose(found.estimate[run][:count], result.columns["gradient_norm"][mine] ** 2, rtol=1e-4)
        assert (found.error[run][:count] > 0).all()
        assert not found.error[run][count:].any()
    slope = exact(stormpg.softmax_table(3, 2).init(jax.random.key(0)))
    np.testing.assert_allclose(found.gradient[:, 0], tree_vdot(slope, slope), rtol=1e-5)


CONSTANTS = Constants(R=1.0, M=2**0.5, N=0.5, sigma2=4.0, phi2=0.5, gap=2.0, gamma=0.9, horizon=6)


@pytest.mark.slow
def test_the_smoothness_of_the_objective_is_above_its_hessian(float64):
    """At twenty-five random points of five problems."""
    found = []
    for seed in range(5):
        tables, horizon = garnet(4, 2, 2, seed=seed), 6
        value = lambda logits, tables=tables, horizon=horizon: tabular.objective(
            tables, {"logits": logits.reshape(4, 2)}, 0.9, horizon
        )  # fmt: skip
        for key in range(5):
            logits = jax.random.normal(jax.random.key(key), (8,))
            found.append(float(jnp.abs(jnp.linalg.eigvalsh(jax.hessian(value)(logits))).max()))
    assert max(found) < CONSTANTS.smoothness


def test_lemma_2_needs_one_step_more_than_printed(float64):
    """At h = 0 the printed constant is 0, but the weight of one step varies."""
    tables, horizon = garnet(4, 2, 2, seed=0), 6
    a, b = ({"logits": jax.random.normal(jax.random.key(seed), (4, 2))} for seed in (0, 1))
    b = jax.tree.map(lambda x, y: x + 0.05 * (y - x), a, b)
    variance = tabular.weight_variance(tables, a, b, horizon)
    square = float(sum(((x - y) ** 2).sum() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)))
    constants = dataclasses.replace(CONSTANTS, phi2=float(variance[-1]))
    assert constants.weight(0) * square == 0 < variance[0]
    for h in range(horizon):
        assert variance[h] <= constants.weight(h, printed=False) * square


@pytest.mark.slow
def test_lemma_3_with_its_proof_mended(float64):
    """For random pairs of points, the exact left side is at most the corrected constant times the squared distance."""
    tables, horizon = garnet(4, 2, 2, seed=0), 6
    for seed in range(5):
        a, b = ({"logits": jax.random.normal(jax.random.key(2 * seed + i), (4, 2))} for i in range(2))
        b = jax.tree.map(lambda x, y: x + 0.1 * (y - x), a, b)
        square = float(sum(((x - y) ** 2).sum() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)))
        constants = dataclasses.replace(CONSTANTS, phi2=float(tabular.weight_variance(tables, a, b, horizon)[-1]))
        left = float(tabular.difference_moments(tables, a, b, 0.9, horizon).square)
        assert 0 < left <= constants.difference(printed=False) * square


def test_the_corollary_makes_every_term_of_the_theorem_small():
    """With the prescribed settings, each of the three terms is at most ε²/3, and the settings are admissible."""
    for epsilon, B in ((0.5, 1), (0.1, 1), (0.1, 10)):
        settings = corollary(epsilon, sigma2=4.0, gap=2.0, C_gamma=7.0, B=B)
        assert admissible(settings.alpha, B, settings.eta * 0.999999, 7.0)
        bound = theorem(2.0, settings.T, settings.alpha, B, settings.eta, settings.S0, 4.0)
        assert bound <= epsilon**2 * (1 + 1e-9)
        assert settings.trajectories == settings.S0 + settings.T * B
    capped = corollary(1.0, sigma2=0.1, gap=1.0, C_gamma=2.0, smoothness=5.0)
    assert capped.alpha == 1.0
    assert capped.eta == 0.1
    assert admissible(capped.alpha, 1, capped.eta, 2.0)
    assert corollary(0.1, sigma2=0.0, gap=1.0, C_gamma=2.0).S0 == 1
    few, many = (corollary(epsilon, 4.0, 2.0, 7.0).trajectories for epsilon in (0.01, 0.001))
    assert np.log10(many / few) == pytest.approx(3.0, abs=0.01)  # O(ε⁻³)


def test_the_lemmas_recursion_sums_to_their_sum():
    """Lemma 5 from Lemma 4, step by step: the accumulated bound is above the sum of the errors allowed by the recursion."""
    alpha, B, eta, sigma2, square, first = 0.3, 4, 0.1, 2.0, 5.0, 1.7
    errors, estimates = [first], [0.5 + 0.1 * t for t in range(50)]
    for estimate_ in estimates:
        errors.append(one_step(errors[-1], estimate_, alpha, B, eta, sigma2, square))
    total, bound = sum(errors[:50]), accumulated(first, sum(estimates), 50, alpha, B, eta, sigma2, square)
    assert total <= bound <= 3 * total

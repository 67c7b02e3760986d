"""Mistakes in published programs of this family, each as a test that the library does not make it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import stormpg
from stormpg import estimators, rates, schedules, steps, trackers
from stormpg.contract import Here, Moment, Tracked
from stormpg.pytrees import add
from stormpg.theory.enumeration import expectation_over_batches, objective, sampled_by, small_chain
from stormpg.trajectories import Batch, Trajectories
from tests.test_estimators import two_parameters

POLICY, GAMMA, N = stormpg.softmax_table(3, 2), 0.9, 2
EVERY = small_chain(3)


def at(params, estimator=None, large=False, iteration=1):
    estimator = estimator or estimators.gpomdp(GAMMA, "none")
    return Here(jax.random.key(0), jnp.asarray(iteration), params, POLICY, estimator, large, N)


def flat(tree):
    return np.asarray(ravel_pytree(tree)[0])


@pytest.fixture
def points(float64):
    """ξ_t, ξ_{t−1} and a batch of five sampled at ξ_t."""
    here, there = two_parameters(POLICY)
    return here, there, jax.tree.map(lambda x: x[5:25:4], sampled_by(POLICY, here, EVERY)[0])


def test_1_padded_steps_do_not_enter_the_weight_of_a_trajectory(float64):
    """Actions after the end of an episode have probabilities, too. They must not count."""
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    random = np.random.default_rng(0)
    here, there = (policy.init(jax.random.key(seed)) for seed in (0, 1))
    observation, action = (jnp.asarray(random.normal(size=(3, 9, size))) for size in (2, 1))
    mask = jnp.asarray(np.arange(9) < np.array([[4], [9], [6]]), float)
    reward = jnp.asarray(random.normal(size=(3, 9))) * mask
    log_prob = jax.vmap(jax.vmap(policy.log_prob, (None, 0, 0)), (None, 0, 0))(there, observation, action) * mask
    whole = Trajectories(observation, action, reward, mask, log_prob)
    for weighting in estimators.WEIGHTINGS:
        of = lambda taken, w=weighting: flat(estimators.gradient(estimators.gpomdp(0.9, weighting=w), policy, here, taken))
        far = whole._replace(action=jnp.where(mask[:, :, None] > 0, action, 1e3))
        np.testing.assert_allclose(of(whole), of(far), rtol=1e-12)


def test_2_products_of_many_probabilities_do_not_underflow():
    """Two hundred steps of probability ½ under both policies: the weight is 1 in float32, not 0/(0 + ε)."""
    policy = stormpg.softmax_table(1, 2)
    params = policy.init(jax.random.key(0))
    zeros = jnp.zeros((2, 200))
    taken = Trajectories(zeros.astype(int), zeros.astype(int), zeros + 1.0, zeros + 1.0, zeros + jnp.log(0.5))
    weight = estimators.estimate(estimators.gpomdp(0.99), policy, params, taken).weight
    np.testing.assert_allclose(weight, 1, rtol=1e-4)


def test_3_and_4_a_weight_is_the_product_of_ratios_of_probabilities(points):
    """Not of their logarithms, and not its inverse: Π π_ξ(a|s)/π_ξ'(a|s) for a batch sampled at ξ'."""
    here, there, batch = points
    found = estimators.estimate(estimators.gpomdp(GAMMA), POLICY, there, batch).weight
    table = [np.asarray(jax.nn.softmax(params["logits"], axis=-1)) for params in (there, here)]
    for i in range(len(batch.mask)):
        expected = 1.0
        for h in range(int(batch.mask[i].sum())):
            s, a = int(batch.observation[i, h]), int(batch.action[i, h])
            expected *= table[0][s, a] / table[1][s, a]
            np.testing.assert_allclose(found[i, h], expected, rtol=1e-9)


def test_5_both_gradients_are_those_of_their_own_parameters(points):
    """The reference term is differentiated at ξ_{t−1}, not at ξ_t, and is not zero."""
    here, there, batch = points
    made = trackers.weighted().carry(at(here), (Batch(batch, here),), trackers.Memory(there, here))
    then = flat(add(made.fresh, made.change, -1.0))
    np.testing.assert_allclose(then, flat(estimators.gradient(estimators.gpomdp(GAMMA, "none"), POLICY, there, batch)))
    assert np.abs(then).max() > 1e-3
    assert np.abs(then - flat(made.fresh)).max() > 1e-3


@pytest.fixture
def curvature(points):
    """ξ, v, the exact ∇²L(ξ) v, and all trajectories sampled at ξ."""
    here, there, _ = points
    v = add(there, here, -1.0)
    exact = flat(jax.jvp(jax.grad(lambda x: objective(POLICY, x, EVERY, GAMMA)), (here,), (v,))[1])
    return here, v, exact, *sampled_by(POLICY, here, EVERY)


@pytest.mark.parametrize(("sign", "together"), [(1, False), (1, True), (-1, False)], ids=["right", "6 of means", "7 sign"])
def test_6_and_7_the_score_term_of_a_hessian(curvature, sign, together):
    """Ĥ v = mean_i [ ∇Φ_i (∇log p_i · v) + ∇²Φ_i v ]: a product of means, or the other sign, is biased."""
    here, v, exact, taken, chance = curvature
    estimator = estimators.reinforce(GAMMA, "none")

    def by_hand(batch):
        log_p = lambda params: jax.vmap(jax.vmap(POLICY.log_prob, (None, 0, 0)), (None, 0, 0))(
            params, batch.observation, batch.action
        )
        to_come = (batch.reward * GAMMA ** jnp.arange(3)).sum(axis=1, keepdims=True) * batch.mask
        phi = lambda params: (log_p(params) * to_come).sum(axis=1)
        along = jax.jvp(lambda params: (log_p(params) * batch.mask).sum(axis=1), (here,), (v,))[1]
        first = jax.jacrev(phi)(here)["logits"]
        product = first.mean(axis=0) * along.mean() if together else jnp.tensordot(along, first, axes=1) / len(along)
        second = jax.jvp(jax.grad(lambda params: phi(params).mean()), (here,), (v,))[1]["logits"]
        return sign * product + second

    expected = np.asarray(expectation_over_batches(by_hand, taken, chance, N)).ravel()
    right = sign == 1 and not together
    assert (np.abs(expected - exact).max() < 1e-9) == right
    of = lambda batch: at(here, estimator).hessian_product(Batch(batch, here), v)
    if right:
        np.testing.assert_allclose(flat(expectation_over_batches(of, taken, chance, N)), expected, atol=1e-9)


def test_8_a_hessian_product_has_the_rewards_in_it(curvature):
    here, v, _, taken, _ = curvature
    of = lambda scale: flat(at(here).hessian_product(Batch(taken._replace(reward=scale * taken.reward), here), v))
    np.testing.assert_array_equal(of(0.0), 0)
    np.testing.assert_allclose(of(3.0), 3 * of(1.0), rtol=1e-6)


def test_9_a_hessian_product_is_accurate_in_float32():
    """It is a derivative, not a difference of two estimates that are equal up to rounding."""
    policy = stormpg.gaussian_mlp(3, 1, hidden=(8,))
    env, found = stormpg.make("pendulum"), []
    for wide in (False, True):
        with jax.enable_x64(wide):
            cast = lambda tree, wide=wide: jax.tree.map(lambda x: jnp.asarray(x, float), tree)
            if not wide:
                params = policy.init(jax.random.key(0))
                taken = stormpg.rollout(env, policy, params, jax.random.key(1), 3, 20)
            v = jax.tree.map(lambda x: 1e-3 * jnp.ones_like(x), cast(params))
            here = Here(jax.random.key(0), jnp.asarray(1), cast(params), policy, estimators.gpomdp(0.9), False, 3)
            found.append(flat(here.hessian_product(Batch(cast(taken), cast(params)), v)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-2, atol=1e-4 * np.abs(found[1]).max())


def test_10_the_reference_is_the_point_of_the_last_estimate(points):
    """After a large batch, and after a small one for "previous", it is the parameters of that batch."""
    here, there, batch = points
    for tracker in (trackers.storm(0.3), trackers.svrg(), trackers.follow(0.3, trackers.weighted(second=True))):
        start = tracker.init(there, lambda n=None: Batch(batch, there))
        after = tracker.track(at(here, large=True), (Batch(batch, here),), start).memory
        np.testing.assert_array_equal(flat(after.params), flat(here))


def test_11_every_trajectory_of_every_batch_counts(points):
    here, there, batch = points
    tracker, memory = trackers.follow(0.3, trackers.weighted(second=True)), trackers.Memory(there, here)
    of = lambda *pair: flat(tracker.track(at(here), tuple(Batch(one, here) for one in pair), memory).gradient)
    for i in range(len(batch.mask)):
        more = batch._replace(reward=batch.reward.at[i].add(1.0))
        for pair in ((more, batch), (batch, more)):
            assert np.abs(of(*pair) - of(batch, batch)).max() > 1e-6


def test_12_p_is_the_chance_of_a_large_batch_and_alpha_the_share_of_the_new_one(points):
    assert bool(schedules.coin(1.0, 4, 2).large((), Moment(jax.random.key(0), jnp.asarray(5))))
    assert not bool(schedules.coin(0.0, 4, 2).large((), Moment(jax.random.key(0), jnp.asarray(5))))
    here, there, batch = points
    now = trackers.storm(1.0).track(at(here), (Batch(batch, here),), trackers.Memory(there, here)).gradient
    np.testing.assert_allclose(flat(now), flat(at(here).estimate(here, Batch(batch, here)).gradient))


RULED = ["is-mbpg", "is-mbpg-star", "ha-mbpg", "bgpo", "vr-bgpo", "storm-plus", "meta-storm", "sharp", "harpg", "n-pg-igt"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RULED)
def test_13_the_default_alpha_has_a_memory(name):
    """A rule whose α stays at 1 is GPOMDP under another name."""
    result = stormpg.train("cartpole-continuous", name, trajectories=80, seeds=2, horizon=60)
    alpha = result.columns["alpha"].reshape(2, -1)
    assert (alpha[:, 0] == 1).all()
    assert (alpha[:, 3:] < 0.95).all()


STEPS = {
    "sgd": steps.optax_step(0.01, "sgd"),
    "adam": steps.optax_step(0.01),
    "normalised": steps.normalised(0.01),
    "radius": steps.radius(steps.optax_step(0.01, "sgd"), 0.001),
    "clipped": steps.clipped(steps.optax_step(0.01, "sgd"), 0.1),
    "diagonal": steps.mirror(0.01, "diagonal"),
    "p-norm": steps.mirror(0.01, "p-norm", 1.5),
    "averaged": steps.averaged(steps.optax_step(0.01, "sgd"), 0.9),
}


@pytest.mark.parametrize("name", STEPS)
def test_14_every_step_ascends_from_the_first_one_on(points, name):
    here, _, batch = points
    step, params = STEPS[name], jax.tree.map(lambda x: x + 0.1, here)
    state = step.init(params)
    for t in range(3):
        g = at(params).estimate(params, Batch(batch, params)).gradient
        moved, state = step.apply(at(params, iteration=t), Tracked(g, (), Batch(batch, params)), state)
        assert float(flat(add(moved, params, -1.0)) @ flat(g)) > 0
        params = moved


def test_15_the_extrapolated_point_uses_the_alpha_of_its_own_iteration(points):
    here, there, batch = points
    tracker = trackers.follow(transport=trackers.Extrapolated(), rates=rates.powers(1.0, 4 / 5, 1.0))
    now, memory = at(here, iteration=3), trackers.Memory(there, here)
    (sample,) = tracker.wants(now, memory)
    alpha = float(tracker.track(now, (Batch(batch, sample.params),), memory).info["alpha"])
    assert alpha == pytest.approx((2 / 5) ** (4 / 5))
    np.testing.assert_allclose(flat(sample.params), flat(here) + (1 - alpha) / alpha * (flat(here) - flat(there)), rtol=1e-6)


def test_16_a_clip_of_the_step_leaves_the_estimate_as_it_is(points):
    """`steps.clipped` changes what is applied, `radius` of a tracker what is kept."""
    here, there, batch = points
    memory, inside = trackers.Memory(there, here), (Batch(batch, here),)
    whole = trackers.storm(0.3).track(at(here), inside, memory)
    np.testing.assert_array_equal(flat(whole.memory.gradient), flat(whole.gradient))
    short = trackers.follow(0.3, radius=1e-3).track(at(here), inside, memory)
    np.testing.assert_array_equal(flat(short.memory.gradient), flat(short.gradient))
    assert np.abs(flat(short.gradient) - flat(whole.gradient)).max() > 1e-3


def test_17_all_seeds_are_shown():
    """A table has every seed of a run, not the best ten of them."""
    result = stormpg.train("chain", "storm-pg", trajectories=15, seeds=12, horizon=3)
    assert sorted(set(result.columns["seed"].tolist())) == list(range(12))

"""Windows of batches: unbiased over all batches, equal to plain loops, and the trackers over them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import stormpg
from stormpg import baselines, estimators, trackers, windows
from stormpg.baselines import leave_one_out_mean
from stormpg.contract import Here
from stormpg.errors import InputError
from stormpg.estimators import coefficients
from stormpg.scores import log_probs, score_sum, score_sums
from stormpg.theory.enumeration import expectation_over_batches, objective, sampled_by, small_chain
from stormpg.trackers import blended as blended_module
from stormpg.trajectories import Batch, Trajectories, Weights, sums_to_come
from tests.test_conformance import mostly_slow
from tests.test_estimators import ESTIMATORS, GAMMA, two_parameters

POLICY = stormpg.softmax_table(3, 2)


def at(params, estimator, n):
    return Here(jax.random.key(0), jnp.asarray(0), params, POLICY, estimator, True, n)


def blank_of(trajectories, n):
    """An empty batch of n with the shapes of these trajectories."""
    return lambda: Batch(jax.tree.map(lambda x: jnp.zeros((n, *x.shape[1:]), x.dtype), trajectories), None)


def followed(tracker, estimator, batches, n):
    """The last result of a tracker over these batches, sampled at these parameters."""
    trajectories, params = batches[0]
    memory = tracker.init(params, blank_of(trajectories, n))
    for trajectories, params in batches:
        tracked = tracker.track(at(params, estimator, n), (Batch(trajectories, params),), memory)
        memory = tracked.memory
    return tracked


def expected_over_windows(function, B, horizon):
    """E[function(first batch, second batch)] and ∇L(ξ): the first sampled at ξ', the second at ξ, over all batches of B."""
    every = small_chain(horizon)
    params, other = two_parameters(POLICY)
    (ones, p), (twos, q) = (sampled_by(POLICY, who, every) for who in (other, params))
    picks = np.stack([x.ravel() for x in np.meshgrid(*[np.arange(len(p))] * (2 * B), indexing="ij")], axis=1)

    def one(pick):
        first, second = jax.tree.map(lambda x: x[pick[:B]], ones), jax.tree.map(lambda x: x[pick[B:]], twos)
        return p[pick[:B]].prod() * q[pick[B:]].prod() * ravel_pytree(function((first, other), (second, params)))[0]

    found = jax.lax.map(jax.jit(jax.vmap(one)), jnp.asarray(picks).reshape(-1, len(p), 2 * B)).sum(axis=(0, 1))
    return np.asarray(found), np.asarray(ravel_pytree(jax.grad(lambda x: objective(POLICY, x, every, GAMMA))(params))[0])


@pytest.mark.parametrize("name", mostly_slow(ESTIMATORS, "gpomdp"))
@pytest.mark.parametrize(("baseline", "B", "horizon"), [("none", 1, 3), ("time", 2, 2)])
def test_a_window_is_unbiased(float64, name, baseline, B, horizon):
    """E[g] = ∇L(ξ) over all pairs of batches, of which the first was sampled at other parameters."""
    estimator, tracker = ESTIMATORS[name](GAMMA, baseline), trackers.window(2)
    function = lambda first, second: followed(tracker, estimator, (first, second), B).gradient
    found, expected = expected_over_windows(function, B, horizon)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert np.abs(expected).max() > 1e-2


@pytest.mark.slow
def test_leaving_out_one_trajectory_of_a_window_is_biased(float64):
    """Why a baseline leaves out the i-th trajectory of every batch: the mean of all others differs between the batches."""
    estimator = ESTIMATORS["gpomdp"](GAMMA, "time")

    def function(first, second):
        joined = jax.tree.map(lambda a, b: jnp.concatenate((a, b)), first[0], second[0])
        window = windows.empty(2, first[1], blank_of(joined, 2))
        for trajectories, params in (first, second):
            window = windows.add_batch(window, POLICY, Batch(trajectories, params))
        weights = windows.weights(window)
        signal = window.trajectories.reward * GAMMA ** jnp.arange(2)
        c = coefficients(estimator, window.trajectories, weights, leave_one_out_mean(signal))
        return score_sum(POLICY, second[1], window.trajectories, c * window.trajectories.mask / 4)

    found, expected = expected_over_windows(function, 2, 2)
    assert np.abs(found - expected).max() > 1e-4


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("baseline", ["none", "time"])
def test_a_window_of_one_batch_is_plain(float64, name, baseline):
    params, other = two_parameters(POLICY)
    every, _ = sampled_by(POLICY, params, small_chain(3))
    batch, estimator = jax.tree.map(lambda x: x[5:25:4], every), ESTIMATORS[name](GAMMA, baseline)
    plain = trackers.plain().track(at(params, estimator, 5), (Batch(batch, params),), ()).gradient
    for tracker in (trackers.window(1), trackers.window(4)):  # also a window that is not full
        found = followed(tracker, estimator, [(batch, params)], 5).gradient
        np.testing.assert_allclose(found["logits"], plain["logits"], rtol=1e-10, atol=1e-12)
    again = followed(trackers.window(1), estimator, [(batch, other), (batch, params)], 5).gradient
    np.testing.assert_allclose(again["logits"], plain["logits"], rtol=1e-10, atol=1e-12)


def sampled(policy, horizon, seed, n=3):
    """A batch with random observations, actions and lengths, and parameters that sampled it."""
    random = np.random.default_rng(seed)
    params = policy.init(jax.random.key(seed))
    lengths = random.integers(1, horizon + 1, n)
    mask = jnp.asarray((np.arange(horizon) < lengths[:, None]).astype(float))
    observation, action = random.normal(size=(n, horizon, 2)), random.normal(size=(n, horizon, 1))
    reward = jnp.asarray(random.normal(size=(n, horizon))) * mask
    taken = Trajectories(jnp.asarray(observation), jnp.asarray(action), reward, mask, jnp.zeros((n, horizon)))
    return taken._replace(log_prob=log_probs(policy, params, taken)), params


@pytest.fixture(params=["cpu", "gpu"])
def for_platform(request, monkeypatch):
    """The operations that are chosen on this platform."""
    for module in (windows, baselines):
        monkeypatch.setattr(module, "platform", lambda: request.param)


@pytest.mark.parametrize("horizon", [7, 130], ids=["short", "in blocks"])
@pytest.mark.parametrize("batches", [2, 3, 5], ids=["not full", "full", "older ones replaced"])
def test_weights_and_kept_ratios(float64, horizon, batches, for_platform):
    """Against loops over batches, trajectories and steps; at most K."""
    policy, K, n = stormpg.gaussian_mlp(2, 1, hidden=(4,)), 3, 3
    made = [sampled(policy, horizon, seed) for seed in range(batches)]
    window = windows.empty(K, made[0][1], blank_of(made[0][0], n))
    for trajectories, params in made:
        window = windows.add_batch(window, policy, Batch(trajectories, params))
    found, kept = windows.weights(window), made[-K:]
    for k, (trajectories, _) in enumerate(kept):
        place = (batches - len(kept) + k) % K
        under = [np.asarray(log_probs(policy, params, trajectories)) for _, params in kept]
        rows = slice(place * n, place * n + n)
        for j in range(len(kept)):
            step, cumulative = (x[(batches - len(kept) + j) % K, :horizon, rows].T for x in window.ratios)
            np.testing.assert_allclose(step, np.exp(under[j] - under[k]), rtol=1e-9)
            np.testing.assert_allclose(cumulative, np.exp(np.cumsum(under[j] - under[k], axis=1)), rtol=1e-9)
        mask = np.asarray(trajectories.mask) > 0
        mixture = np.mean([np.exp(x) for x in under], axis=0)
        np.testing.assert_allclose(found.step[rows, :horizon][mask], (np.exp(under[-1]) / mixture)[mask], rtol=1e-9)
        totals = [np.cumsum(x - under[-1], axis=1) for x in under]
        cumulative = 1 / np.mean([np.exp(x) for x in totals], axis=0)
        np.testing.assert_allclose(found.cumulative[rows, :horizon][mask], cumulative[mask], rtol=1e-7)
    live = window.trajectories.mask > 0
    assert float(jnp.where(live, jnp.maximum(*found), 0).max()) <= len(kept) * (1 + 1e-9)


def test_weights_stay_after_the_end_of_all_episodes(float64):
    """Also in blocks of steps that are not computed: some estimators use the last weight."""
    policy, horizon = stormpg.gaussian_mlp(2, 1, hidden=(4,)), 150
    made = [sampled(policy, 20, seed) for seed in (0, 1)]
    longer = lambda x: jnp.pad(x, ((0, 0), (0, horizon - 20), *((0, 0),) * (x.ndim - 2)))
    batches = [Batch(jax.tree.map(longer, trajectories), params) for trajectories, params in made]
    window = windows.empty(2, made[0][1], blank_of(batches[0].trajectories, 3))
    for batch in batches:
        window = windows.add_batch(window, policy, batch)
    found = windows.weights(window)
    np.testing.assert_allclose(found.cumulative[:, 20:], np.tile(found.cumulative[:, 19:20], horizon - 20), rtol=1e-12)
    np.testing.assert_allclose(found.step[:, 20:], 1, rtol=1e-12)
    assert np.abs(found.cumulative[:, -1] - 1).max() > 1e-3


def test_an_impossible_trajectory_has_weight_zero():
    """In float32 its ratio overflows. No weight may become NaN by it."""
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, params = sampled(policy, 7, 0)
    far = jax.tree.map(lambda x: x + 100.0, params)
    window = windows.add_batch(windows.empty(3, far, blank_of(taken, len(taken.mask))), policy, Batch(taken, params))
    assert np.isfinite(windows.weights(window)).all()  # the places that are still empty hold `far`
    there = taken._replace(log_prob=log_probs(policy, far, taken))
    found = windows.weights(windows.add_batch(window, policy, Batch(there, far)))
    live = np.asarray(window.trajectories.mask[: len(taken.mask)]) > 0
    for weight in found:
        assert np.isfinite(weight).all()
        np.testing.assert_array_equal(weight[: len(taken.mask)][live], 0)


@pytest.mark.parametrize("horizon", [7, 130], ids=["short", "in blocks"])
def test_score_sums(float64, horizon):
    """For each part and each set of coefficients, the plain sum."""
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, params = sampled(policy, horizon, 0, n=6)
    c = jnp.asarray(np.random.default_rng(1).normal(size=(2, 6, horizon))) * taken.mask
    found = score_sums(policy, params, taken, c, 3)
    for i in range(2):
        for part in range(3):
            rows = slice(2 * part, 2 * part + 2)
            one = score_sum(policy, params, jax.tree.map(lambda x, rows=rows: x[rows], taken), c[i, rows])
            mine = jax.tree.map(lambda x, i=i, part=part: x[i, part], found)
            np.testing.assert_allclose(ravel_pytree(mine)[0], ravel_pytree(one)[0], rtol=1e-9, atol=1e-12)


def test_batches_of_two_sizes_are_refused(float64):
    params, _ = two_parameters(POLICY)
    every, _ = sampled_by(POLICY, params, small_chain(2))
    memory = trackers.window(2).init(params, blank_of(every, 5))
    batch = Batch(jax.tree.map(lambda x: x[:3], every), params)
    with pytest.raises(InputError, match="same size"):
        trackers.window(2).track(at(params, ESTIMATORS["gpomdp"](GAMMA), 3), (batch,), memory)
    for bad in (0, 2.0, True):
        with pytest.raises(InputError, match="K is"):
            trackers.window(bad)


# ---- two estimators over one window


def blended(share, batches=6):
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    made = [sampled(policy, 7, 0)]
    made += [(sampled(policy, 7, seed)[0], made[0][1]) for seed in range(1, batches)]
    estimator, critic = estimators.gpomdp(0.9, from_now=True), estimators.gae(0.9, 0.8)
    tracker, (trajectories, params) = trackers.blend(4, critic, share), made[0]
    memory = tracker.init(params, blank_of(trajectories, 3))
    here = Here(jax.random.key(0), jnp.asarray(0), params, policy, estimator, True, 3)
    follow = jax.jit(lambda trajectories, memory: tracker.track(here, (Batch(trajectories, params),), memory))
    for trajectories, _ in made:
        tracked = follow(trajectories, memory)
        memory = tracked.memory
    return policy, params, memory.window, tracked, (critic, estimator)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_blend_with_one_estimator_is_that_estimator(float64, share):
    """Its gradient is that of the estimator over the window, divided by the root mean square of the coefficients."""
    policy, params, window, tracked, (critic, estimator) = blended(share)
    taken, mask = window.trajectories, window.trajectories.mask
    weights = Weights(jnp.ones_like(mask), jnp.ones_like(mask))  # all batches were sampled at these parameters
    c = estimators.window_coefficients(critic if share else estimator, taken, weights, window.age) * mask
    c = c - mask * c.sum() / mask.sum() if share else c
    c = c / jnp.sqrt((c**2).sum() / mask.sum()) / mask.sum()
    expected = score_sum(policy, params, taken, c)
    np.testing.assert_allclose(ravel_pytree(tracked.gradient)[0], ravel_pytree(expected)[0], rtol=1e-9, atol=1e-12)
    assert float(tracked.info["critic_share"]) == share


def test_signal_to_noise():
    """Of the mean of independent vectors: on average the signal, over the variance of the mean."""
    random, K, p = np.random.default_rng(0), 8, 5
    draws = random.normal(size=(4000, K, p)) + 1.5
    measure = jax.vmap(lambda x: blended_module.signal_to_noise({"x": x}, jnp.asarray(K)))
    assert abs(float(np.median(measure(draws))) / (p * 1.5**2 / (p / K)) - 1) < 0.1
    assert float(np.median(measure(draws - 1.5))) < 1
    same = jnp.ones((K, p))
    assert float(blended_module.signal_to_noise({"x": same}, jnp.asarray(K))) == 1  # no noise to compare with


def test_the_step_is_short_where_the_gradient_is_noise(float64):
    *_, tracked, _ = blended(0.5)
    r = float(tracked.info["signal"])
    assert 0 <= r < 1
    assert 0 < float(tracked.rate) <= 1


@functools.cache
def blend_of_rewards():
    """A blend: its first memory, what it knows, and the next result for rewards [n, H]."""
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, params = sampled(policy, 7, 0)
    taken = taken._replace(mask=jnp.ones_like(taken.mask))
    tracker = trackers.blend(4, estimators.gae(0.9, 0.8))
    memory = tracker.init(params, blank_of(taken, 3))
    here = Here(jax.random.key(0), jnp.asarray(0), params, policy, estimators.gpomdp(0.9, from_now=True), True, 3)
    of = lambda reward, memory: tracker.track(here, (Batch(taken._replace(reward=reward), params),), memory)
    return memory, here, jax.jit(of)


def tracked_rewards(*rewards):
    """The memory and the rate of a blend after batches with these rewards, [n, H] each."""
    memory, here, follow = blend_of_rewards()
    for reward in rewards:
        made = follow(reward, memory)
        memory = made.memory
    return made, here


@pytest.mark.parametrize("reward", [0.0, -1.0], ids=["no reward", "the same reward"])
def test_it_explores_until_rewards_differ(float64, reward):
    """Then g_t follows novelty, and never again: not even if all rewards are the same later, as at an optimum."""
    same = jnp.full((3, 7), reward)
    (first, here), (second, _) = tracked_rewards(same), tracked_rewards(same, same.at[1, 6].add(3.0))
    assert float(first.info["exploring"]) == 1
    window = first.memory.window
    weights = Weights(*(jnp.ones_like(window.trajectories.mask),) * 2)
    unusual = window.trajectories._replace(reward=blended_module.novelty(window.trajectories))
    c = estimators.window_coefficients(here.estimator, unusual, weights, window.age) * window.trajectories.mask
    expected = ravel_pytree(score_sum(here.policy, here.params, unusual, c))[0]
    found = ravel_pytree(first.gradient)[0]
    np.testing.assert_allclose(found / jnp.linalg.norm(found), expected / jnp.linalg.norm(expected), rtol=1e-6, atol=1e-9)
    assert float(second.info["exploring"]) == 0
    later, _ = tracked_rewards(same.at[1, 6].add(3.0), *[same] * 6)
    assert float(later.info["exploring"]) == 0


@pytest.mark.parametrize(("difference", "expected"), [(0.1, [1, 1, 1, 0, 0]), (1e-4, [1, 1, 1, 1, 1]), (2.0, [0, 0, 0, 0, 0])])
def test_small_differences_end_exploration_with_the_first_window(float64, difference, expected):
    """They may be the cost of actions, while the goal has not been found. Tiny ones never end it."""
    rewards = jnp.full((3, 7), -1.0).at[1, 3].add(difference)
    found = [float(tracked_rewards(*[rewards] * n)[0].info["exploring"]) for n in range(1, 6)]
    assert found == expected


def test_novelty_is_large_far_from_the_usual_states(float64):
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, _ = sampled(policy, 9, 3, n=4)
    z = np.asarray(taken.observation)
    live = np.asarray(taken.mask) > 0
    z = (z - z[live].mean(axis=0)) / z[live].std(axis=0)
    expected = np.where(live, (np.clip(z, -5, 5) ** 2).mean(axis=-1), 0)
    np.testing.assert_allclose(blended_module.novelty(taken), expected, rtol=1e-6, atol=1e-9)
    assert expected[live].mean() == pytest.approx(1)


def test_steps_are_short_if_returns_hardly_differ(float64):
    """At an optimum all episodes have the same return, and what is left of the advantages are errors of the value function."""
    random = np.random.default_rng(0)
    batches = [jnp.asarray(1 + 0.5 * random.normal(size=(3, 7))) for _ in range(4)]
    rates = []
    for scale in (1.0, 0.1, 5e-3):
        # The first batch ends exploration, and is no longer in the window.
        made, _ = tracked_rewards(3 * batches[0], *(1 + scale * (reward - 1) for reward in batches))
        rates.append(float(made.rate))
    assert rates[0] == pytest.approx(rates[1], rel=0.2)
    assert rates[2] < 0.7 * rates[0]


# ---- reused batches (RT-PG)


def test_reused_batches_against_loops(float64):
    """Shares D_j^{−½}, power means with λ_j, and GPOMDP's sums, without a baseline."""
    policy, K, n, gamma = stormpg.gaussian_mlp(2, 1, hidden=(4,)), 3, 3, 0.9
    made = [sampled(policy, 7, seed) for seed in range(4)]
    tracker = trackers.reused(K, 0.2)
    memory = tracker.init(made[0][1], blank_of(made[0][0], n))
    for trajectories, params in made:
        here = Here(jax.random.key(0), jnp.asarray(0), params, policy, estimators.gpomdp(gamma, "none"), True, n)
        found = tracker.track(here, (Batch(trajectories, params),), memory)
        memory = found.memory
    now, kept = made[-1][1], made[-K:]
    parts, shares = [], []
    for trajectories, params in kept:
        ratio = np.asarray(log_probs(policy, now, trajectories) - log_probs(policy, params, trajectories))
        w = np.exp(np.cumsum(ratio, axis=1))
        D = max((w[:, -1] ** 2).mean(), 1.0)
        lam = min(np.sqrt(4 * np.log(5) / (3 * K * n * D)), 1.0)
        used = w / (1 - lam + lam * w)
        term = used * np.asarray(trajectories.reward) * gamma ** np.arange(7)
        c = np.cumsum(term[:, ::-1], axis=1)[:, ::-1] * np.asarray(trajectories.mask)
        parts.append(ravel_pytree(score_sum(policy, now, trajectories, jnp.asarray(c) / n))[0])
        shares.append(D**-0.5)
    expected = sum(share * part for share, part in zip(shares, parts, strict=True)) / sum(shares)
    np.testing.assert_allclose(ravel_pytree(found.gradient)[0], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("baseline", ["none", "time"])
def test_one_reused_batch_is_plain(float64, baseline):
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    (taken, params), tracker = sampled(policy, 7, 0), trackers.reused(1)
    estimator = estimators.gpomdp(0.9, baseline)
    here = Here(jax.random.key(0), jnp.asarray(0), params, policy, estimator, True, 3)
    found = tracker.track(here, (Batch(taken, params),), tracker.init(params, blank_of(taken, 3))).gradient
    expected = estimators.gradient(estimator, policy, params, taken)
    np.testing.assert_allclose(ravel_pytree(found)[0], ravel_pytree(expected)[0], rtol=1e-9, atol=1e-12)


# ---- gae


def test_gae_follows_its_definition(float64):
    """Against loops: δ_h = r_h + γ V(s_{h+1}) − V(s_h), with V = 0 after the end, and Σ (γλ)^l δ."""
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, _ = sampled(policy, 9, 3, n=4)
    values = jnp.asarray(np.random.default_rng(5).normal(size=(4, 9))) * taken.mask
    found = estimators.advantage(estimators.gae(0.9, 0.7), taken, jnp.ones((4, 9)), values)
    for i in range(4):
        length, total = int(taken.mask[i].sum()), 0.0
        for h in reversed(range(length)):
            ahead = float(values[i, h + 1]) if h + 1 < length else 0.0
            total = float(taken.reward[i, h]) + 0.9 * ahead - float(values[i, h]) + 0.9 * 0.7 * total
            np.testing.assert_allclose(found[i, h], total, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("horizon", [9, 130], ids=["short", "in blocks"])
def test_values_are_fitted_to_the_other_groups(float64, horizon):
    """Another reward in trajectory i of any batch does not change the values of the i-th trajectories, and changes others.

    The change is small, so that the same ridge is chosen: that one number depends on all groups.
    """
    from stormpg.baselines import state_values

    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, _ = sampled(policy, horizon, 3, n=6)  # two batches of three
    to_come = jnp.asarray(np.random.default_rng(5).normal(size=(6, horizon)))
    before, after = (state_values(taken, x, jnp.array([0.5, 0.0])) for x in (to_come, to_come.at[4].add(1e-3)))
    np.testing.assert_allclose(before[jnp.array([1, 4])], after[jnp.array([1, 4])], rtol=1e-9, atol=1e-12)
    assert float(jnp.abs(before[0, 0] - after[0, 0])) > 1e-8
    assert float(jnp.abs(before * (1 - taken.mask)).max()) == 0


@pytest.mark.parametrize("horizon", [9, 130], ids=["short", "in blocks"])
def test_a_gpu_multiplies_without_rounding_the_factors(horizon):
    """Products whose precision is not given are computed there with ten bits, which makes regressions indefinite."""
    taken, _ = sampled(stormpg.gaussian_mlp(2, 1, hidden=(4,)), horizon, 3, n=6)

    def made(taken):
        values = baselines.state_values(taken, taken.reward, jnp.zeros(2)), baselines.fit_values(taken, taken.reward)
        return values, sums_to_come(taken.reward, GAMMA)

    precisions = [equation.params["precision"] for equation in products(jax.make_jaxpr(made)(taken).jaxpr)]
    assert len(precisions) > 5
    assert set(precisions) == {(jax.lax.Precision.HIGHEST,) * 2}


def products(jaxpr):
    """All matrix products of a traced function."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for inside in jax.tree.leaves(tuple(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inside = getattr(inside, "jaxpr", inside)
            yield from products(inside) if hasattr(inside, "eqns") else ()


def test_values_fit_a_function_of_state_and_time(float64):
    from stormpg.baselines import state_values

    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, _ = sampled(policy, 40, 3, n=20)
    s, t = taken.observation, jnp.arange(40) / 40
    true = 2 * s[..., 0] - 0.3 * s[..., 1] ** 2 + 5 * t**3
    error = (state_values(taken, true, jnp.zeros(1)) - true) * taken.mask
    assert float(jnp.abs(error).mean()) < 0.02


def test_values_do_not_follow_noise(float64, for_platform):
    """If only time tells the rewards to come, few trajectories with many features do not make the values worse than that."""
    from stormpg.baselines import RIDGES, fit_other_groups, state_values

    random = np.random.default_rng(0)
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, _ = sampled(policy, 9, 3, n=6)
    wide = jnp.asarray(np.repeat(random.normal(size=(6, 1, 12)), 9, axis=1))  # states that tell which trajectory it is
    taken = taken._replace(observation=wide, mask=jnp.ones((6, 9)))
    true = jnp.linspace(5, 0, 9) + jnp.asarray(random.normal(size=(6, 1)))
    error = jnp.sqrt(((state_values(taken, true, jnp.array([0.5, 0.0])) - true) ** 2).mean())
    assert float(error) < 1.5
    # The ridge that is used has the smallest error on the groups that were left out.
    x = jnp.asarray(random.normal(size=(3, 20, 8)))
    y = x[..., 0] + jnp.asarray(random.normal(size=(3, 20)))
    gram, moment = jnp.einsum("bif,big->bfg", x, x), jnp.einsum("bif,bi->bf", x, y)
    free = np.arange(8) < 1
    found = fit_other_groups(gram, moment, free)
    errors = []
    for ridge in RIDGES:
        total = 0.0
        for left in range(3):
            G, m = (np.asarray(z).sum(axis=0) - np.asarray(z[left]) for z in (gram, moment))
            unit = 1 + np.trace(G) / 8
            theta = np.linalg.solve(G + np.diag(np.where(free, RIDGES[0], ridge) * unit), m)
            total += float(((y[left] - x[left] @ theta) ** 2).sum())
        errors.append(total)
    chosen = sum(float(((y[b] - x[b] @ found[b]) ** 2).sum()) for b in range(3))
    assert chosen == pytest.approx(min(errors), rel=1e-9)
    assert len({round(e, 9) for e in errors}) == len(RIDGES)


def test_gae_without_signal_is_nearly_zero():
    """If every step of every episode has the same reward, no action was better than another: the policy must stay."""
    policy = stormpg.gaussian_mlp(2, 1, hidden=(4,))
    taken, params = sampled(policy, 500, 3, n=8)
    taken = jax.tree.map(lambda x: x.astype(jnp.float32), taken)
    taken = taken._replace(reward=-jnp.ones((8, 500)), mask=jnp.ones((8, 500)))
    values = estimators._baseline(estimators.gae(0.99), policy, params, taken)
    left = estimators.advantage(estimators.gae(0.99), taken, jnp.ones((8, 500)), values)
    to_come = (1 - 0.99 ** (500 - np.arange(500))) / 0.01
    assert float(jnp.sqrt((left**2).mean())) < blended_module.TINY * np.sqrt((to_come**2).mean()) * 3


# ---- gain


def gained(tracker, weights_explode=False):
    params, other = two_parameters(POLICY)
    far = jax.tree.map(lambda x: 8 * x, other) if weights_explode else other
    every, _ = sampled_by(POLICY, params, small_chain(3))
    batch = jax.tree.map(lambda x: x[5:25:4], every)
    memory = trackers.gain().init(far, None)._replace(gradient={"logits": jnp.ones((3, 2)) * 0.3}, error=jnp.asarray(0.01))
    here = Here(jax.random.key(0), jnp.asarray(1), params, POLICY, ESTIMATORS["gpomdp"](GAMMA), False, 5)
    return tracker.track(here, (Batch(batch, params),), memory), (here, batch, memory)


@pytest.mark.parametrize("alpha", [1.0, 0.4, 0.0])
def test_gain_with_a_fixed_alpha_is_storm(float64, alpha):
    found, (here, batch, memory) = gained(trackers.gain(alpha))
    storm = trackers.storm(alpha).track(here, (Batch(batch, here.params),), trackers.Memory(memory.params, memory.gradient))
    np.testing.assert_allclose(found.gradient["logits"], storm.gradient["logits"], rtol=1e-9, atol=1e-12)


def test_gain_follows_its_equations(float64):
    found, (here, batch, memory) = gained(trackers.gain())
    each = [here.estimate_each(here.params, Batch(batch, here.params))]
    each.append(here.estimate_each(memory.params, Batch(batch, here.params), each[0].baseline))
    D, E = (np.asarray(x.gradient["logits"]).reshape(5, -1) for x in each)
    np.testing.assert_allclose(
        D.mean(0).reshape(3, 2), stormpg.gradient(here.estimator, POLICY, here.params, batch)["logits"], rtol=1e-9, atol=1e-12
    )
    F, V = D - E, 0.01
    s, delta, c = (((a - a.mean(0)) * (b - b.mean(0))).sum() / (5 * 4) for a, b in ((D, D), (F, F), (D, F)))
    kept = np.clip((s - c) / (s + V + delta - 2 * c), 0, 0.99)
    np.testing.assert_allclose(found.info["alpha"], 1 - kept, rtol=1e-9)
    error = (1 - kept) ** 2 * s + kept**2 * (V + delta) + 2 * kept * (1 - kept) * c
    np.testing.assert_allclose(found.memory.error, error, rtol=1e-9)
    # The error is a parabola in α, and smallest at the chosen one.
    others = [a**2 * s + (1 - a) ** 2 * (V + delta) + 2 * a * (1 - a) * c for a in np.linspace(0.01, 1, 50)]
    assert error <= min(others) + 1e-12


def test_exploding_weights_switch_the_memory_off(float64):
    near, far = (float(gained(trackers.gain(), explode)[0].info["alpha"]) for explode in (False, True))
    assert far > near


@pytest.mark.slow
@pytest.mark.parametrize(("gamma", "bias"), [(1.0, 0.0), (0.9, 0.088)])
def test_the_bias_of_discounting_from_each_step_on(float64, gamma, bias):
    assert relative_bias(estimators.gpomdp(gamma, from_now=True), gamma) == pytest.approx(bias, abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gamma", "lam", "bias"), [(1.0, 0.95, 0.035), (1.0, 0.5, 0.110), (1.0, 0.0, 0.201), (0.9, 0.95, 0.070), (0.9, 0.0, 0.203)]
)
def test_the_bias_of_gae(float64, gamma, lam, bias):
    assert relative_bias(estimators.gae(gamma, lam), gamma) == pytest.approx(bias, abs=0.001)


def relative_bias(estimator, gamma):
    """‖E[d] − ∇L‖ / ‖∇L‖ over all batches of two of the smallest chain: what docs/window-npg.md says."""
    every = small_chain(3)
    params, _ = two_parameters(POLICY)
    trajectories, probability = sampled_by(POLICY, params, every)
    mean = lambda batch: estimators.estimate(estimator, POLICY, params, batch, on_policy=True).gradient
    found = ravel_pytree(expectation_over_batches(mean, trajectories, probability, 2))[0]
    true = ravel_pytree(jax.grad(lambda x: objective(POLICY, x, every, gamma))(params))[0]
    return float(jnp.linalg.norm(found - true) / jnp.linalg.norm(true))

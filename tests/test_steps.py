"""Steps: optax with decay, Papini's two optimisers, the natural gradient."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import stormpg
from stormpg import steps
from stormpg.contract import Here, Tracked
from stormpg.errors import InputError
from stormpg.pytrees import norm
from stormpg.steps.natural import Divergence, divergence_on, inverse_fisher
from stormpg.trajectories import Batch, Trajectories


def at(params, large=True):
    """A `Here` with only the fields that an optax step uses."""
    return Here(None, None, params, None, None, large, 1)


def tracked(g):
    return Tracked(g, (), None)


def follow(step, gradients, large=lambda t: True, params=None):
    params = jnp.asarray([1.0, -2.0]) if params is None else params
    state, path = step.init(params), []
    for t, g in enumerate(gradients):
        params, state = step.apply(at(params, large(t)), tracked(jnp.asarray(g)), state)
        path.append(np.asarray(params))
    return path


GRADIENTS = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)


def test_ascends_with_exponential_decay():
    path = follow(steps.optax_step(0.1, "sgd", decay=0.5, decay_every=2), GRADIENTS)
    expected = np.array([1.0, -2.0]) + np.cumsum([0.1 * 0.5 ** (t / 2) * g for t, g in enumerate(GRADIENTS)], axis=0)
    np.testing.assert_allclose(path, expected, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", optax.adamw, lambda rate: optax.sgd(rate, momentum=0.9)])
def test_any_optax_optimiser(optimizer):
    ours = follow(steps.optax_step(0.1, optimizer), GRADIENTS)
    theirs, params = (getattr(optax, optimizer) if isinstance(optimizer, str) else optimizer)(0.1), jnp.asarray([1.0, -2.0])
    state = theirs.init(params)
    for g, mine in zip(GRADIENTS, ours, strict=True):
        updates, state = theirs.update(-jnp.asarray(g), state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(mine, params, rtol=1e-5)


def test_two_optimisers_keep_their_own_history():
    """Large batches (even t) and small ones each have their own Adam, which never sees the other's gradients."""
    path = np.array(follow(steps.optax_step(0.1, separate=True, inner_rate=0.5), GRADIENTS, lambda t: t % 2 == 0))
    moves = np.diff(path, axis=0, prepend=[[1.0, -2.0]])
    large = np.diff(follow(steps.optax_step(0.1), GRADIENTS[::2]), axis=0, prepend=[[1.0, -2.0]])
    small = np.diff(follow(steps.optax_step(0.05), GRADIENTS[1::2]), axis=0, prepend=[[1.0, -2.0]])
    np.testing.assert_allclose(moves[::2], large, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(moves[1::2], small, rtol=1e-4, atol=1e-6)


def quadratic(slope, curvature):
    """A surrogate with a linear objective and the divergence of a Gaussian around 0: KL = ½ ξᵀFξ."""
    matrix = jnp.asarray(curvature)
    divergence = Divergence(lambda p: 0.5 * p @ matrix @ p, lambda: lambda v: matrix @ v)
    return steps.Surrogate(lambda p: jnp.asarray(slope) @ p, divergence)


@pytest.mark.parametrize("size", [6, 2])
def test_natural_gradient_points_along_the_solution(size):
    """s = F⁻¹ g, for a batch of runs at once. With 2 parameters, the solver converges after 2 of its 10 iterations."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(size, size))
    matrix = root @ root.T + np.eye(size)
    slopes = rng.normal(size=(3, size)) * np.array([[1.0], [1e-3], [1e3]])
    step = steps.natural_gradient(1e-6, damping=1e-9)
    move = jax.vmap(lambda g: step.within(quadratic(g, matrix), g, jnp.zeros_like(g)))
    for moved, slope in zip(move(jnp.asarray(slopes)), slopes, strict=True):
        exact = np.linalg.solve(matrix, slope)
        np.testing.assert_allclose(moved / np.linalg.norm(moved), exact / np.linalg.norm(exact), atol=1e-3)


def test_no_gradient_no_natural_step():
    step = steps.natural_gradient(0.01)
    moved = step.within(quadratic([1.0, 0.0], np.eye(2)), jnp.zeros(2), jnp.ones(2))
    np.testing.assert_array_equal(moved, 1.0)


def test_natural_gradient_is_the_trust_regions_edge():
    """For a linear objective, the step is F⁻¹g scaled to KL = δ."""
    slope, curvature, delta = [1.0, 2.0], np.diag([4.0, 0.5]), 0.02
    step = steps.natural_gradient(delta, damping=1e-9)
    moved = step.within(quadratic(slope, curvature), jnp.asarray(slope), jnp.zeros(2))
    direction = np.linalg.solve(curvature, slope)
    np.testing.assert_allclose(moved / np.linalg.norm(moved), direction / np.linalg.norm(direction), rtol=1e-4)
    kl = float(quadratic(slope, curvature).divergence.value(moved))
    # Rounding may put the edge outside the region; then the step is halved, and KL is δ/4.
    assert min(abs(kl - delta), abs(kl - delta / 4)) < 1e-5


def test_natural_gradient_does_not_step_downhill():
    """If no step length improves the surrogate, the parameters do not change."""
    step = steps.natural_gradient(0.01)
    moved = step.within(quadratic([-1.0, 0.0], np.eye(2)), jnp.asarray([1.0, 0.0]), jnp.zeros(2))
    np.testing.assert_array_equal(moved, 0.0)


def test_norm_of_trees():
    assert float(norm({"a": 2 * jnp.ones(3), "b": jnp.ones((2, 2))})) == 4.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eta": 0.0}, "eta is 0.0"),
        ({"eta": -1.0}, "eta is -1.0"),
        ({"eta": 0.1, "decay": 0.0}, "decay is 0.0"),
        ({"eta": 0.1, "decay_every": 0}, "decay_every is 0"),
        ({"eta": 0.1, "optimizer": "adom"}, "did you mean 'adam'"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(InputError, match=message):
        steps.optax_step(**arguments)


def test_steps_are_traced():
    """The rate may be a tracer, so a batch of rates is one program."""
    params = jax.vmap(
        lambda eta: steps.optax_step(eta).apply(
            at(jnp.zeros(2)), tracked(jnp.ones(2)), steps.optax_step(eta).init(jnp.zeros(2))
        )[0]
    )
    np.testing.assert_allclose(params(jnp.asarray([0.1, 0.2]))[:, 0], [0.1, 0.2], rtol=1e-5)


def test_a_tracker_may_set_the_rate():
    """The length of an optax step is multiplied by the rate from the tracker."""
    step, params = steps.optax_step(0.1, "sgd"), jnp.asarray([1.0, -2.0])
    moved, _ = step.apply(at(params), tracked(jnp.ones(2))._replace(rate=jnp.asarray(0.5)), step.init(params))
    np.testing.assert_allclose(moved, params + 0.05, rtol=1e-6)


def test_an_optimizer_that_fails_says_why():
    with pytest.raises(InputError, match=r"failed \(TypeError: .*expected a function from an optax schedule"):
        steps.optax_step(0.1, lambda rate: optax.sgd(0.5 * rate))
    own = steps.optax_step(0.1, optax.sgd(0.5))  # a transformation has its own rate
    moved, _ = own.apply(at(jnp.zeros(2)), tracked(jnp.ones(2)), own.init(jnp.zeros(2)))
    np.testing.assert_allclose(moved, 0.5)


# ---- the natural direction, and a trust region around any step


POLICY = stormpg.gaussian_mlp(2, 1, hidden=(3,), learn_sigma=True)


def seen(horizon=8, n=4):
    """A batch of random states, with episodes of different lengths."""
    random = np.random.default_rng(0)
    mask = jnp.asarray((np.arange(horizon) < random.integers(2, horizon + 1, n)[:, None]).astype(float))
    observation, action = random.normal(size=(n, horizon, 2)), random.normal(size=(n, horizon, 1))
    zeros = jnp.zeros((n, horizon))
    return Trajectories(jnp.asarray(observation), jnp.asarray(action), zeros, mask, zeros)


def standing(estimator=None):
    params = POLICY.init(jax.random.key(0))
    return Here(None, None, params, POLICY, estimator, True, 4)


def some_gradient(params, scale=1.0):
    flat, unravel = ravel_pytree(params)
    return unravel(scale * jnp.asarray(np.random.default_rng(1).normal(size=len(flat))))


def mean_kl(here, moved, taken):
    """By a loop over all states."""
    total = [
        float(POLICY.kl(here.params, moved, taken.observation[i, h]))
        for i, h in zip(*np.nonzero(np.asarray(taken.mask)), strict=True)
    ]
    return np.mean(total)


def test_the_natural_direction_solves_the_damped_system(float64):
    """(F + damping) s = g, with F the dense Hessian of the mean KL divergence."""
    here, taken = standing(), seen()
    g = some_gradient(here.params)
    flat, unravel = ravel_pytree(here.params)
    every = jax.vmap(jax.vmap(POLICY.kl, (None, None, 0)), (None, None, 0))
    value = lambda x: (every(here.params, unravel(x), taken.observation) * taken.mask).sum() / taken.mask.sum()
    F = np.asarray(jax.hessian(value)(flat))
    expected = 0.5 * np.linalg.solve(F + 0.1 * np.eye(len(flat)), ravel_pytree(g)[0])
    step = dataclasses.replace(steps.natural(0.5, 0.1, stride=1), iterations=100)
    moved, _ = step.apply(here, Tracked(g, (), Batch(taken, here.params)), ())
    np.testing.assert_allclose(ravel_pytree(moved)[0] - flat, expected, rtol=1e-6, atol=1e-9)


def test_the_natural_direction_looks_at_the_states_the_tracker_offers(float64):
    here, taken = standing(), seen()
    g, others = some_gradient(here.params), jax.tree.map(lambda x: 2 * x, taken)._replace(mask=taken.mask)
    step = steps.natural(0.5, 0.1, stride=2)
    moved = [
        step.apply(here, Tracked(g, (), Batch(one, here.params), states=states), ())[0]
        for one, states in ((taken, None), (others, Batch(taken, None)), (taken, Batch(others, None)))
    ]
    flat = [np.asarray(ravel_pytree(x)[0]) for x in moved]
    np.testing.assert_array_equal(flat[0], flat[1])
    assert np.abs(flat[0] - flat[2]).max() > 1e-6


@pytest.mark.parametrize("inner", [steps.optax_step(1.0, "sgd"), steps.natural(10.0)], ids=["sgd", "natural"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("rate", [None, 0.3])
def test_a_step_stays_within_its_trust_region(float64, inner, scale, rate):
    """κ nats a trajectory, by the exact divergence after the step; and a short step is not changed."""
    here, taken = standing(), seen()
    g, batch = some_gradient(here.params, scale), Batch(taken, here.params)
    factor = None if rate is None else jnp.asarray(rate)
    plain, _ = inner.apply(here, Tracked(g, (), batch), inner.init(here.params))
    step = steps.within(inner, kappa=0.5)
    moved, _ = step.apply(here, Tracked(g, (), batch, rate=factor), step.init(here.params))
    length = float(taken.mask.sum() / 4)
    limit = 0.5 * (rate or 1.0) ** 2
    assert mean_kl(here, moved, taken) * length <= limit * (1 + 1e-9)
    if mean_kl(here, plain, taken) * length <= limit:
        np.testing.assert_array_equal(ravel_pytree(moved)[0], ravel_pytree(plain)[0])
    else:  # shortened, along the same line, and not more than needed
        assert mean_kl(here, moved, taken) * length > 0.5 * limit
        before, wanted, got = (np.asarray(ravel_pytree(x)[0]) for x in (here.params, plain, moved))
        cosine = (wanted - before) @ (got - before) / np.linalg.norm(wanted - before) / np.linalg.norm(got - before)
        assert cosine > 1 - 1e-9


def test_the_region_holds_after_the_policy_has_limited_the_step(float64):
    """A σ that may not grow as far as the step wants makes the same change of the mean a larger divergence."""
    policy = stormpg.gaussian_mlp(2, 1, hidden=(3,), learn_sigma=True, sigma_step=1e-3)
    params, taken = policy.init(jax.random.key(0)), seen()
    here = Here(None, None, params, policy, None, True, 4)
    g = {**some_gradient(params, 1e3), "log_sigma": jnp.full(1, 3e3)}
    moved, _ = steps.within(steps.optax_step(1.0, "sgd"), 0.5).apply(
        here, Tracked(g, (), Batch(taken, params)), steps.optax_step(1.0, "sgd").init(params)
    )
    np.testing.assert_array_equal(policy.limit_step(params, moved, taken.mask.sum())["log_sigma"], moved["log_sigma"])
    assert 0.25 < mean_kl(here, moved, taken) * float(taken.mask.sum() / 4) <= 0.5


def test_large_batches_have_a_larger_trust_region(float64):
    """δ nats a step for every 1000 steps of the new batch, at most 0.3, if that is more than κ nats a trajectory."""
    here, taken = standing(), seen()
    g, batch = some_gradient(here.params, 1e3), Batch(taken, here.params)
    found, thousands = [], float(taken.mask.sum()) / 1000
    for kappa, delta in ((0.5, 0.0), (0.5, 1e-3), (1e-6, 0.04 / thousands), (1e-6, 1e6)):
        moved, _ = steps.within(steps.natural(), kappa, delta).apply(here, Tracked(g, (), batch), ())
        found.append(mean_kl(here, moved, taken))
    np.testing.assert_array_equal(found[0], found[1])
    assert 0.02 < found[2] <= 0.04
    assert 0.15 < found[3] <= 0.3


def test_a_trust_region_has_a_limit_for_short_episodes(float64):
    """κ nats a trajectory, but at most `per_step` nats a step."""
    here, taken = standing(), seen()
    g, batch = some_gradient(here.params, 1e3), Batch(taken, here.params)
    length = float(taken.mask.sum()) / len(taken.mask)
    for per_step, limit in ((0.02, 0.02), (10.0, 0.5 / length)):
        moved, _ = steps.within(steps.natural(), 0.5, per_step=per_step).apply(here, Tracked(g, (), batch), ())
        assert 0.5 * limit < mean_kl(here, moved, taken) <= limit


@pytest.mark.parametrize("scale", [1e-10, 1e-13, 1e-16, 1e-30])
def test_the_direction_of_a_tiny_gradient_is_that_of_a_large_one(scale):
    """In float32 the squares of its residuals would be 0."""
    policy = stormpg.gaussian_mlp(2, 1, hidden=(3,))
    params = policy.init(jax.random.key(0))
    taken = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), seen())
    here = Here(None, None, params, policy, None, True, 4)
    fisher = divergence_on(here, taken).fisher()
    large, tiny = (
        ravel_pytree(inverse_fisher(fisher, some_gradient(params, size), jnp.float32(0.1), 10)[0])[0] / size
        for size in (1.0, scale)
    )
    np.testing.assert_allclose(tiny, large, rtol=1e-3, atol=1e-4 * float(jnp.abs(large).max()))


def test_a_trust_region_needs_no_derivative_of_the_divergence(float64):
    """That of a policy of the user may contain a loop, which JAX cannot differentiate backwards."""

    here, taken = standing(), seen()
    kind = type(here.policy)

    class Looping(kind):
        def kl(self, params, other, observation):
            once = lambda carried: (carried[0] + 1, kind.kl(self, params, other, observation))
            return jax.lax.while_loop(lambda carried: carried[0] < 1, once, (0, jnp.zeros(())))[1]

    step = steps.within(steps.optax_step(1.0, "sgd"), 0.5)
    tracked = Tracked(some_gradient(here.params, 1.0), (), Batch(taken, here.params))
    looping = dataclasses.replace(here, policy=Looping(**vars(here.policy)))
    moved = [ravel_pytree(step.apply(one, tracked, step.init(here.params))[0])[0] for one in (here, looping)]
    np.testing.assert_allclose(*moved, rtol=1e-12)


def test_settings_of_trust_regions_are_checked():
    for wrong in (lambda: steps.within(steps.natural(), 0.0), lambda: steps.natural(damping=-1), lambda: steps.natural(0)):
        with pytest.raises(InputError, match="above 0"):
            wrong()

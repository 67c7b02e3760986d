"""Steps of unit length, within a radius, clipped, mirrored and averaged, against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import steps
from stormpg.contract import Here, Tracked
from stormpg.errors import InputError
from stormpg.steps.maps import link
from stormpg.trajectories import Batch, Trajectories

BATCH = Batch(Trajectories(*(jnp.zeros((1, 1)) for _ in range(5))), None)


@pytest.fixture
def point(float64):
    """ξ_t and g_t, as vectors of two leaves."""
    random = np.random.default_rng(0)
    return tuple({"a": jnp.asarray(random.normal(size=3)), "b": jnp.asarray(random.normal(size=2))} for _ in range(2))


def flat(tree):
    return np.concatenate([tree["a"], tree["b"]])


def move(step, params, gradient, rate=None, times=1):
    """ξ after some steps along the same g."""
    state = step.init(params)
    for _ in range(times):
        here = Here(jax.random.key(0), jnp.asarray(0), params, None, stormpg.estimators.gpomdp(0.9), False, 1)
        params, state = step.apply(here, Tracked(gradient, (), BATCH, rate=rate), state)
    return flat(params)


def test_a_normalised_step_has_its_length(point):
    params, g = point
    expected = flat(params) + 0.3 * flat(g) / np.linalg.norm(flat(g))
    np.testing.assert_allclose(move(steps.normalised(0.3), params, g), expected)
    half = move(steps.normalised(0.3), params, g, rate=jnp.asarray(0.5))
    np.testing.assert_allclose(half - flat(params), (expected - flat(params)) / 2)
    nothing = jax.tree.map(jnp.zeros_like, g)
    np.testing.assert_array_equal(move(steps.normalised(0.3), params, nothing), flat(params))


@pytest.mark.parametrize("delta", [0.05, 1e3])
def test_a_radius(point, delta):
    """TSIVR-PG: ξ + η g if that is within δ, and otherwise a step of length δ. It holds after the optimiser, not before it."""
    params, g = point
    for optimizer in ("sgd", "adam"):
        plain = move(steps.optax_step(0.1, optimizer), params, g) - flat(params)
        found = move(steps.radius(steps.optax_step(0.1, optimizer), delta), params, g) - flat(params)
        np.testing.assert_allclose(found, plain * min(1, delta / np.linalg.norm(plain)))


def test_clipped_components(point):
    params, g = point
    found = move(steps.clipped(steps.optax_step(0.1, "sgd"), 0.2), params, g) - flat(params)
    np.testing.assert_allclose(found, 0.1 * np.clip(flat(g), -0.2, 0.2))


def test_mirror_steps(point):
    params, g = point
    euclidean = flat(params) + 0.2 * flat(g)
    np.testing.assert_allclose(move(steps.mirror(0.2), params, g), euclidean)
    np.testing.assert_allclose(move(steps.mirror(0.2, "p-norm", 2.0), params, g), euclidean)
    halfway = move(steps.mirror(0.2), params, g, rate=jnp.asarray(0.5))
    np.testing.assert_allclose(halfway, (flat(params) + euclidean) / 2)
    # With the same g every time, the bias-corrected mean of its squares is g².
    diagonal = move(steps.mirror(0.2, "diagonal"), params, g, times=3)
    np.testing.assert_allclose(diagonal, flat(params) + 0.6 * flat(g) / (np.abs(flat(g)) + 1e-8), rtol=1e-6)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_a_mirror_step_maximises_its_model(point, p):
    """⟨g, ξ⟩ − D_ψ(ξ, ξ_t)/λ with ψ = ½‖·‖_p²: its gradient is 0 at ξ̃. Links of p and q are inverse."""
    params, g = point
    found = jnp.asarray(move(steps.mirror(0.2, "p-norm", p), params, g))
    psi = lambda x: 0.5 * (jnp.abs(x) ** p).sum() ** (2 / p)
    slope = jnp.asarray(flat(g)) - (jax.grad(psi)(found) - jax.grad(psi)(jnp.asarray(flat(params)))) / 0.2
    np.testing.assert_allclose(slope, 0, atol=1e-9)
    np.testing.assert_allclose(flat(link(link(params, jnp.asarray(p)), jnp.asarray(p / (p - 1)))), flat(params), rtol=1e-9)


def test_averaging_and_a_penalty(point):
    """ξ_{t+1} = (1 − s) ξ_t + s prox(ξ_t + η g_t), where prox minimises ½‖x − ξ‖² + ½ penalty ‖x‖²."""
    params, g = point
    found = move(steps.averaged(steps.optax_step(0.1, "sgd"), 0.7, 0.25), params, g)
    np.testing.assert_allclose(found, 0.3 * flat(params) + 0.7 * (flat(params) + 0.1 * flat(g)) / 1.25)


def test_wrong_settings():
    for bad in (lambda: steps.normalised(0), lambda: steps.mirror(0.1, "p-norm", 1.0), lambda: steps.mirror(0.1, "other")):
        with pytest.raises(InputError):
            bad()
    with pytest.raises(InputError, match="share is 0"):
        steps.averaged(steps.optax_step(0.1), 0)

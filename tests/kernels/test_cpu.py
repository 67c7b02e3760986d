"""What only the CPU kernels have: C from any function of scalars, derivatives, and activations that are kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import kernels
from stormpg.envs import make
from stormpg.envs.base import Box, Environment
from stormpg.errors import StormpgWarning
from stormpg.estimators import estimate, gpomdp
from stormpg.kernels import cpu, keeping, libraries
from stormpg.policies.constructors import policy_for
from stormpg.sampling.rollouts import rollout
from stormpg.scores import log_probs_in_blocks, score_sum

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu" or libraries.compiler() is None, reason="needs a CPU and a C compiler"
)


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


@pytest.fixture
def case():
    env = make("cartpole-continuous")
    policy = policy_for(env)
    params = policy.init(jax.random.key(3))
    return env, policy, params, rollout(env, policy, params, jax.random.key(1), 5, 60, keep=True)


def close(ours, theirs, rtol=1e-4):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max()), ours, theirs)


def arithmetic(key, state, action):
    """A step of numbers of every kind, and of every operation."""
    x, count, flag = state
    y = x + action
    whole = jnp.floor(y).astype(jnp.int32) + count
    total = jax.lax.fori_loop(0, 3, lambda i, total: total + jnp.where(i == 1, y, x), jnp.zeros_like(x))
    parts = [
        *(jnp.abs(y), jnp.arctan2(y, x), jnp.ceil(y), jnp.clip(y, -0.5, 0.5), jnp.exp(-y * y), jnp.exp2(y)),
        *(jnp.expm1(-jnp.abs(y)), jnp.log(1 + y * y), jnp.log1p(y * y), jax.nn.sigmoid(y), jnp.maximum(x, y)),
        *(jnp.minimum(x, y), (1 + y * y) ** 1.5, y**3, (2 + x * x) ** -2, jnp.fmod(y, 0.3), jax.lax.rsqrt(1 + y * y)),
        *(jnp.sign(y), jnp.square(x), jnp.tan(0.5 * jnp.sin(y)), jnp.tanh(y), jnp.sqrt(y * y), jnp.cos(x), -y, total),
        *(jnp.where(flag, x, y), jnp.isfinite(y).astype(jnp.float32), (whole % 3).astype(jnp.float32)),
        *(((whole & 3) | 4).astype(jnp.float32), jnp.abs(whole).astype(jnp.float32)),
    ]
    mixed = jnp.sin(sum(0.1 * part for part in parts))
    after = (mixed, jnp.clip(whole, -5, 5) ^ 1, ~flag & (y > x))
    return after, jnp.concatenate((mixed, x)), mixed[0] + after[1][0].astype(jnp.float32), (y[0] > 3) | (y[0] < -3)


def test_every_operation_is_the_same_in_c(monkeypatch):
    start = lambda key: ((jnp.full(1, 0.3), jnp.zeros(1, jnp.int32), jnp.ones(1, bool)), jnp.full(2, 0.3))
    env = Environment("arithmetic", start, arithmetic, Box((2,)), Box((1,)), horizon=12)
    policy = policy_for(env, hidden=(20,))  # not a multiple of a vector
    params = policy.init(jax.random.key(0))
    of_both = []
    for switch in ("1", "0"):
        monkeypatch.setenv("STORMPG_FUSED", switch)
        of_both.append(jax.jit(lambda params: rollout(env, policy, params, jax.random.key(1), 19, 12))(params))
    ours, theirs = of_both
    np.testing.assert_array_equal(ours.mask, theirs.mask)
    assert 0 < theirs.mask[:, -1].sum() < 19  # some episodes have ended, and more than one group of lanes is used
    for a, b in zip(ours, theirs, strict=True):
        live = np.reshape(theirs.mask, theirs.mask.shape + (1,) * (b.ndim - 2)) > 0
        np.testing.assert_allclose(np.where(live, a, 0), np.where(live, b, 0), rtol=2e-3, atol=2e-3)


def test_a_nan_stays_one(case):
    _, policy, params, batch = case
    broken = jax.tree.map(lambda x: x.at[0].set(jnp.nan), params)
    assert np.isnan(log_probs_in_blocks(policy, broken, batch)[batch.mask > 0]).all()
    assert not np.isfinite(jax.tree.leaves(score_sum(policy, broken, batch, batch.mask))[0]).all()


def test_a_saturated_unit_has_no_slope(case):
    """Otherwise the gradient of a run whose numbers explode would be infinite instead of 0."""
    _, policy, params, batch = case
    (first, last) = params["mean"]
    far = {"mean": [{**first, "bias": jnp.linspace(-50, 50, 64)}, last]}  # no unit is near the edge of saturation
    slope = score_sum(policy, far, batch, 1e20 * batch.mask)["mean"][0]["bias"]
    saturated = np.abs(np.linspace(-50, 50, 64)) > 12
    assert (slope[saturated] == 0).all()
    assert (slope[np.abs(np.linspace(-50, 50, 64)) < 7] != 0).all()


def test_derivatives_are_those_of_plain_jax(case, monkeypatch):
    _, policy, params, batch = case
    other = jax.tree.map(lambda x: x + 0.05, params)
    d = lambda params: estimate(gpomdp(0.99), policy, params, batch).gradient
    size = lambda params: sum((x * x).sum() for x in jax.tree.leaves(d(params)))
    found = []
    for switch in ("1", "0"):
        monkeypatch.setenv("STORMPG_FUSED", switch)
        found.append((jax.jvp(d, (other,), (params,)), jax.grad(size)(other)))
    close(*found)


def test_activations_are_kept_for_the_same_parameters_and_trajectories(case, monkeypatch):
    _, policy, params, batch = case
    kept = keeping.recall(params, batch)
    assert kept is not None
    assert keeping.recall(params, batch._replace(action=batch.action + 0)) is None
    assert keeping.recall(jax.tree.map(jnp.copy, params), batch) is None
    ours = score_sum(policy, params, batch, batch.reward)
    close(ours, cpu.score_sum(policy, params, batch, batch.reward)[0], 1e-5)  # computed again
    other = jax.tree.map(lambda x: x + 0.1, params)
    log_probs_in_blocks(policy, other, batch)
    assert keeping.recall(other, batch) is None
    log_probs_in_blocks(policy, other, batch, keep=True)
    close(score_sum(policy, other, batch, batch.reward), cpu.score_sum(policy, other, batch, batch.reward)[0], 1e-5)
    monkeypatch.setattr(keeping, "MOST", 10)
    assert cpu.log_probs(policy, other, batch, keep=True)[1] is None


def test_what_is_kept_goes_with_the_trajectories(case):
    env, policy, params, _ = case
    before = len(keeping._kept)
    batch = rollout(env, policy, params, jax.random.key(2), 5, 60, keep=True)
    assert len(keeping._kept) == before + 1
    del batch
    assert len(keeping._kept) == before


def test_observations_that_are_no_floats_are_left_to_plain_jax():
    seen = lambda count: jnp.stack((count, 2 * count))
    start = lambda key: (jnp.ones((), jnp.int32), seen(jnp.ones((), jnp.int32)))
    step = lambda key, count, action: (count + 1, seen(count + 1), action[0], count > 5)
    env = Environment("counting", start, step, Box((2,)), Box((1,)), horizon=10)
    policy = policy_for(env, hidden=(8,))
    params = policy.init(jax.random.key(0))
    batch = rollout(env, policy, params, jax.random.key(1), 3, 10)
    np.testing.assert_array_equal(batch.observation[:, 3], np.tile([4, 8], (3, 1)))
    one = policy.log_prob(params, batch.observation[1, 3].astype(float), batch.action[1, 3])
    np.testing.assert_allclose(log_probs_in_blocks(policy, params, batch)[1, 3], one, rtol=1e-5)


def test_sums_over_time():
    x = jax.random.normal(jax.random.key(0), (3, 7, 40))
    for backward, plain in ((False, jnp.cumsum(x, axis=-1)), (True, jnp.cumsum(x[..., ::-1], axis=-1)[..., ::-1])):
        sums = jax.vmap(lambda x, backward=backward: kernels.running_sums(x, backward))
        np.testing.assert_allclose(sums(x), plain, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(jax.jvp(sums, (x,), (x,))[1], plain, rtol=1e-5, atol=1e-5)


def test_a_compiler_that_refuses_is_reported_once(case, monkeypatch, tmp_path):
    _, policy, params, batch = case
    monkeypatch.setattr(libraries, "folder", lambda: tmp_path)
    monkeypatch.setattr(libraries, "FLAGS", ("-no-such-flag",))
    monkeypatch.setattr(kernels, "_told", set())
    libraries.machine.cache_clear()
    with pytest.warns(StormpgWarning, match="plain JAX is used instead of the kernels: .* refused"):
        plain = log_probs_in_blocks(policy, params, batch)
    np.testing.assert_allclose(log_probs_in_blocks(policy, params, batch), plain)  # a second warning would fail the test
    libraries.machine.cache_clear()
    assert not list(tmp_path.iterdir())


def test_a_damaged_library_is_reported(case, monkeypatch, tmp_path):
    _, policy, params, batch = case
    plain = log_probs_in_blocks(policy, params, batch)
    monkeypatch.setattr(libraries, "folder", lambda: tmp_path)
    monkeypatch.setattr(libraries, "_loaded", {})
    monkeypatch.setattr(kernels, "_told", set())
    source = cpu.of_a_batch(policy, params, batch)
    monkeypatch.setattr(libraries, "built", lambda source, key: tmp_path / f"{key}.so")
    (tmp_path / f"{libraries.prepare(source)[0]}.so").write_bytes(b"not a library")
    monkeypatch.setattr(libraries, "_loaded", {})
    with pytest.warns(StormpgWarning, match="cannot be used .* delete it"):
        np.testing.assert_allclose(log_probs_in_blocks(policy, params, batch), plain, rtol=1e-5, atol=1e-5)


def test_a_cache_folder_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    libraries.folder.cache_clear()
    assert libraries.folder().is_dir()
    libraries.folder.cache_clear()


@pytest.mark.slow
def test_training_is_the_same_with_and_without_kernels(monkeypatch):
    results = []
    for switch in ("1", "0"):
        monkeypatch.setenv("STORMPG_FUSED", switch)
        jax.clear_caches()
        stormpg.engine.compiled_loop.chunk.kept.clear()
        results.append(stormpg.train("cartpole-continuous", stormpg.storm_pg(S0=10, B=5), 60, seeds=3))
    jax.clear_caches()
    for name in ("return", "steps"):
        np.testing.assert_allclose(*(result.columns[name] for result in results), rtol=1e-3)

"""Kernels for the network of any policy: the same numbers as plain JAX, for every density.

Those for a GPU are compiled on a GPU, else interpreted.
"""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stormpg
from stormpg import kernels
from stormpg.contract import Here
from stormpg.envs.base import Box, Environment, MultiDiscrete
from stormpg.kernels import keeping, libraries, rows, rows_cpu, rows_gpu
from stormpg.policies.constructors import censor, multi_categorical_mlp
from stormpg.policies.normalisation import Normalised, Seen
from stormpg.pytrees import stack, traceable
from stormpg.scores import log_probs_in_blocks, score_sum, score_sums
from stormpg.steps.natural import divergence_on
from stormpg.trajectories import RUNS, Batch, Trajectories

N, INPUTS = 6, 3
GAUSSIAN = functools.partial(stormpg.gaussian_mlp, INPUTS, 2, hidden=(20,), learn_sigma=True, sigma=0.7)  # not whole vectors
CENSORED = censor(GAUSSIAN(), np.array([-0.5, -np.inf]), np.array([0.5, 0.3]))
POLICIES = {
    "gaussian": GAUSSIAN(),
    "scaled": GAUSSIAN(low=-3.0, high=1.0),
    "fixed-sigma": stormpg.gaussian_mlp(INPUTS, 2, hidden=(20,)),
    "categorical": stormpg.categorical_mlp(INPUTS, 4, hidden=(20,)),
    "several-choices": multi_categorical_mlp(INPUTS, (3, 2), hidden=(20,)),
    "censored": CENSORED,
    "normalised": Normalised(CENSORED, INPUTS),
    "normalised-large": Normalised(stormpg.categorical_mlp(INPUTS, 4, hidden=(20,)), INPUTS, only_large=True),
}
ON_A_CPU = jax.default_backend() == "cpu"
COMPILED = pytest.mark.skipif(not (ON_A_CPU and libraries.compiler()), reason="needs a CPU and a C compiler")
# On a CPU the kernels for a GPU are interpreted, which takes seconds. Three policies are enough: their densities are plain JAX.
ON_A_GPU = ("gaussian", "several-choices", "normalised") if ON_A_CPU else POLICIES
EVERY_POLICY = pytest.mark.parametrize(
    ("module", "policy"),
    [
        *(pytest.param(rows_gpu, POLICIES[name], marks=pytest.mark.slow, id=f"gpu-{name}") for name in ON_A_GPU),
        *(pytest.param(rows_cpu, policy, marks=COMPILED, id=f"cpu-{name}") for name, policy in POLICIES.items()),
    ],
    indirect=["module"],
)


@pytest.fixture(
    autouse=True,
    params=[pytest.param(rows_gpu, marks=pytest.mark.slow), pytest.param(rows_cpu, marks=COMPILED)],
    ids=["gpu", "cpu"],
)
def module(request, monkeypatch):
    """The module with the kernels of the network."""
    monkeypatch.setattr(rows, "network_kernels", lambda: request.param)
    if ON_A_CPU and libraries.compiler() is None:
        monkeypatch.setattr(kernels, "enabled", lambda: os.environ.get("STORMPG_FUSED") != "0")
    return request.param


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False), jax.default_matmul_precision("highest"):  # plain JAX multiplies in TF32 on a GPU otherwise
        yield


def parameters(policy, seed=0):
    params = policy.init(jax.random.key(seed))
    if isinstance(policy, Normalised):
        params["seen"] = Seen(jnp.float32(10), jnp.array([0.2, -1.0, 0.0]), jnp.array([8.0, 90.0, 1e3]))
    return params


def batch(policy, params, horizon=37):
    """Trajectories of several lengths, one of them a single step, and garbage after their ends."""
    keys = jax.random.split(jax.random.key(7), 3)
    observation = 2 * jax.random.normal(keys[0], (N, horizon, INPUTS))
    act = jax.vmap(jax.vmap(policy.sample, (None, 0, 0)), (None, 0, 0))
    action = act(params, jax.random.split(keys[1], (N, horizon)), observation)
    length = jnp.array([horizon, 1, 16, 17, 5, horizon - 1])
    mask = (jnp.arange(horizon) < length[:, None]).astype(jnp.float32)
    return Trajectories(observation, action, jax.random.normal(keys[2], mask.shape), mask, mask)


def both(monkeypatch, function, *arguments):
    """The results by kernels and by plain JAX, in compiled programs."""
    made = []
    for switch in ("1", "0"):
        monkeypatch.setenv("STORMPG_FUSED", switch)
        made.append(jax.jit(lambda *given: function(*given))(*arguments))
    return made


def same(ours, theirs, rtol=2e-5):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=rtol * max(1.0, float(jnp.abs(b).max())))


@EVERY_POLICY
@pytest.mark.parametrize("horizon", [37, 120])  # below and above `scores.SHORT`
def test_probabilities_and_sums_of_scores(policy, horizon, monkeypatch):
    params = parameters(policy)
    taken, other = batch(policy, params, horizon), jax.tree.map(lambda x: x + 0.05, params)
    coefficients = jax.random.normal(jax.random.key(2), (2, *taken.mask.shape)) * taken.mask
    assert kernels.of("score_sums", policy, other) is rows.score_sums

    def made(other, taken, coefficients):
        of_one = score_sum(policy, other, taken, coefficients[0])
        return log_probs_in_blocks(policy, other, taken), of_one, score_sums(policy, other, taken, coefficients, 3)

    same(*both(monkeypatch, made, other, taken, coefficients))


@EVERY_POLICY
def test_divergences_and_products_with_the_fisher_matrix(policy, monkeypatch):
    params = parameters(policy)
    taken = batch(policy, params)
    random = np.random.default_rng(3)
    direction = jax.tree.map(lambda x: jnp.asarray(random.normal(size=x.shape), jnp.float32), params)
    if isinstance(policy, Normalised):  # a step does not move the statistics
        direction["seen"] = jax.tree.map(jnp.zeros_like, params["seen"])

    def made(params, taken, direction):
        divergence = divergence_on(Here(None, None, params, policy, None, True, 4), taken)
        moved = jax.tree.map(lambda x, v: x + 0.1 * v, params, direction)
        return divergence.value(params), divergence.value(moved), divergence.fisher()(direction)

    ours, theirs = both(monkeypatch, made, params, taken, direction)
    assert theirs[1] > 1e-3
    same(ours, theirs)


@EVERY_POLICY
@pytest.mark.parametrize("baseline", ["none", "time"])
def test_products_with_the_hessian(policy, baseline, monkeypatch):
    params = parameters(policy)
    taken = batch(policy, params)
    direction = jax.tree.map(lambda x: 0.1 * jnp.cos(jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape), params)
    if isinstance(policy, Normalised):
        direction["seen"] = jax.tree.map(jnp.zeros_like, params["seen"])
    used = []
    kernel = rows.network_kernels().pull_back_tangents
    monkeypatch.setattr(rows.network_kernels(), "pull_back_tangents", lambda *given: used.append(True) or kernel(*given))

    def product(params, taken, direction):
        sampled = taken._replace(log_prob=log_probs_in_blocks(policy, params, taken), reward=taken.reward * taken.mask)
        here = Here(None, None, params, policy, stormpg.estimators.gpomdp(0.99, baseline), True, N)
        return here.hessian_product(Batch(sampled, params), direction)

    same(*both(monkeypatch, product, params, taken, direction), rtol=1e-4)
    assert len(used) == 1


def test_parts_must_be_equal():
    policy = POLICIES["censored"]
    params = parameters(policy)
    taken = batch(policy, params)
    for parts in (4, 7):  # of six trajectories
        with pytest.raises(TypeError):
            rows.score_sums(policy, params, taken, taken.mask[None], parts)


def test_activations_that_are_too_many_are_computed_again(module, monkeypatch):
    if module is rows_gpu:
        pytest.skip("no activations are kept on a GPU")
    policy = POLICIES["censored"]
    params = parameters(policy)
    taken = batch(policy, params)
    product = lambda: rows.divergence(policy, params, taken)[1]()(params)
    kept = product()
    monkeypatch.setattr(keeping, "MOST", 10)
    assert rows.rows_of(policy, params, taken).outputs(keep=True).activations is None
    same(product(), kept, 1e-6)


def test_runs_have_settings_and_lengths_of_their_own(monkeypatch):
    """Two runs at once, with another σ, other parameters and another batch each."""
    policies = stack([traceable(stormpg.gaussian_mlp(INPUTS, 2, hidden=(20,), sigma=sigma)) for sigma in (0.5, 2.0)])
    params = jax.vmap(lambda policy, key: policy.init(key))(policies, jax.random.split(jax.random.key(0), 2))
    one = batch(POLICIES["fixed-sigma"], jax.tree.map(lambda x: x[0], params))
    taken = stack([one, jax.tree.map(lambda x: x[::-1], one)])

    def made(policy, params, taken):
        value, fisher = divergence_on(Here(None, None, params, policy, None, True, 4), taken)
        moved = jax.tree.map(lambda x: 1.1 * x, params)
        return value(moved), fisher()(moved), score_sums(policy, params, taken, taken.reward[None] * taken.mask, 2)

    same(*both(monkeypatch, jax.vmap(made, axis_name=RUNS), policies, params, taken))


def test_a_nan_stays_one():
    policy = POLICIES["censored"]
    params = parameters(policy)
    taken = batch(policy, params)
    broken = jax.tree.map(lambda x: x.at[(0,) * x.ndim].set(jnp.nan), params)
    assert np.isnan(log_probs_in_blocks(policy, broken, taken)[taken.mask > 0]).all()
    assert np.isnan(rows.divergence(policy, params, taken)[0](broken))
    product = rows.divergence(policy, broken, taken)[1]()(params)
    assert not np.isfinite(product["mean"][0]["weight"]).all()


def step(key, state, action):
    return state, state, -((action - 0.5) ** 2).sum(), jnp.asarray(False)


@pytest.mark.slow
@pytest.mark.parametrize("actions", [Box((2,), -1.0, 1.0), MultiDiscrete((3, 2))], ids=["censored", "several-choices"])
def test_the_default_trains_the_same(actions, monkeypatch):
    seen = lambda key: jax.random.normal(key, (3,))
    env = Environment("targets", lambda key: (seen(key), seen(key)), step, Box((3,)), actions, horizon=5)
    results = []
    for switch in ("1", "0"):
        monkeypatch.setenv("STORMPG_FUSED", switch)
        stormpg.engine.compiled_loop.chunk.kept.clear()
        results.append(stormpg.train(env, trajectories=40, seeds=2))
    stormpg.engine.compiled_loop.chunk.kept.clear()
    np.testing.assert_allclose(*(result.columns["return"] for result in results), rtol=2e-3, atol=2e-3)

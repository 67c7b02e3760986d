"""The fused kernels give the same numbers as plain JAX. Those for a GPU are compiled on a GPU, else interpreted."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stormpg import kernels
from stormpg.envs import make
from stormpg.envs.base import Box, Environment, MultiDiscrete
from stormpg.errors import StormpgWarning
from stormpg.kernels import cpu, gpu, libraries, rows, rows_gpu
from stormpg.kernels.scalar_code import Unfit, on_lanes
from stormpg.policies.constructors import policy_for
from stormpg.policies.normalisation import Normalised, Seen
from stormpg.pytrees import stack, traceable
from stormpg.sampling.rollouts import noise_of, rollout
from stormpg.scores import log_probs, score_sum
from stormpg.trajectories import RUNS
from stormpg.windows import ratios_under

ON_A_CPU = jax.default_backend() == "cpu"
COMPILED = pytest.param(
    cpu, marks=pytest.mark.skipif(not (ON_A_CPU and libraries.compiler()), reason="needs a CPU and a C compiler")
)
MODULES = pytest.mark.parametrize("module", [gpu, COMPILED], ids=["gpu", "cpu"], indirect=True)
CASES = [
    ("cartpole-continuous", {}, 60),
    ("cartpole-continuous", {"learn_sigma": True, "hidden": (20,)}, 60),
    ("cartpole", {}, 60),
    ("rllab-cartpole", {}, 20),
    ("rllab-mountain-car", {}, 10),
    ("pendulum", {}, 10),
    ("acrobot", {}, 5),
    ("mountain-car-continuous", {}, 10),
]


def pull(key, state, action):
    """Several discrete actions move the state."""
    moved = state + jnp.array([0.1, -0.2]) * action
    return moved, jnp.append(moved, 1.0), -jnp.abs(moved).sum(), jnp.abs(moved).max() > 1


LEVERS = Environment(
    "levers", lambda key: (jnp.zeros(2), jnp.array([0.0, 0.0, 1.0])), pull, Box((3,)), MultiDiscrete((3, 2)), 20
)
WIDE = ("cartpole-continuous", {"hidden": (600,)}, 20)  # too many hidden units for a GPU
OF_ANY_NETWORK = [  # on a GPU the kernel of a rollout serves all policies that have kernels of their network
    ("cartpole-continuous", {"normalise": True, "censored": True, "learn_sigma": True}, 60),
    ("cartpole", {"normalise": "large"}, 60),
    ("levers", {}, 20),
]


def kernel(module, name, **settings):
    """A kernel without what it keeps."""
    function = getattr(rows if module is gpu and name != "rollout" else module, name)
    return lambda *arguments: function(*arguments, **settings)[0]


@pytest.fixture
def module(request, monkeypatch):
    """The module of kernels that a test takes. `rows` then has those of the same platform."""
    if request.param is gpu:
        monkeypatch.setattr(rows, "platform", lambda: "gpu")
    return request.param


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "shape", "horizon"),
    [(gpu, *case) for case in CASES + OF_ANY_NETWORK]
    + [pytest.param(cpu, *case, marks=COMPILED.marks) for case in [*CASES, WIDE]],
    indirect=["module"],
)
def test_kernels_equal_the_plain_way(name, shape, horizon, module, monkeypatch):
    env, n = LEVERS if name == "levers" else make(name), 5  # not a power of two: some lanes are empty
    policy = policy_for(env, **shape)
    key = jax.random.key(1)
    params = jax.jit(policy.init)(jax.random.key(3))
    if isinstance(policy, Normalised):
        params["seen"] = Seen(
            jnp.float32(10), jnp.array([0.02, -0.1, 0.0, 0.3]), jnp.array([0.8, 90.0, 1e-4, 1e3])
        )  # 10 deviations are exceeded
    monkeypatch.setenv("STORMPG_FUSED", "0")

    def by_kernels(params):
        keys = jax.random.split(key, (n, 3))
        start, noise = jax.vmap(env.reset)(keys[:, 0]), noise_of(policy, keys[:, 1], horizon)
        return kernel(module, "rollout", env=env, horizon=horizon)(policy, params, start, noise)

    with jax.default_matmul_precision("highest"):
        plain = jax.jit(lambda params: rollout(env, policy, params, key, n, horizon))(params)
        batch = jax.jit(by_kernels)(params)
        np.testing.assert_array_equal(batch.mask, plain.mask)
        for ours, theirs in zip(batch, plain, strict=True):
            live = np.reshape(plain.mask, plain.mask.shape + (1,) * (theirs.ndim - 2)) > 0
            np.testing.assert_allclose(np.where(live, ours, 0), np.where(live, theirs, 0), rtol=1e-4, atol=1e-4)
            assert np.isfinite(ours).all()

        other = jax.tree.map(lambda x: np.asarray(x) + np.float32(0.1), params)
        if isinstance(policy, Normalised):  # gradients do not change its statistics
            other["seen"] = params["seen"]
        coefficient = np.random.default_rng(0).normal(size=batch.mask.shape).astype(np.float32) * batch.mask

        @jax.jit
        def both(params, batch, coefficient):
            ours = kernel(module, "log_probs")(policy, params, batch), log_probs(policy, params, batch)
            sums = kernel(module, "score_sum")(policy, params, batch, coefficient)
            return ours, (sums, score_sum(policy, params, batch, coefficient))

        probabilities, (ours, theirs) = both(other, batch, coefficient)
        np.testing.assert_allclose(*probabilities, rtol=1e-4, atol=1e-4)
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), ours, theirs)


@MODULES
@pytest.mark.parametrize(("n", "horizon"), [(3, 40), (9, 300), (1, 128)])
def test_cumulative_sums(n, horizon, module):
    x = jax.random.normal(jax.random.key(0), (2, n, horizon))
    for backward in (False, True):
        ours = jax.jit(jax.vmap(lambda x, backward=backward: module.running_sums(x, backward)))(x)
        plain = np.flip(np.cumsum(np.flip(x, 2), 2), 2) if backward else np.cumsum(x, 2)
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-4)


def test_some_episodes_ended_in_these_tests():
    env = make("cartpole-continuous")
    policy = policy_for(env)
    mask = rollout(env, policy, policy.init(jax.random.key(3)), jax.random.key(1), 5, 60).mask
    assert (mask[:, -1] == 0).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "programs"),
    [
        (gpu, rows_gpu.PROGRAMS),
        (gpu, 3),
        (gpu, 1),
        pytest.param(cpu, 1, marks=COMPILED.marks),
    ],  # 1, 2 or 3 trajectories a program
    indirect=["module"],
)
def test_kernels_map_over_runs_with_settings_of_their_own(module, programs, monkeypatch):
    monkeypatch.setattr(rows_gpu, "PROGRAMS", programs)
    env, n, horizon = make("cartpole-continuous"), 3, 8
    policies = stack([traceable(policy_for(env, sigma=sigma)) for sigma in (0.5, 2.0)])
    params = jax.vmap(lambda policy, key: policy.init(key))(policies, jax.random.split(jax.random.key(0), 2))
    keys = jax.vmap(lambda key: jax.random.split(key, (n, 3)))(jax.random.split(jax.random.key(1), 2))

    def by_kernels(policy, params, keys):
        start, noise = jax.vmap(env.reset)(keys[:, 0]), noise_of(policy, keys[:, 1], horizon)
        batch = kernel(module, "rollout", env=env, horizon=horizon)(policy, params, start, noise)
        log_prob = kernel(module, "log_probs")(policy, params, batch)
        return batch, log_prob, kernel(module, "score_sum")(policy, params, batch, batch.reward)

    batch, log_prob, score = jax.jit(jax.vmap(by_kernels, axis_name=RUNS))(policies, params, keys)
    np.testing.assert_allclose(log_prob, batch.log_prob, atol=1e-4)  # of the policy that acted
    for run in range(2):
        policy, mine, part = jax.tree.map(lambda x, run=run: x[run], (policies, params, batch))
        np.testing.assert_allclose(log_prob[run], log_probs(policy, mine, part), rtol=1e-4, atol=1e-4)
        plain = score_sum(policy, mine, part, part.reward)
        jax.tree.map(lambda a, b, run=run: np.testing.assert_allclose(a[run], b, rtol=1e-3, atol=1e-3), score, plain)


@pytest.mark.slow
@MODULES
def test_coefficients_of_padded_steps_are_left_out(module):
    env = make("cartpole-continuous")
    policy = policy_for(env)
    params = policy.init(jax.random.key(3))
    batch = rollout(env, policy, params, jax.random.key(1), 5, 60)
    ours = kernel(module, "score_sum")(policy, params, batch, jnp.ones_like(batch.mask))
    theirs = kernel(module, "score_sum")(policy, params, batch, batch.mask)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, theirs)


@pytest.mark.slow
def test_the_ratios_of_a_window_go_through_the_kernel(monkeypatch):
    env, n, horizon, K = make("cartpole-continuous"), 2, 6, 3
    policy = policy_for(env, hidden=(8,))
    params = jax.vmap(policy.init)(jax.random.split(jax.random.key(0), K))
    first = jax.tree.map(lambda x: x[0], params)
    batch = rollout(env, policy, first, jax.random.key(1), n, horizon)
    of_all = jax.vmap(lambda one: ratios_under(policy, one, batch))
    monkeypatch.setenv("STORMPG_FUSED", "0")
    plain = of_all(params)
    real, used = rows_gpu.outputs, []
    monkeypatch.setattr(kernels, "of", lambda name, policy, params: getattr(rows, name))
    monkeypatch.setattr(rows, "platform", lambda: "gpu")
    monkeypatch.setattr(rows_gpu, "outputs", lambda *batch: used.append(True) or real(*batch))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), of_all(params), plain)
    assert used


def step_with_a_loop_that_draws(key, state, action):
    noisy = jax.lax.fori_loop(0, 2, lambda i, x: x + jax.random.normal(jax.random.fold_in(key, i)), state["x"])
    return {"x": noisy}, noisy[None], noisy, noisy > 1


def test_a_state_of_any_kind_and_a_loop_that_draws():
    key, number = jax.eval_shape(jax.random.key, 0), jax.ShapeDtypeStruct((), jnp.float32)
    with pytest.raises(Unfit):
        gpu.step_on_lanes(step_with_a_loop_that_draws, key, {"x": number}, jax.ShapeDtypeStruct((1,), jnp.float32))
    fine = lambda key, state, action: ({"x": state["x"] + action[0]}, state["x"][None], state["x"], state["x"] > 1)
    (ahead, *_) = gpu.step_on_lanes(fine, key, {"x": number}, jax.ShapeDtypeStruct((1,), jnp.float32))(
        jnp.arange(3.0), jnp.ones(3)
    )
    np.testing.assert_array_equal(ahead, jnp.arange(3.0) + 1)


@pytest.mark.parametrize("function", [jnp.round, jax.lax.erf, lambda x: jnp.sort(jnp.stack((x, -x)))])
def test_an_operation_without_a_rule_is_unfit(function):
    with pytest.raises(Unfit):
        on_lanes(function, jax.ShapeDtypeStruct((), jnp.float32))


def test_what_is_unfit_is_rolled_out_the_plain_way(monkeypatch):
    env = make("lqr")  # its step draws random numbers
    policy = policy_for(env)
    params = policy.init(jax.random.key(0))
    with monkeypatch.context() as without:
        without.setenv("STORMPG_FUSED", "0")
        plain = rollout(env, policy, params, jax.random.key(1), 2, 4)
    real, tried = gpu.rollout, []
    monkeypatch.setattr(kernels, "of", lambda name, policy, params: getattr(gpu, name))
    monkeypatch.setattr(kernels, "platform", lambda: "gpu")
    monkeypatch.setattr(kernels, "_told", set())
    monkeypatch.setattr(gpu, "rollout", lambda *start, **settings: tried.append(True) or real(*start, **settings))
    with pytest.warns(StormpgWarning, match="the environment lqr does not fit: a result depends on a random key"):
        again = rollout(env, policy, params, jax.random.key(1), 2, 4)
    assert tried
    rollout(env, policy, params, jax.random.key(1), 2, 4)  # says it once: a second warning would fail the test
    jax.tree.map(np.testing.assert_array_equal, plain, again)


def test_an_environment_that_draws_is_left_to_the_plain_way():
    env = make("lqr")
    key = jax.eval_shape(jax.random.key, 0)
    state, _ = jax.eval_shape(env.reset, key)
    with pytest.raises(Unfit, match="random key"):
        on_lanes(env.step, key, state, jax.ShapeDtypeStruct(env.action_space.shape, jnp.float32))


def test_a_function_of_scalars_on_lanes():
    def function(x, y):
        stacked = jnp.stack((x, y, x * y))
        total = jax.lax.fori_loop(0, 3, lambda _, total: total + stacked.sum(), jnp.zeros(()))
        matrix = jnp.eye(3) * x + jnp.tri(3)
        return jnp.where(stacked.max() > 1, total, -total), jnp.argmax(stacked), stacked[::-1] @ matrix @ jnp.arange(3.0)

    number = jax.ShapeDtypeStruct((), jnp.float32)
    x, y = jnp.array([0.5, 2.0, -1.0]), jnp.array([0.25, 3.0, 4.0])
    ours = on_lanes(function, number, number)(x, y)
    for a, b in zip(ours, jax.vmap(function)(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def on_a_gpu(monkeypatch):
    """As if the default device were a GPU, in a process that has not warned yet."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(kernels, "_told", set())
    monkeypatch.delenv("STORMPG_FUSED", raising=False)


@pytest.mark.parametrize("hidden", [(64,), (256,)])
def test_where_the_kernels_apply(hidden, monkeypatch):
    policy = policy_for(make("cartpole-continuous"), hidden=hidden)
    params = policy.init(jax.random.key(0))
    on_a_gpu(monkeypatch)
    assert kernels.of("rollout", policy, params) is gpu.rollout
    assert kernels.of("score_sum", policy, params) is rows.score_sum
    normalised = policy_for(make("cartpole-continuous"), hidden=hidden, normalise=True, censored=True)
    statistics = normalised.init(jax.random.key(0))
    assert kernels.of("rollout", normalised, statistics) is gpu.rollout
    with jax.default_device(jax.devices("cpu")[0]):
        assert kernels.of("score_sum", policy, params) is (cpu.score_sum if libraries.compiler() else None)
        assert kernels.of("rollout", normalised, statistics) is None
        with monkeypatch.context() as without:
            without.setattr(libraries, "compiler", lambda: None)
            assert kernels.of("score_sum", policy, params) is None
        with jax.enable_x64(True):
            assert kernels.of("score_sum", policy, params) is None
    monkeypatch.setenv("STORMPG_FUSED", "0")
    assert kernels.of("score_sum", policy, params) is None


@pytest.mark.parametrize(
    ("hidden", "reason"),
    [
        ((64, 64), "plain JAX is used .* network has 2 hidden layers, and they are written for one"),
        ((1100,), "network has 4 inputs, 1100 hidden units and 1 outputs; their limits are 32, 256 and 16"),
    ],
)
def test_the_reason_for_the_plain_way_is_given_once(hidden, reason, monkeypatch):
    policy = policy_for(make("cartpole-continuous"), hidden=hidden)
    params = policy.init(jax.random.key(0))
    assert kernels.of("score_sum", policy, params) is None  # on a CPU: without a warning
    on_a_gpu(monkeypatch)
    with monkeypatch.context() as silent:
        silent.setenv("STORMPG_FUSED", "0")
        assert kernels.of("score_sum", policy, params) is None
    with pytest.warns(StormpgWarning, match=reason):
        assert kernels.of("score_sum", policy, params) is None
    assert kernels.of("score_sum", policy, params) is None  # a second warning would fail the test


def test_the_reason_is_given_for_other_policies_and_types(monkeypatch):
    on_a_gpu(monkeypatch)
    env = make("cartpole-continuous")
    policy = policy_for(make("chain"))
    with pytest.warns(StormpgWarning, match="the kernels: .*LookupTable"):
        assert kernels.of("rollout", policy, policy.init(jax.random.key(0))) is None
    policy = policy_for(env)
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), policy.init(jax.random.key(0)))
    with pytest.warns(StormpgWarning, match="not float32"):
        assert kernels.of("score_sum", policy, params) is None

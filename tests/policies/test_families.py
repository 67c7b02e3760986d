"""Multi-discrete actions, and Gaussian actions scaled to their bounds: checks against exact formulas, and training."""

import dataclasses
import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

import stormpg
from stormpg.envs import as_environment
from stormpg.envs.base import Box, Environment, MultiDiscrete
from stormpg.errors import InputError
from stormpg.policies.acting import actor
from stormpg.policies.constructors import multi_categorical_mlp, policy_for, scale_of
from stormpg.policies.descriptions import describe_policy, from_description
from stormpg.policies.families import log_probs_of
from stormpg.policies.normalisation import Normalised
from stormpg.runs import run_folder
from stormpg.testing import check_policy

SIZES = (3, 1, 4, 2)
OBSERVATION = jnp.asarray([0.3, -0.2, 0.5])
MULTI = multi_categorical_mlp(3, SIZES, hidden=(8,))
PARAMS = jax.tree.map(lambda x: 2 * x, MULTI.init(jax.random.key(0)))


def chances(params=PARAMS):
    """The probabilities of every discrete choice, computed with NumPy."""
    logits = np.split(np.asarray(MULTI.logits.apply(params["logits"], OBSERVATION), float), np.cumsum(SIZES)[:-1])
    return [np.exp(part - part.max()) / np.exp(part - part.max()).sum() for part in logits]


def test_chances_multiply_and_sum_to_one():
    found = []
    for action in itertools.product(*map(range, SIZES)):
        log_prob = float(MULTI.log_prob(PARAMS, OBSERVATION, jnp.asarray(action)))
        expected = np.log([p[a] for p, a in zip(chances(), action, strict=True)]).sum()
        np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
        found.append(np.exp(log_prob))
    np.testing.assert_allclose(sum(found), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(MULTI.mode(PARAMS, OBSERVATION), [p.argmax() for p in chances()])


def test_frequencies_are_the_chances_and_independent():
    draws = np.asarray(
        jax.vmap(lambda k: MULTI.sample(PARAMS, k, OBSERVATION))(jax.random.split(jax.random.key(1), 40_000))
    )  # fmt: skip
    for i, p in enumerate(chances()):
        np.testing.assert_allclose(np.bincount(draws[:, i], minlength=len(p)) / len(draws), p, atol=0.01)
    together = np.histogram2d(draws[:, 0], draws[:, 2], bins=(3, 4))[0] / len(draws)
    np.testing.assert_allclose(together, np.outer(chances()[0], chances()[2]), atol=0.01)


def test_divergence_is_the_sum_of_its_parts():
    other = MULTI.init(jax.random.key(5))
    expected = sum((p * np.log(p / q)).sum() for p, q in zip(chances(), chances(other), strict=True))
    np.testing.assert_allclose(MULTI.kl(PARAMS, other, OBSERVATION), expected, rtol=1e-4)
    np.testing.assert_allclose(MULTI.kl(PARAMS, PARAMS, OBSERVATION), 0.0, atol=1e-6)
    slopes = jax.grad(lambda p: MULTI.kl(PARAMS, p, OBSERVATION))(other)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))


def test_one_choice_is_the_categorical_policy():
    one, same = multi_categorical_mlp(3, (5,), (8,)), stormpg.categorical_mlp(3, 5, (8,))
    params, key = one.init(jax.random.key(0)), jax.random.key(4)
    np.testing.assert_array_equal(one.sample(params, key, OBSERVATION), [same.sample(params, key, OBSERVATION)])
    gradients = [jax.grad(p.log_prob)(params, OBSERVATION, a) for p, a in ((one, jnp.asarray([3])), (same, jnp.asarray(3)))]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), *gradients)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("kind", ["multi", "scaled"])
def test_rows_steps_and_numpy_are_the_same_policy(kind, normalise, float64):
    policy = MULTI if kind == "multi" else stormpg.gaussian_mlp(3, 2, (8,), 0.5, True, low=(0, -1), high=(100, 3))
    policy = Normalised(policy, 3) if normalise else policy
    params, key = policy.init(jax.random.key(0)), jax.random.key(1)
    if normalise:
        params["seen"] = params["seen"]._replace(number=jnp.asarray(9.0), mean=jnp.arange(3.0), squares=jnp.arange(3.0) + 1)
    rows, noise = jax.random.normal(key, (7, 3)), policy.noise(key, (7,))
    actions = jax.vmap(policy.act, (None, 0, 0))(params, rows, noise)
    each = lambda policy, params: jax.vmap(policy.log_prob, (None, 0, 0))(params, rows, actions)
    total = lambda params, f: f(params).sum()
    fast = lambda params: log_probs_of(policy, params, rows, actions)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
    close(fast(params), each(policy, params))
    close(each(policy.in_steps(), params), each(policy, params))
    jax.tree.map(close, jax.grad(total)(params, fast), jax.grad(total)(params, lambda p: each(policy, p)))
    acting = actor(policy, params)
    close(acting.act(np.asarray(rows), np.asarray(noise)), actions)
    close(acting.mode(np.asarray(rows)), jax.vmap(policy.mode, (None, 0))(params, rows))


class Lights(gymnasium.Env):
    """Each switch must match its light; the reward is the fraction of correct switches."""

    def __init__(self, action_space, render_mode=None):
        self.action_space = action_space
        flat = spaces.flatten_space(action_space).shape
        self.sizes = np.full(action_space.shape, 2) if isinstance(action_space, spaces.MultiBinary) else action_space.nvec
        self.observation_space = spaces.Box(0, 1, flat, np.float32)

    def look(self):
        self.wanted = self.action_space.sample()
        return spaces.flatten(self.action_space, self.wanted).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.action_space.seed(seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        reward = float((np.asarray(action) == self.wanted).mean())
        return self.look(), reward, self.steps == 10, False, {}


SWITCHES = {
    "several": spaces.MultiDiscrete([3, 2, 4]),
    "start": spaces.MultiDiscrete([3, 2], start=[5, -1]),
    "matrix": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "binary": spaces.MultiBinary(4),
    "binary matrix": spaces.MultiBinary((2, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SWITCHES)
def test_what_several_actions_reach_the_environment(kind):
    """`Lights` asserts that every action is in its space. The actions of `predict` must be in it too."""
    env = as_environment(lambda **more: Lights(SWITCHES[kind], **more))
    assert isinstance(env.action_space, MultiDiscrete)
    agent = stormpg.Agent(env, stormpg.storm_pg(S0=4, B=2)).learn(8)
    seen = np.zeros(env.observation_space.shape)
    for deterministic in (False, True):
        assert SWITCHES[kind].contains(agent.predict(seen, deterministic=deterministic))
        assert SWITCHES[kind].contains(agent.predict(np.stack([seen, seen]), deterministic=deterministic)[1])
    assert 0 <= agent.evaluate(4).returns.mean() <= 10


@pytest.mark.slow
def test_several_actions_are_learned():
    env = as_environment(lambda **more: Lights(SWITCHES["several"], **more))
    agent = stormpg.Agent(env, "storm-pg", eta=0.03)
    before = agent.evaluate(50).returns.mean()
    after = agent.learn(600).evaluate(50).returns.mean()
    assert before < 5
    assert after > 8.5


@pytest.mark.slow
def test_several_actions_everywhere_else(tmp_path):
    """Multi-discrete actions inside JAX, with natural gradients, saved and loaded, and exported."""
    step = lambda key, state, action: (state, state, (action == jnp.asarray([2, 0])).sum().astype(float), jnp.asarray(False))
    env = Environment(
        "locks", lambda key: (jnp.ones(3), jnp.ones(3)), step, Box((3,)), MultiDiscrete((3, 2)), horizon=5
    )  # fmt: skip
    check_policy(env, policy_for(env))
    result = stormpg.train(env, stormpg.svrpo(S0=6, B=3, m=2), trajectories=18, seeds=2)
    assert not result.columns["diverged"].any()

    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    outside = as_environment(lambda **more: Lights(SWITCHES["several"], **more))
    agent = stormpg.Agent(outside, "storm-pg", S0=4, B=2, normalise=True).learn(8)
    agent.save(tmp_path / "agent")
    seen = np.random.default_rng(0).normal(size=(50, 9)).astype(np.float32)
    there = stormpg.Agent.load(tmp_path / "agent", env=outside).predict(seen, deterministic=True)
    np.testing.assert_array_equal(there, agent.predict(seen, deterministic=True))
    session = runtime.InferenceSession(
        str(agent.export_onnx(tmp_path / "policy.onnx")), providers=["CPUExecutionProvider"]
    )  # fmt: skip
    np.testing.assert_array_equal(session.run(None, {"observation": seen})[0], there)


def test_policies_that_do_not_fit_several_actions():
    env = as_environment(lambda **more: Lights(SWITCHES["several"], **more))
    with pytest.raises(InputError, match=r"of sizes \[3, 2, 4\] and the policy categorical-mlp is categorical: use multi-cat"):
        policy_for(env, "categorical-mlp")
    with pytest.raises(InputError, match="use a multi-categorical policy"):
        stormpg.train(env, policy=stormpg.categorical_mlp(9, 3))
    with pytest.raises(InputError, match=r"sizes is \(3, 0\)"):
        multi_categorical_mlp(2, (3, 0))


LOW, HIGH = (0.0, -1.0, -np.inf, -3.4e38, -1e6, 5.0), (100.0, 3.0, np.inf, 3.4e38, 1e6, 5.0)


def test_the_scale_of_bounds():
    """A dimension with an infinite, too large or two equal bounds is not scaled. None if nothing is scaled, as for ±1."""
    centre, half_width = scale_of(6, LOW, HIGH)
    assert centre == (50.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert half_width == (50.0, 2.0, 1.0, 1.0, 1.0, 1.0)
    assert scale_of(3, -1, 1) is None
    assert scale_of(2, -np.inf, np.inf) is None
    assert scale_of(1, -1e5, 1e5) == ((0.0,), (1e5,))
    for bad in ([[0.0]], [[0.0, 1.0], [1.0, 1.0]], [[0.0], [0.0]], [["x"], [1.0]], 3, [[np.nan], [1.0]]):
        with pytest.raises(InputError, match="expected true, false, or centres and half-widths of 1 actions"):
            policy_for(stormpg.make("pendulum"), scaled=bad)
    with pytest.raises(InputError, match="not those of 3 actions"):
        stormpg.gaussian_mlp(2, 3, low=(0, 1), high=(1, 2))


@pytest.mark.parametrize("learn_sigma", [False, True])
def test_a_scaled_gaussian_is_the_density_of_the_raw_action(learn_sigma):
    policy = stormpg.gaussian_mlp(3, 6, (8,), 0.6, learn_sigma, low=LOW, high=HIGH)
    bare = dataclasses.replace(policy, scale=None)
    params, key = policy.init(jax.random.key(1)), jax.random.key(2)
    centre, half_width = map(np.asarray, policy.scale)
    output = np.asarray(bare.mode(params, OBSERVATION))
    mean = centre + half_width * output
    np.testing.assert_allclose(policy.mode(params, OBSERVATION), mean, rtol=1e-6)
    noise = policy.noise(key, ())
    np.testing.assert_allclose(policy.act(params, OBSERVATION, noise), mean + half_width * 0.6 * noise, rtol=1e-5)
    action = mean + half_width * np.linspace(-2, 2, 6)
    expected = stats.norm(mean, 0.6 * half_width).logpdf(action).sum()
    np.testing.assert_allclose(policy.log_prob(params, OBSERVATION, jnp.asarray(action)), expected, rtol=1e-4)
    other = policy.init(jax.random.key(7))
    np.testing.assert_allclose(policy.kl(params, other, OBSERVATION), bare.kl(params, other, OBSERVATION), rtol=1e-4)


@pytest.mark.parametrize(
    "env", ["cartpole-continuous", "rllab-cartpole", "rllab-mountain-car", "mountain-car-continuous", "lqr"]
)
def test_nothing_changes_for_bounds_of_one_or_none(env):
    """In the paper's environments, the policy has the same fields as without scaling, so all numbers are the same."""
    env = stormpg.make(env)
    policy = policy_for(env)
    assert policy.scale is None
    plain = stormpg.gaussian_mlp(policy.mean.sizes[0], policy.action_dim)
    assert jax.tree.structure(policy) == jax.tree.structure(plain)
    assert "scaled" not in describe_policy(policy)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian-mlp", "gaussian-linear"])
@pytest.mark.parametrize("name", ["pendulum", "gym:Pendulum-v1"])
def test_the_pendulums_torque(name, kind, tmp_path):
    """Built in and through Gymnasium: the scale is 2, it is restored from the run folder, and batches hold raw actions."""
    env = stormpg.make(name)
    policy = policy_for(env, kind)
    assert policy.scale == ((0.0,), (2.0,))
    batch = stormpg.rollout(env, policy, policy.init(jax.random.key(0)), jax.random.key(1), 40, 50)
    assert np.abs(batch.action).max() > 4
    assert 1.7 < np.std(batch.action - jax.vmap(jax.vmap(policy.mode, (None, 0)), (None, 0))(
        policy.init(jax.random.key(0)), batch.observation
    )) < 2.3  # fmt: skip
    result = stormpg.train(
        env, stormpg.storm_pg(S0=4, B=2), trajectories=8, seeds=1, horizon=10, policy=policy, out=tmp_path / "run"
    )
    assert run_folder.Run(tmp_path / "run").policies[0].scale == policy.scale
    assert describe_policy(result.policies[0])["scaled"] == [[0.0], [2.0]]
    wider = stormpg.gaussian_mlp(3, 1, low=0, high=6)  # different from the environment's bounds
    assert from_description(env, describe_policy(wider)).scale == ((3.0,), (3.0,))
    before = {name: value for name, value in describe_policy(policy).items() if name != "scaled"}
    assert from_description(env, before).scale is None  # a folder written before scaling existed
    assert policy_for(env, kind, scaled=False).scale is None


class Throttle(gymnasium.Env):
    """A throttle from 0 to 100 that must be set to the observed value times 100."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Box(0, 100, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.wanted = 0, self.np_random.uniform(size=1).astype(np.float32)
        return self.wanted, {}

    def step(self, action):
        reward = 1 - float(np.abs(action[0] / 100 - self.wanted[0]))
        self.steps, self.wanted = self.steps + 1, self.np_random.uniform(size=1).astype(np.float32)
        return self.wanted, reward, self.steps == 10, False, {}


@pytest.mark.slow
def test_a_throttle_from_0_to_100_is_learned():
    """Unscaled, nothing is learned, because the noise is too small. The best return is 10; a constant 50 gives 7.5."""
    ends = {}
    for scaled in (True, False):
        agent = stormpg.Agent(lambda **_: Throttle(), "storm-pg", scaled=scaled, sigma=0.3, eta=0.02)
        ends[scaled] = agent.learn(500).evaluate(20, deterministic=True).returns.mean()
    assert ends[True] > 9
    assert ends[False] < 7


@pytest.mark.slow
def test_a_scaled_policy_is_exported(tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    agent = stormpg.Agent(lambda **_: Throttle(), "storm-pg", S0=4, B=2, normalise=True).learn(8)
    seen = np.random.default_rng(0).uniform(size=(50, 1)).astype(np.float32)
    session = runtime.InferenceSession(
        str(agent.export_onnx(tmp_path / "policy.onnx")), providers=["CPUExecutionProvider"]
    )  # fmt: skip
    (actions,) = session.run(None, {"observation": seen})
    np.testing.assert_allclose(actions, agent.predict(seen, deterministic=True), rtol=1e-5)
    assert len(np.unique(actions)) > 20  # not all at a bound

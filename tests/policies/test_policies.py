"""Policies: densities, several action dimensions, user-defined networks and policies, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import stormpg
from stormpg.errors import InputError
from stormpg.policies.descriptions import describe_policy, from_description
from stormpg.policies.families import log_probs_of
from stormpg.policies.networks import MLP, few_inputs
from stormpg.scores import log_probs

OBSERVATION = jnp.asarray([0.3, -0.2, 0.5])


@pytest.mark.parametrize("learn_sigma", [False, True])
def test_gaussian_density_is_scipys(learn_sigma):
    policy = stormpg.gaussian_mlp(3, 2, hidden=(8, 8), sigma=0.6, learn_sigma=learn_sigma)
    params = policy.init(jax.random.key(1))
    assert ("log_sigma" in params) == learn_sigma
    mean, action = np.asarray(policy.mode(params, OBSERVATION)), np.array([0.4, -1.0])
    expected = stats.norm(mean, 0.6).logpdf(action).sum()
    np.testing.assert_allclose(policy.log_prob(params, OBSERVATION, jnp.asarray(action)), expected, rtol=1e-5)
    draws = jax.vmap(lambda k: policy.sample(params, k, OBSERVATION))(jax.random.split(jax.random.key(2), 20_000))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(draws.std(axis=0), 0.6, rtol=0.03)


def test_a_fixed_sigma_is_no_parameter():
    flat = jax.tree.leaves(stormpg.gaussian_mlp(4, 1).init(jax.random.key(0)))
    assert sum(x.size for x in flat) == 4 * 64 + 64 + 64 + 1


def test_glorot_weights():
    weight = MLP((4, 64, 1)).init(jax.random.key(0))[0]["weight"]
    bound = np.sqrt(6 / 68)
    assert np.abs(weight).max() <= bound
    np.testing.assert_allclose(weight.std(), bound / np.sqrt(3), rtol=0.1)


def test_categorical_frequencies():
    policy = stormpg.softmax_table(2, 3)
    params = {"logits": jnp.log(jnp.asarray([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))}
    draws = jax.vmap(lambda k: policy.sample(params, k, jnp.asarray(1)))(jax.random.split(jax.random.key(0), 20_000))
    np.testing.assert_allclose(np.bincount(np.asarray(draws)) / 20_000, [0.6, 0.3, 0.1], atol=0.01)
    np.testing.assert_allclose(policy.log_prob(params, jnp.asarray(0), jnp.asarray(2)), np.log(0.5), rtol=1e-5)
    assert int(policy.mode(params, jnp.asarray(1))) == 0


@pytest.mark.parametrize("policy", [stormpg.gaussian_mlp(3, 2, sigma=0.7, learn_sigma=True), stormpg.categorical_mlp(3, 4)])
def test_divergence_is_the_mean_log_ratio(policy):
    """KL(p‖q) = E_p[log p − log q], checked by sampling; KL(p‖p) = 0."""
    p, q = policy.init(jax.random.key(0)), policy.init(jax.random.key(5))
    draws = jax.vmap(lambda k: policy.sample(p, k, OBSERVATION))(jax.random.split(jax.random.key(1), 40_000))
    ratio = jax.vmap(lambda a: policy.log_prob(p, OBSERVATION, a) - policy.log_prob(q, OBSERVATION, a))(draws)
    np.testing.assert_allclose(policy.kl(p, q, OBSERVATION), ratio.mean(), atol=5 * ratio.std() / 200)
    np.testing.assert_allclose(policy.kl(p, p, OBSERVATION), 0.0, atol=1e-6)


@pytest.mark.slow
def test_a_network_of_the_users():
    """An (init, apply) pair, an Equinox module, and a function from a key to an Equinox module can all be trained."""
    equinox = pytest.importorskip("equinox")
    pair = (lambda key: jax.random.normal(key, (4,)), lambda params, s: (params * s).sum()[None])
    module = equinox.nn.MLP(4, 1, 8, 1, key=jax.random.key(0))
    function = lambda key: equinox.nn.MLP(4, 1, 8, 1, key=key)
    for own, varies in ((pair, True), (module, False), (function, True)):
        policy = stormpg.gaussian(own, 1)
        first = [jax.tree.leaves(policy.init(jax.random.key(k)))[0] for k in (0, 1)]
        assert bool((first[0] != first[1]).any()) == varies
        result = stormpg.train(
            "cartpole-continuous", stormpg.storm_pg(S0=4, B=2), trajectories=10, seeds=2, horizon=10, policy=policy
        )
        assert np.isfinite(result.columns["gradient_norm"]).all()
    with pytest.raises(InputError, match="cannot make a network"):
        stormpg.gaussian(3, 1)


def test_four_functions_are_a_policy():
    """A class with only init, sample, log_prob and mode can be trained; it is sampled step by step."""

    class Coin:
        def init(self, key):
            return jnp.zeros(())

        def sample(self, params, key, observation):
            return jax.random.bernoulli(key, jax.nn.sigmoid(params)).astype(int)

        def log_prob(self, params, observation, action):
            return jnp.where(action == 1, jax.nn.log_sigmoid(params), jax.nn.log_sigmoid(-params))

        def mode(self, params, observation):
            return (params > 0).astype(int)

    result = stormpg.train("cartpole", stormpg.storm_pg(S0=4, B=2), trajectories=10, seeds=2, horizon=10, policy=Coin())
    assert np.isfinite(result.columns["return"]).all()


@pytest.mark.parametrize(
    ("env", "kind", "settings", "message"),
    [
        ("cartpole", "gaussian-mlp", {}, "discrete actions and the policy gaussian-mlp is Gaussian"),
        ("pendulum", "categorical-mlp", {}, r"continuous actions of shape \[1\] and the policy categorical-mlp is categorical"),
        ("pendulum", "gausian-mlp", {}, "did you mean 'gaussian-mlp'"),
        ("cartpole", None, {"sigma": 1.0}, "has no setting 'sigma'"),
        ("pendulum", None, {"sigma": 0.0}, "sigma is 0.0"),
        ("chain", "categorical-mlp", {}, "use softmax-table"),
    ],
)
def test_policies_that_do_not_fit(env, kind, settings, message):
    with pytest.raises(InputError, match=message):
        stormpg.policy_for(stormpg.make(env), kind, **settings)


@pytest.mark.parametrize("env", stormpg.ENVIRONMENTS)
def test_a_policy_is_made_again_from_its_description(env):
    """With default and with other settings, the rebuilt policy has the same structure and the same numbers."""
    env = stormpg.make(env)
    kind = describe_policy(stormpg.policy_for(env))["kind"]
    others = {
        "gaussian-mlp": {"hidden": (7, 3), "sigma": 0.3, "learn_sigma": True},
        "categorical-mlp": {"hidden": (7, 3)},
        "softmax-table": {},
    }[kind]
    for settings in ({}, others):
        policy = stormpg.policy_for(env, **settings)
        again = from_description(env, describe_policy(policy))
        assert jax.tree.structure(again) == jax.tree.structure(policy)  # the static fields, including network and scale
        assert jax.tree.leaves(again) == jax.tree.leaves(policy)
        assert describe_policy(again) == describe_policy(policy)
        one, other = (made.init(jax.random.key(0)) for made in (again, policy))
        jax.tree.map(np.testing.assert_array_equal, one, other)
    assert not others or policy != stormpg.policy_for(env)


@pytest.mark.parametrize("hidden", [(8,), (8, 5)])
@pytest.mark.parametrize("env", ["cartpole", "cartpole-continuous"])
def test_in_steps_is_the_same_policy(env, hidden):
    policy = stormpg.policy_for(stormpg.make(env), hidden=hidden)
    params, observation = policy.init(jax.random.key(0)), jnp.arange(4.0) / 3
    action = policy.sample(params, jax.random.key(1), observation)
    np.testing.assert_allclose(
        policy.in_steps().log_prob(params, observation, action), policy.log_prob(params, observation, action), rtol=1e-5
    )
    assert policy.in_steps() != policy


def test_many_inputs_are_left_to_a_matrix_product():
    assert MLP((100, 8, 1)).in_steps() == MLP((100, 8, 1))
    assert MLP((4, 8, 1)).in_steps() != MLP((4, 8, 1))


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("env", "hidden"), [("cartpole", (8,)), ("cartpole-continuous", (8, 5)), ("cartpole-continuous", ())])
def test_many_rows_are_each_row(env, hidden, normalise, float64):
    """`log_prob_rows` and its first and second derivatives equal those of `log_prob` applied row by row."""
    env = stormpg.make(env)
    policy = stormpg.policy_for(env, hidden=hidden, normalise=normalise)
    params, key = policy.init(jax.random.key(0)), jax.random.key(1)
    if normalise:
        params["seen"] = params["seen"]._replace(number=jnp.asarray(9.0), mean=jnp.arange(4.0), squares=jnp.arange(4.0) + 1)
    rows = jax.random.normal(key, (7, 4))
    actions = jax.vmap(policy.sample, (None, 0, 0))(params, jax.random.split(key, 7), rows)
    weight = jax.random.normal(key, (7,))
    plain = lambda params, rows: (weight * jax.vmap(policy.log_prob, (None, 0, 0))(params, rows, actions)).sum()
    fast = lambda params, rows: (weight * log_probs_of(policy, params, rows, actions)).sum()
    for of in (lambda f: f, lambda f: jax.grad(f, argnums=(0, 1)), lambda f: jax.hessian(f) if not normalise else jax.grad(f)):
        expected, found = (jax.jit(of(one))(params, rows) for one in (plain, fast))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, expected)


def test_a_subclass_that_changes_a_density_is_not_passed_over():
    class Wider(stormpg.policies.Gaussian):
        def log_prob(self, params, observation, action):
            return super().log_prob(params, observation, action) / 2

    policy = stormpg.gaussian_mlp(3, 1)
    wider = Wider(policy.sigma, policy.mean, 1)
    params, rows, actions = policy.init(jax.random.key(0)), jnp.ones((5, 3)), jnp.zeros((5, 1))
    both = [log_probs_of(p, params, rows, actions) for p in (policy, wider)]
    np.testing.assert_allclose(both[1], both[0] / 2, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"learn_sigma": True}, {"hidden": (8, 5)}], ids=str)
def test_second_derivatives_in_every_mode_are_finite_differences(settings, float64):
    """Hessian-vector products of Σ c log π, with `log_probs_of` and with `scores.log_probs`."""
    env = stormpg.make("cartpole-continuous")
    policy = stormpg.policy_for(env, **({"hidden": (8,)} | settings))
    params = policy.init(jax.random.key(0))
    batch = stormpg.rollout(env, policy, params, jax.random.key(1), 3, 12)
    flat, unravel = ravel_pytree(params)
    direction = jax.random.normal(jax.random.key(2), flat.shape)
    weight = jax.random.normal(jax.random.key(3), batch.mask.shape) * batch.mask
    rows = lambda x: x.reshape(-1, x.shape[-1])

    def by_rows(flat):
        values = log_probs_of(policy, unravel(flat), rows(batch.observation), rows(batch.action))
        return (weight.ravel() * values).sum()

    for value in (by_rows, lambda flat: (weight * log_probs(policy, unravel(flat), batch)).sum()):
        gradient = jax.jit(jax.grad(value))
        np.testing.assert_allclose(jax.jvp(value, (flat,), (direction,))[1], gradient(flat) @ direction, rtol=1e-10)
        expected = (gradient(flat + 1e-5 * direction) - gradient(flat - 1e-5 * direction)) / 2e-5
        forward_over_reverse = jax.jvp(gradient, (flat,), (direction,))[1]
        reverse_over_forward = jax.grad(lambda flat, value=value: jax.jvp(value, (flat,), (direction,))[1])(flat)
        for found in (forward_over_reverse, reverse_over_forward):
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_the_first_layer_needs_one_product_backwards():
    """Weights and biases share it. Observations need no gradient, so nothing is computed for them."""
    rows, weight, bias = jnp.ones((50, 4)), jnp.ones((4, 8)), jnp.ones(8)
    count = lambda arguments: str(
        jax.make_jaxpr(jax.grad(lambda *a: few_inputs(*a).sum(), argnums=arguments))(rows, weight, bias)
    ).count("dot_general")
    assert count((1, 2)) == 1
    assert count((0, 1, 2)) == 2

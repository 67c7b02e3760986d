"""Policies π_ξ(a|s): Gaussian and categorical, on any network.

A policy is anything with four functions, each for one observation:

    init(key) -> params;  sample(params, key, obs) -> action;  log_prob(params, obs, action);  mode(params, obs)

It may also give `noise(key, shape)` and `act(params, obs, noise)`, with sample = act ∘ noise: a rollout then draws all
its noise at once, which is faster; `in_steps()`, the same policy in the form that a rollout computes fastest; and
`log_prob_rows(params, observations, actions)`, `log_prob` of many rows, in the form that is fastest to differentiate.
`kl(params, other, obs)` = KL(π_params ‖ π_other) is needed by the natural-gradient step alone. The fixed σ is a setting, not a
parameter: ξ holds what the gradient moves, and nothing else.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.envs.base import AnyEnvironment, Box, Discrete, OutsideEnvironment
from stormpg.errors import InputError, choose, nearest
from stormpg.networks import MLP, LinearFeatures, Network, Table, network, on_rows
from stormpg.records import Tree, as_float, in_steps, own_method, record, static


@record
class Gaussian:
    """π_ξ(a|s) = N(mean_ξ(s), σ²), independent for each action dimension; σ fixed, or one learned log σ for each."""

    sigma: Array
    mean: Network = static()
    action_dim: int = static()
    learn_sigma: bool = static(default=False)

    def init(self, key: Array) -> Tree:
        params = {"mean": self.mean.init(key)}
        if self.learn_sigma:
            params["log_sigma"] = jnp.broadcast_to(jnp.log(as_float(self.sigma)), (self.action_dim,))
        return params

    def deviation(self, params: Tree) -> Array:
        return jnp.exp(params["log_sigma"]) if self.learn_sigma else jnp.broadcast_to(self.sigma, (self.action_dim,))

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.normal(key, (*shape, self.action_dim))

    def act(self, params: Tree, observation: Array, noise: Array) -> Array:
        return self.mode(params, observation) + self.deviation(params) * noise

    def sample(self, params: Tree, key: Array, observation: Array) -> Array:
        return self.act(params, observation, self.noise(key, ()))

    def log_prob(self, params: Tree, observation: Array, action: Array) -> Array:
        return self.log_density(params, self.mode(params, observation), action)

    def log_prob_rows(self, params: Tree, observations: Array, actions: Array) -> Array:
        means = on_rows(self.mean, params["mean"], observations)
        return jax.vmap(self.log_density, (None, 0, 0))(params, means, actions)

    def log_density(self, params: Tree, mean: Array, action: Array) -> Array:
        sigma = self.deviation(params)
        z = (action - mean) / sigma
        return -(0.5 * z * z + jnp.log(sigma)).sum() - 0.5 * self.action_dim * math.log(2 * math.pi)

    def mode(self, params: Tree, observation: Array) -> Array:
        return self.mean.apply(params["mean"], observation)

    def in_steps(self) -> "Gaussian":
        return dataclasses.replace(self, mean=in_steps(self.mean))

    def kl(self, params: Tree, other: Tree, observation: Array) -> Array:
        a, b = self.deviation(params), self.deviation(other)
        gap = self.mode(params, observation) - self.mode(other, observation)
        return (jnp.log(b / a) + (a * a + gap * gap) / (2 * b * b) - 0.5).sum()


@record
class Categorical:
    """π_ξ(a|s) = softmax(logits_ξ(s))_a. Sampling adds Gumbel noise and takes the largest."""

    logits: Network = static()
    actions: int = static()

    def init(self, key: Array) -> Tree:
        return {"logits": self.logits.init(key)}

    def log_probabilities(self, params: Tree, observation: Array) -> Array:
        return jax.nn.log_softmax(self.logits.apply(params["logits"], observation))

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.gumbel(key, (*shape, self.actions))

    def act(self, params: Tree, observation: Array, noise: Array) -> Array:
        return jnp.argmax(self.logits.apply(params["logits"], observation) + noise)

    def sample(self, params: Tree, key: Array, observation: Array) -> Array:
        return self.act(params, observation, self.noise(key, ()))

    def log_prob(self, params: Tree, observation: Array, action: Array) -> Array:
        return self.log_chance(self.logits.apply(params["logits"], observation), action)

    def log_prob_rows(self, params: Tree, observations: Array, actions: Array) -> Array:
        return jax.vmap(self.log_chance)(on_rows(self.logits, params["logits"], observations), actions)

    def log_chance(self, logits: Array, action: Array) -> Array:
        return jnp.where(jnp.arange(self.actions) == action, jax.nn.log_softmax(logits), 0.0).sum()

    def mode(self, params: Tree, observation: Array) -> Array:
        return jnp.argmax(self.logits.apply(params["logits"], observation))

    def in_steps(self) -> "Categorical":
        return dataclasses.replace(self, logits=in_steps(self.logits))

    def kl(self, params: Tree, other: Tree, observation: Array) -> Array:
        p, q = self.log_probabilities(params, observation), self.log_probabilities(other, observation)
        return (jnp.exp(p) * (p - q)).sum()


Policy = Gaussian | Categorical


def log_probs_of(policy: Any, params: Tree, observations: Array, actions: Array) -> Array:
    """log π_ξ(a|s) of many rows, [n]."""
    log_probs = own_method(policy, "log_prob_rows") or jax.vmap(policy.log_prob, (None, 0, 0))
    return log_probs(params, observations, actions)


def gaussian(mean: Any, action_dim: int, sigma: float = 1.0, learn_sigma: bool = False) -> Gaussian:
    """A Gaussian policy on a network of the user's: an (init, apply) pair or an Equinox module, giving the mean."""
    _positive("sigma", sigma)
    return Gaussian(as_float(sigma), network(mean), action_dim, learn_sigma)


def gaussian_mlp(
    observation_dim: int,
    action_dim: int,
    hidden: Sequence[int] = (64,),
    sigma: float = 1.0,
    learn_sigma: bool = False,
) -> Gaussian:
    """The paper's policy: an MLP of tanh units (one hidden layer of 64) gives the mean, σ is fixed."""
    return gaussian(MLP((observation_dim, *hidden, action_dim)), action_dim, sigma, learn_sigma)


def gaussian_linear(
    psi: Callable[[Array], Array], feature_dim: int, action_dim: int, sigma: float = 1.0, learn_sigma: bool = False
) -> Gaussian:
    """The paper's §2.3: the mean is ξᵀψ(s)."""
    return gaussian(LinearFeatures(psi, feature_dim, action_dim), action_dim, sigma, learn_sigma)


def categorical(logits: Any, actions: int) -> Categorical:
    """A soft-max policy on a network of the user's: an (init, apply) pair or an Equinox module, giving the logits."""
    return Categorical(network(logits), actions)


def categorical_mlp(observation_dim: int, actions: int, hidden: Sequence[int] = (64,)) -> Categorical:
    """A soft-max policy whose logits come from an MLP of tanh units."""
    return categorical(MLP((observation_dim, *hidden, actions)), actions)


def softmax_table(states: int, actions: int) -> Categorical:
    """A soft-max policy with one logit for each (state, action); observations are integers."""
    return categorical(Table(states, actions), actions)


def with_one(observation: Array) -> Array:
    """ψ(s) = (s, 1), the feature map of `policy_for(env, kind="gaussian-linear")`."""
    return jnp.append(observation, 1.0)


KINDS: dict[str, tuple[str, ...]] = {  # the kinds of `policy_for`, and the settings each one has
    "gaussian-mlp": ("hidden", "sigma", "learn_sigma", "normalise"),
    "gaussian-linear": ("sigma", "learn_sigma", "normalise"),
    "categorical-mlp": ("hidden", "normalise"),
    "softmax-table": (),
}


def policy_for(env: AnyEnvironment, kind: str | None = None, **settings: Any) -> Any:
    """The usual policy for an environment's spaces, or one of a given kind with its settings.

    Kinds and settings: gaussian-mlp (hidden, sigma, learn_sigma), gaussian-linear (sigma, learn_sigma; ψ(s) = (s, 1)),
    categorical-mlp (hidden), softmax-table; all but the last also normalise (see `normalised`).
    """
    observations, actions = env.observation_space, env.action_space
    usual = "gaussian-mlp" if isinstance(actions, Box) else "categorical-mlp"
    if isinstance(observations, Discrete):
        usual = "softmax-table"
    kind = choose("policy", kind or usual, KINDS)
    for name in settings:
        if name not in KINDS[kind]:
            raise InputError(f"the policy {kind} has no setting {name!r}: {nearest(name, KINDS[kind])}.")
    if isinstance(actions, Box) != kind.startswith("gaussian"):
        given, has = ("Gaussian", "discrete") if isinstance(actions, Discrete) else ("categorical", "continuous")
        raise InputError(f"{env.name} has {has} actions and the policy {kind} is {given}: take {usual}.")
    if isinstance(observations, Discrete) != (kind == "softmax-table"):
        raise InputError(f"{env.name} has other observations than the policy {kind} takes: take {usual}.")
    if kind == "softmax-table":
        return softmax_table(observations.n, actions.n)  # type: ignore[union-attr]
    size = math.prod(observations.shape)  # type: ignore[union-attr]
    if settings.pop("normalise", False):
        from stormpg.normalised import Normalised

        return Normalised(policy_for(env, kind, **settings), size)
    if isinstance(actions, Discrete):
        return categorical_mlp(size, actions.n, **settings)
    action_dim = math.prod(actions.shape)
    if kind == "gaussian-linear":
        return gaussian_linear(with_one, size + 1, action_dim, **settings)
    return gaussian_mlp(size, action_dim, **settings)


def describe_policy(policy: Any) -> dict[str, Any] | None:
    """The kind and settings with which `policy_for` makes this policy again; None for one of the user's own."""
    from stormpg.normalised import Normalised

    if isinstance(policy, Normalised):
        inner = describe_policy(policy.policy)
        return None if inner is None else {**inner, "normalise": True}
    if isinstance(policy, Gaussian):
        about: dict[str, Any] = {"sigma": float(policy.sigma), "learn_sigma": policy.learn_sigma}
        if isinstance(policy.mean, MLP):
            return {"kind": "gaussian-mlp", "hidden": list(policy.mean.sizes[1:-1]), **about}
        if isinstance(policy.mean, LinearFeatures) and policy.mean.psi is with_one:
            return {"kind": "gaussian-linear", **about}
    if isinstance(policy, Categorical):
        if isinstance(policy.logits, MLP):
            return {"kind": "categorical-mlp", "hidden": list(policy.logits.sizes[1:-1])}
        if isinstance(policy.logits, Table):
            return {"kind": "softmax-table"}
    return None


def check_policy(env: AnyEnvironment, policy: Any) -> None:
    """InputError where a policy's actions are not the environment's: it samples one, without running anything."""
    key = jax.eval_shape(jax.random.key, 0)
    params = jax.eval_shape(policy.init, key)
    if isinstance(env, OutsideEnvironment):
        observation = jax.ShapeDtypeStruct(env.observation_space.shape, jnp.float32)
    else:
        observation = jax.eval_shape(env.reset, key)[1]
    action = jax.eval_shape(policy.sample, params, key, observation)
    whole = jnp.issubdtype(action.dtype, jnp.integer)
    if isinstance(env.action_space, Discrete) and (not whole or action.shape != ()):
        raise InputError(
            f"{env.name} has {env.action_space.n} discrete actions and the policy samples {action.dtype}{list(action.shape)}: "
            "take a categorical policy, or policy_for(env)."
        )
    if isinstance(env.action_space, Box) and (whole or action.shape != env.action_space.shape):
        raise InputError(
            f"{env.name} has continuous actions of shape {list(env.action_space.shape)} and the policy samples "
            f"{action.dtype}{list(action.shape)}: take a Gaussian policy, or policy_for(env)."
        )


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, jax.core.Tracer) and not value > 0:
        raise InputError(f"{name} is {value}; expected a number above 0.")

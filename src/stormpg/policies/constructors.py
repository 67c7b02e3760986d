"""Constructors of all policies, and the default policy for an environment.

The policy interface and the policy families are in `families`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.envs.base import AnyEnvironment, Box, Discrete, MultiDiscrete, action_bounds
from stormpg.errors import InputError, choose, nearest, warn_pictures
from stormpg.policies.censored import Censored
from stormpg.policies.families import Categorical as Categorical
from stormpg.policies.families import Gaussian as Gaussian
from stormpg.policies.families import MultiCategorical as MultiCategorical
from stormpg.policies.families import Policy as Policy
from stormpg.policies.networks import MLP, LinearFeatures, LookupTable, network
from stormpg.policies.normalisation import Normalised
from stormpg.pytrees import as_float, check_positive

WIDEST = 1e5  # bounds with a larger half-width do not tell the useful range of actions and are ignored


def gaussian(
    mean: Any,
    action_dim: int,
    sigma: float = 1.0,
    learn_sigma: bool = False,
    *,
    sigma_step: float | None = None,
    sigma_batch: int | None = None,
    low: Any = None,
    high: Any = None,
) -> Gaussian:
    """Return a Gaussian policy whose mean is a network of yours: an (init, apply) pair or an Equinox module.

    `sigma_step`: the largest change of log σ in one step, if σ is learned. `sigma_batch`: after a batch of fewer time steps
    than this, the limit is proportionally smaller.

    `low`, `high`: bounds of the actions, one number or one per dimension. In every dimension with both bounds, the mean is then
    measured from their centre, and the mean and σ in units of their half-width.
    """
    limits = {"sigma_step": sigma_step, "sigma_batch": sigma_batch}
    check_positive(sigma=sigma, **{name: value for name, value in limits.items() if value is not None})
    limit, scale = None if sigma_step is None else as_float(sigma_step), scale_of(action_dim, low, high)
    return Gaussian(as_float(sigma), network(mean), action_dim, learn_sigma, limit, sigma_batch, scale)


def scale_of(action_dim: int, low: Any, high: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the centre and half-width of each dimension, or None if no dimension is scaled.

    A dimension has centre 0 and half-width 1 if one of its bounds is missing or too large.
    """
    if low is None or high is None:
        return None
    try:
        low, high = (np.broadcast_to(np.asarray(bound, float), (action_dim,)) for bound in (low, high))
    except ValueError:
        raise InputError(
            f"the bounds {low}, {high} are not those of {action_dim} actions: give one number, or one per action."
        ) from None
    with np.errstate(over="ignore", invalid="ignore"):
        centre, half_width = (low + high) / 2, (high - low) / 2
    bounded = np.isfinite(low) & np.isfinite(high) & (half_width > 0) & (half_width <= WIDEST)
    centre, half_width = np.where(bounded, centre, 0.0), np.where(bounded, half_width, 1.0)
    if (centre == 0).all() and (half_width == 1).all():
        return None
    return tuple(centre.tolist()), tuple(half_width.tolist())


def gaussian_mlp(
    observation_dim: int,
    action_dim: int,
    hidden: Sequence[int] = (64,),
    sigma: float = 1.0,
    learn_sigma: bool = False,
    *,
    sigma_step: float | None = None,
    sigma_batch: int | None = None,
    output_scale: float = 1.0,
    low: Any = None,
    high: Any = None,
) -> Gaussian:
    """Return the paper's policy: the mean is an MLP of tanh units (by default one hidden layer of 64), and σ is fixed.

    `output_scale`: a factor on the initial weights of the output layer. The rest as in `gaussian`.
    """
    network = MLP((observation_dim, *hidden, action_dim), output_scale=output_scale)
    return gaussian(
        network, action_dim, sigma, learn_sigma, sigma_step=sigma_step, sigma_batch=sigma_batch, low=low, high=high
    )  # fmt: skip


def gaussian_linear(
    psi: Callable[[Array], Array],
    feature_dim: int,
    action_dim: int,
    sigma: float = 1.0,
    learn_sigma: bool = False,
    *,
    sigma_step: float | None = None,
    sigma_batch: int | None = None,
    low: Any = None,
    high: Any = None,
) -> Gaussian:
    """Return the policy of the paper's §2.3: the mean is ξᵀψ(s). The rest as in `gaussian`."""
    network = LinearFeatures(psi, feature_dim, action_dim)
    return gaussian(
        network, action_dim, sigma, learn_sigma, sigma_step=sigma_step, sigma_batch=sigma_batch, low=low, high=high
    )  # fmt: skip


def categorical(logits: Any, actions: int) -> Categorical:
    """Return a soft-max policy whose logits are a network of yours: an (init, apply) pair or an Equinox module."""
    return Categorical(network(logits), actions)


def categorical_mlp(
    observation_dim: int, actions: int, hidden: Sequence[int] = (64,), *, output_scale: float = 1.0
) -> Categorical:
    """Return a soft-max policy whose logits are an MLP of tanh units; `output_scale` as in `gaussian_mlp`."""
    return categorical(MLP((observation_dim, *hidden, actions), output_scale=output_scale), actions)


def multi_categorical(logits: Any, sizes: Sequence[int]) -> MultiCategorical:
    """Return a policy of independent choices of these sizes.

    `logits`: a network of yours that returns the logits of all choices, concatenated.
    """
    sizes = tuple(int(size) for size in sizes)
    if not sizes or min(sizes) < 1:
        raise InputError(f"sizes is {sizes}; expected the number of values of each action, at least 1.")
    return MultiCategorical(network(logits), sizes)


def multi_categorical_mlp(
    observation_dim: int, sizes: Sequence[int], hidden: Sequence[int] = (64,), *, output_scale: float = 1.0
) -> MultiCategorical:
    """Return a policy of independent choices of these sizes whose logits are one MLP of tanh units.

    `output_scale` as in `gaussian_mlp`.
    """
    return multi_categorical(MLP((observation_dim, *hidden, sum(map(int, sizes))), output_scale=output_scale), sizes)


def softmax_table(states: int, actions: int) -> Categorical:
    """Return a soft-max policy with one logit for each (state, action). Observations are integers."""
    return categorical(LookupTable(states, actions), actions)


def with_one(observation: Array) -> Array:
    """ψ(s) = (s, 1), the feature map of `policy_for(env, kind="gaussian-linear")`."""
    return jnp.append(observation, 1.0)


GAUSSIAN = ("sigma", "learn_sigma", "sigma_step", "sigma_batch", "scaled", "censored", "normalise")
KINDS: dict[str, tuple[str, ...]] = {  # the kinds of `policy_for`, and the settings of each
    "gaussian-mlp": ("hidden", "output_scale", *GAUSSIAN),
    "gaussian-linear": GAUSSIAN,
    "categorical-mlp": ("hidden", "output_scale", "normalise"),
    "multi-categorical-mlp": ("hidden", "output_scale", "normalise"),
    "softmax-table": (),
}


SPACES: dict[str, type] = {  # the action space of each kind
    "gaussian-mlp": Box,
    "gaussian-linear": Box,
    "categorical-mlp": Discrete,
    "multi-categorical-mlp": MultiDiscrete,
    "softmax-table": Discrete,
}
FAMILIES: dict[type, str] = {Box: "Gaussian", Discrete: "categorical", MultiDiscrete: "multi-categorical"}


def policy_for(env: AnyEnvironment, kind: str | None = None, **settings: Any) -> Any:
    """Return the default policy for an environment's spaces, or a policy of the given kind with its settings.

    Kinds and settings: gaussian-mlp (hidden, output_scale, sigma, learn_sigma, sigma_step, sigma_batch, scaled, censored),
    gaussian-linear (the same without the first two; ψ(s) = (s, 1)), categorical-mlp and multi-categorical-mlp (hidden,
    output_scale), softmax-table. All but the last also have normalise (see `Normalised`): true, false, or "large" for
    `only_large`. `scaled=False`: the actions of a Gaussian policy are in the environment's units, and its bounds are ignored.
    `censored=True`: the density is that of the clipped action (see `censored`), if the environment has bounds and clips.
    """
    observations, actions = env.observation_space, env.action_space
    usual = usual_kind(env)
    kind = choose("policy", kind or usual, KINDS)
    for name in settings:
        if name not in KINDS[kind]:
            raise InputError(f"the policy {kind} has no setting {name!r}: {nearest(name, KINDS[kind])}.")
    if not isinstance(actions, SPACES[kind]):
        raise InputError(f"{env.name} has {_actions(env)} and the policy {kind} is {FAMILIES[SPACES[kind]]}: use {usual}.")
    if isinstance(observations, Discrete) != (kind == "softmax-table"):
        raise InputError(f"{env.name} has other observations than the policy {kind} takes: use {usual}.")
    if kind == "softmax-table":
        return softmax_table(observations.n, actions.n)  # type: ignore[union-attr]
    assert isinstance(observations, Box), "an observation is one integer or a vector"
    size, normalise = math.prod(observations.shape), settings.pop("normalise", False)
    if kind.endswith("-mlp"):
        warn_pictures(env.name, size, (observations.low, observations.high), normalise)
    if not isinstance(normalise, bool) and normalise != "large":
        raise InputError(f"normalise is {normalise!r}; expected true, false or 'large'.")
    policy = _flat_policy(env, kind, size, settings)
    return Normalised(policy, size, only_large=normalise == "large") if normalise else policy


def policy_of_algorithm(env: AnyEnvironment, recommended: Mapping[str, Any], kind: str | None = None, **settings: Any) -> Any:
    """Return `policy_for` with the settings that an algorithm recommends, where this kind of policy has them.

    `recommended["clipped"]`: further settings for environments that clip actions.
    """
    own = KINDS.get(kind or usual_kind(env), ())
    fitting = {**recommended, **(recommended.get("clipped", {}) if clips_actions(env) else {})}
    return policy_for(env, kind, **{name: value for name, value in fitting.items() if name in own} | settings)


def clips_actions(env: AnyEnvironment) -> bool:
    """Return whether the environment has bounds, and only clipped actions matter to it."""
    return isinstance(env.action_space, Box) and env.clips and bool(np.isfinite(action_bounds(env)).any())


def _flat_policy(env: AnyEnvironment, kind: str, size: int, settings: dict[str, Any]) -> Policy:
    """Return a policy of this kind for observations of this size."""
    actions = env.action_space
    if isinstance(actions, Discrete):
        return categorical_mlp(size, actions.n, **settings)
    if isinstance(actions, MultiDiscrete):
        return multi_categorical_mlp(size, actions.sizes, **settings)
    action_dim, scaled = math.prod(actions.shape), settings.pop("scaled", True)
    bounds, censored = action_bounds(env), settings.pop("censored", False)
    low, high = bounds if scaled is True else (None, None)
    if kind == "gaussian-linear":
        policy = gaussian_linear(with_one, size + 1, action_dim, **settings, low=low, high=high)
    else:
        policy = gaussian_mlp(size, action_dim, **settings, low=low, high=high)
    policy = policy if isinstance(scaled, bool) else dataclasses.replace(policy, scale=_described_scale(scaled, action_dim))
    return censor(policy, *bounds) if censored and clips_actions(env) else policy


def censor(policy: Gaussian, low: np.ndarray, high: np.ndarray) -> Gaussian:
    """Return the policy with the density of actions clipped to these bounds."""
    fields = {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}
    return Censored(**fields, bounds=(tuple(low.tolist()), tuple(high.tolist())))


def _described_scale(scale: Any, action_dim: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the scale that `describe_policy` wrote, after checking it."""
    try:
        centre, half_width = (tuple(map(float, part)) for part in scale)
        right = len(centre) == len(half_width) == action_dim and np.isfinite([centre, half_width]).all()
    except (TypeError, ValueError):
        right = False
    if not right or min(half_width) <= 0:
        raise InputError(
            f"scaled is {str(scale)[:60]}; expected true, false, or centres and half-widths of {action_dim} actions."
        )
    return centre, half_width


def usual_kind(env: AnyEnvironment) -> str:
    """Return the kind of policy that `policy_for` uses by default for an environment."""
    if isinstance(env.observation_space, Discrete):
        return "softmax-table"
    return next(kind for kind, space in SPACES.items() if isinstance(env.action_space, space))


def _actions(env: AnyEnvironment) -> str:
    """Return a short text on the actions of an environment, for error messages."""
    space = env.action_space
    if isinstance(space, Discrete):
        return f"{space.n} discrete actions"
    if isinstance(space, MultiDiscrete):
        return f"several discrete actions at once, of sizes {list(space.sizes)[:20]}"
    return f"continuous actions of shape {list(space.shape)}"


def check_policy(env: AnyEnvironment, policy: Any) -> None:
    """Raise InputError if a policy does not sample actions of the environment. Only shapes are evaluated."""
    if isinstance(policy, str) or not all(hasattr(policy, name) for name in ("init", "sample", "log_prob", "mode")):
        raise InputError(
            f"policy is {policy!r}; expected a policy, such as policy_for(env) or policy_for(env, {usual_kind(env)!r}), or an "
            "object with init, sample, log_prob and mode."
        )
    key = jax.eval_shape(jax.random.key, 0)
    params = jax.eval_shape(policy.init, key)
    action = jax.eval_shape(policy.sample, params, key, env.observed)
    whole = bool(jnp.issubdtype(action.dtype, jnp.integer))
    shape = () if isinstance(env.action_space, Discrete) else env.action_space.shape
    if whole == isinstance(env.action_space, Box) or action.shape != shape:
        raise InputError(
            f"{env.name} has {_actions(env)} and the policy samples {action.dtype}{list(action.shape)}: use "
            f"a {FAMILIES[type(env.action_space)]} policy, or policy_for(env)."
        )

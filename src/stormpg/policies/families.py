"""Policy families π_ξ(a|s) on any network: Gaussian, categorical, and several independent categorical choices.

A policy is any object with four functions, each for one observation:

    init(key) -> params;  sample(params, key, obs) -> action;  log_prob(params, obs, action);  mode(params, obs)

Optional functions:

    noise(key, shape), act(params, obs, noise)          with sample = act ∘ noise; a rollout then draws all its noise at once,
                                                        which is faster
    in_steps()                                          the same policy in the form that is fastest in a rollout
    log_prob_rows(params, observations, actions)        `log_prob` of many rows, in the form that is fastest to differentiate
    kl(params, other, obs) = KL(π_params ‖ π_other)     required by the natural-gradient step only
    observe(params, moved, trajectories) -> params      learn from a batch other than by its gradient, such as statistics
    limit_step(params, moved, steps) -> params          restrict a step from `params` to `moved`, after `steps` new time steps

A fixed σ is a setting, not a parameter: ξ holds only what the gradient updates.

`policy_for` passes the action bounds to a Gaussian policy. The policy is then Gaussian in (a − centre)/half-width, so that
σ = 1 is half the range in any units. With bounds ±1 this is the action itself, and nothing is scaled.
"""

import abc
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.policies.networks import Network, on_rows
from stormpg.pytrees import Tree, as_float, in_steps, own_method, record, static


@record
class Gaussian:
    """π_ξ(a|s) = N(mean_ξ(s), σ²), independent for each action dimension. σ is fixed, or log σ is learned for each dimension.

    `scale`: the centre and the half-width w of each dimension's bounds. The action is centre + w · (network + σ · noise), so
    its mean is centre + w · network and its standard deviation w · σ. None: centre 0 and w = 1, without extra computation.
    """

    sigma: Array
    mean: Network = static()
    action_dim: int = static()
    learn_sigma: bool = static(default=False)
    sigma_step: Array | None = None  # the largest change of log σ in one step; None: not limited
    sigma_batch: int | None = static(default=None)  # if `steps` is below this, the limit is proportional to it
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = static(default=None)

    def init(self, key: Array) -> Tree:
        params = {"mean": self.mean.init(key)}
        if self.learn_sigma:
            params["log_sigma"] = jnp.broadcast_to(jnp.log(as_float(self.sigma)), (self.action_dim,))
        return params

    def deviation(self, params: Tree) -> Array:
        """Return the standard deviation of each action dimension."""
        sigma = jnp.exp(params["log_sigma"]) if self.learn_sigma else jnp.broadcast_to(self.sigma, (self.action_dim,))
        return sigma if self.scale is None else jnp.asarray(self.scale[1], sigma.dtype) * sigma

    def placed(self, output: Any) -> Any:
        """Return the mean action for a network output, which is a JAX or a NumPy array."""
        if self.scale is None:
            return output
        centre, half_width = (np.asarray(part, output.dtype) for part in self.scale)
        return centre + half_width * output

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.normal(key, (*shape, self.action_dim))

    def act(self, params: Tree, observation: Array, noise: Array) -> Array:
        return self.mode(params, observation) + self.deviation(params) * noise

    def sample(self, params: Tree, key: Array, observation: Array) -> Array:
        return self.act(params, observation, self.noise(key, ()))

    def log_prob(self, params: Tree, observation: Array, action: Array) -> Array:
        return self.log_density(params, self.mode(params, observation), action)

    def log_prob_rows(self, params: Tree, observations: Array, actions: Array) -> Array:
        means = self.placed(on_rows(self.mean, params["mean"], observations))
        return jax.vmap(self.log_density, (None, 0, 0))(params, means, actions)

    def log_density(self, params: Tree, mean: Array, action: Array) -> Array:
        """Return the log-density of an action under this mean."""
        sigma = self.deviation(params)
        z = (action - mean) / sigma
        return -(0.5 * z * z + jnp.log(sigma)).sum() - 0.5 * self.action_dim * math.log(2 * math.pi)

    def mode(self, params: Tree, observation: Array) -> Array:
        mean: Array = self.placed(self.mean.apply(params["mean"], observation))
        return mean

    def in_steps(self) -> "Gaussian":
        return dataclasses.replace(self, mean=in_steps(self.mean))

    def limit_step(self, params: Tree, moved: Tree, steps: Array) -> Tree:
        """Return `moved` with a change of log σ of at most `sigma_step`, or less after few time steps."""
        if not self.learn_sigma or self.sigma_step is None:
            return moved
        most = self.sigma_step * (1.0 if self.sigma_batch is None else jnp.minimum(steps / self.sigma_batch, 1.0))
        change = jnp.clip(moved["log_sigma"] - params["log_sigma"], -most, most)
        return {**moved, "log_sigma": params["log_sigma"] + change}

    def kl(self, params: Tree, other: Tree, observation: Array) -> Array:
        a, b = self.deviation(params), self.deviation(other)
        gap = self.mode(params, observation) - self.mode(other, observation)
        return (jnp.log(b / a) + (a * a + gap * gap) / (2 * b * b) - 0.5).sum()


class SoftMax(abc.ABC):
    """What both families on logits share. A subclass says how logits are arranged: the last axis is that of one choice."""

    logits: Network

    @abc.abstractmethod
    def arranged(self, logits: Array) -> Array:
        """Return the logits with one choice on the last axis."""

    @abc.abstractmethod
    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Return Gumbel noise for the logits."""

    def chance(self, logits: Array, action: Array) -> Array:
        """Return the log-probability of an action under these logits."""
        table = self.arranged(logits)
        chosen = jnp.arange(table.shape[-1]) == jnp.expand_dims(action, -1)
        return jnp.where(chosen, jax.nn.log_softmax(table), 0.0).sum()

    def init(self, key: Array) -> Tree:
        return {"logits": self.logits.init(key)}

    def act(self, params: Tree, observation: Array, noise: Array | float) -> Array:
        return jnp.argmax(self.arranged(self.logits.apply(params["logits"], observation) + noise), axis=-1)

    def sample(self, params: Tree, key: Array, observation: Array) -> Array:
        return self.act(params, observation, self.noise(key, ()))

    def log_prob(self, params: Tree, observation: Array, action: Array) -> Array:
        return self.chance(self.logits.apply(params["logits"], observation), action)

    def rows(self, params: Tree, observations: Array, actions: Array) -> Array:
        return jax.vmap(self.chance)(on_rows(self.logits, params["logits"], observations), actions)

    def mode(self, params: Tree, observation: Array) -> Array:
        return self.act(params, observation, 0.0)

    def kl(self, params: Tree, other: Tree, observation: Array) -> Array:
        p, q = (jax.nn.log_softmax(self.arranged(self.logits.apply(each["logits"], observation))) for each in (params, other))
        return (jnp.exp(p) * (p - q)).sum()


@record
class Categorical(SoftMax):
    """π_ξ(a|s) = softmax(logits_ξ(s))_a. An action is sampled by adding Gumbel noise and taking the largest."""

    logits: Network = static()
    actions: int = static()

    log_prob_rows = SoftMax.rows  # its own, see `own_method`

    def arranged(self, logits: Array) -> Array:
        return logits

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.gumbel(key, (*shape, self.actions))

    def in_steps(self) -> "Categorical":
        return dataclasses.replace(self, logits=in_steps(self.logits))


@record
class MultiCategorical(SoftMax):
    """Independent soft-max choices, the i-th among sizes[i]. An action is a vector of integers.

    The network returns the logits of all choices, concatenated. They are arranged as a table with one row per choice, padded
    with NEVER to the size of the largest choice.
    """

    logits: Network = static()
    sizes: tuple[int, ...] = static()

    log_prob_rows = SoftMax.rows  # its own, see `own_method`

    def arranged(self, logits: Array) -> Array:
        table: Array = table_rows(jnp, logits, self.sizes)
        return table

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.gumbel(key, (*shape, sum(self.sizes)))

    def in_steps(self) -> "MultiCategorical":
        return dataclasses.replace(self, logits=in_steps(self.logits))


NEVER = -1e30  # the logit of the padding; finite, so that 0 · NEVER is 0


def table_rows(numpy: Any, values: Any, sizes: tuple[int, ...]) -> Any:
    """Return logits of choices of these sizes, [..., Σ sizes], as a table, [..., choices, largest size].

    `numpy`: `numpy` or `jax.numpy`.
    """
    rows, first = [], 0
    for size in sizes:
        padding = numpy.full((*values.shape[:-1], max(sizes) - size), NEVER, values.dtype)
        rows.append(numpy.concatenate((values[..., first : first + size], padding), axis=-1))
        first += size
    return numpy.stack(rows, axis=-2)


Policy = Gaussian | Categorical | MultiCategorical


def log_probs_of(policy: Any, params: Tree, observations: Array, actions: Array) -> Array:
    """Return log π_ξ(a|s) of many rows, [n]."""
    log_prob_rows = own_method(policy, "log_prob_rows") or jax.vmap(policy.log_prob, (None, 0, 0))
    log_probs: Array = log_prob_rows(params, observations, actions)
    return log_probs

"""Observation normalisation: a policy on observations minus their running mean, divided by their running deviation.

The statistics are part of ξ. They are therefore saved with it, and every stored iterate has its own. The older parameters
that a tracker compares with keep the statistics they acted with, because importance weights are ratios of the densities that
were, or would have been, sampled from. Gradients do not change the statistics. Each iteration adds its batch to them.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.policies.families import log_probs_of
from stormpg.pytrees import Tree, in_steps, record, static
from stormpg.trajectories import Trajectories


class Seen(NamedTuple):
    """Statistics of the observations so far. Before the first batch, the mean is 0 and the deviation is taken as 1."""

    number: Array  # of observations
    mean: Array
    squares: Array  # Σ (s − mean)²


@record
class Normalised:
    """`policy` on clip((s − mean)/deviation, ±clip). ξ is {"policy": the parameters of `policy`, "seen": the statistics}.

    `only_large`: on clip(s/max(1, root mean square of s), ±clip) instead. Small observations stay as they are: their deviation
    grows while a policy learns, and dividing by it would change the policy.
    """

    policy: Any
    observation_dim: int = static()
    clip: float = static(default=10.0)
    only_large: bool = static(default=False)

    def init(self, key: Array) -> Tree:
        zeros = jnp.zeros(self.observation_dim)
        return {"policy": self.policy.init(key), "seen": Seen(jnp.zeros(()), zeros, zeros)}

    def shift_and_spread(self, params: Tree) -> tuple[Array, Array]:
        """Return the mean that is subtracted and the deviation that is divided by."""
        number, mean, squares = jax.lax.stop_gradient(params["seen"])
        if self.only_large:
            square = squares / jnp.maximum(number, 1.0) + mean**2
            return jnp.zeros_like(mean), jnp.sqrt(jnp.maximum(square, 1.0))
        known = number > 1
        return mean, jnp.sqrt(jnp.where(known, squares / jnp.where(known, number, 1.0), 1.0) + 1e-8)

    def scale(self, params: Tree, observation: Array) -> Array:
        """Return the normalised observation."""
        return self.scale_by(*self.shift_and_spread(params), observation)

    def scale_by(self, shift: Array, spread: Array, observation: Array) -> Array:
        """Return the observation normalised by these numbers."""
        return jnp.clip((observation - shift) / spread, -self.clip, self.clip)

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        noise: Array = self.policy.noise(key, shape)
        return noise

    def act(self, params: Tree, observation: Array, noise: Array) -> Array:
        action: Array = self.policy.act(params["policy"], self.scale(params, observation), noise)
        return action

    def sample(self, params: Tree, key: Array, observation: Array) -> Array:
        action: Array = self.policy.sample(params["policy"], key, self.scale(params, observation))
        return action

    def log_prob(self, params: Tree, observation: Array, action: Array) -> Array:
        log_prob: Array = self.policy.log_prob(params["policy"], self.scale(params, observation), action)
        return log_prob

    def log_prob_rows(self, params: Tree, observations: Array, actions: Array) -> Array:
        return log_probs_of(self.policy, params["policy"], self.scale(params, observations), actions)

    def mode(self, params: Tree, observation: Array) -> Array:
        action: Array = self.policy.mode(params["policy"], self.scale(params, observation))
        return action

    def in_steps(self) -> "Normalised":
        return dataclasses.replace(self, policy=in_steps(self.policy))

    def kl(self, params: Tree, other: Tree, observation: Array) -> Array:
        # A step does not change the statistics, so both policies see the same observation.
        divergence: Array = self.policy.kl(params["policy"], other["policy"], self.scale(params, observation))
        return divergence

    def limit_step(self, params: Tree, moved: Tree, steps: Array) -> Tree:
        if not hasattr(self.policy, "limit_step"):
            return moved
        return {**moved, "policy": self.policy.limit_step(params["policy"], moved["policy"], steps)}

    def observe(self, params: Tree, moved: Tree, batch: Trajectories) -> Tree:
        """Return `moved` with the statistics of `params` updated by the batch sampled at `params` (Chan et al. 1983)."""
        old, weight = params["seen"], batch.mask[..., None]
        count = batch.mask.sum()
        mean = (weight * batch.observation).sum(axis=(0, 1)) / count
        squares = (weight * (batch.observation - mean) ** 2).sum(axis=(0, 1))
        total, gap = old.number + count, mean - old.mean
        seen = Seen(
            total,
            old.mean + gap * count / total,
            old.squares + squares + gap**2 * old.number * count / total,
        )
        return {"policy": moved["policy"], "seen": seen}

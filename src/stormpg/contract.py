"""The contract between the four parts of an algorithm: estimator, tracker, schedule and step.

Iteration t:

    schedule.large   → large or small, which sets the number n of trajectories
    tracker.wants    → `Sample`s: how many trajectories to sample at which parameters
                       (the engine samples them, inside JAX or outside)
    tracker.track    → `Tracked`: the gradient g_t, the next memory, and what a step may use
    step.apply       → ξ_{t+1}
    schedule.after   → the next state of the schedule

Trackers and steps get a `Here`: everything that is known at iteration t. Schedules are subclasses of `schedules.Schedule` and
get a `Moment`; the first batch of a run is a large one. Estimators are values of `estimators.Estimator`.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from stormpg import kernels
from stormpg.estimators import Estimate, Estimator, estimate
from stormpg.pytrees import Tree
from stormpg.scores import log_probs_in_blocks
from stormpg.trajectories import Batch, mixture_log_prob

# These draws existed first: number i of iteration t is at 3(t + 1) + i of the seed's key. All other names have a separate
# branch of the key, so that a new name changes no stored run. Taken are these, "rollout 1" and so on for further batches, and
# "coin", which is that of `schedules.Coin`.
DRAWS = ("rollout", "subset", "uniform")
START, NAMED = 0, 1  # branches of the seed's key: initial parameters, and all other names


class Sample(NamedTuple):
    """A request for n trajectories sampled at `params`; None: at ξ_t.

    With `other`, each of them is sampled there instead with probability `share`. Their log_prob is then that of the mixture.
    """

    n: int
    params: Tree | None = None
    other: Tree | None = None
    share: Array | float = 0.0


class Tracked(NamedTuple):
    """The result of a tracker."""

    gradient: Tree  # g_t
    memory: Tree  # with the structure and the shapes of the previous one
    batch: Batch  # whose returns are recorded
    weight: Array | None = None  # [n, H] importance weights of that batch, to be recorded; None: all 1
    states: Batch | None = None  # on whose states a step measures divergence; None: `batch`
    rate: Array | None = None  # a factor for the step size, if the tracker has a rule for it
    info: Mapping[str, Array] = {}  # more numbers to record, one column each; the same names for large and small batches


@dataclasses.dataclass(frozen=True)
class Moment:
    """Iteration t of one run, with its random numbers."""

    seed: Array  # its key
    iteration: Array  # t

    def key(self, name: str) -> Array:
        """The key of a random draw. It depends on seed, name and t only."""
        if name in DRAWS:
            return self._draws()[DRAWS.index(name)]
        digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        branch = jax.random.fold_in(jax.random.fold_in(self.seed, NAMED), digest)
        return jax.random.fold_in(branch, self.iteration)

    def uniform(self, name: str) -> Array:
        """A uniform number in [0, 1), made from the bits of the key: a call of `jax.random` is slow to compile."""
        bits = jax.random.key_data(self.key(name))[-1] >> 8  # as many as a float32 holds
        return bits.astype(jnp.result_type(float)) / 2**24

    def _draws(self) -> Array:
        """The keys of all `DRAWS` in one call, which compiles faster than three. Unused ones are not computed."""
        return jax.vmap(jax.random.fold_in, (None, 0))(self.seed, len(DRAWS) * (self.iteration + 1) + jnp.arange(len(DRAWS)))


@dataclasses.dataclass(frozen=True)
class Here(Moment):
    """Everything a tracker or a step may know at iteration t."""

    params: Tree  # ξ_t
    policy: Any
    estimator: Estimator
    large: bool  # whether this is a large batch; static
    n: int  # S0 for a large batch, B for a small one; static

    def estimate(self, params: Tree, batch: Batch, baseline: Any = None) -> Estimate:
        """mean_i d_i^{ξ'}(ξ) with its weights and its baseline. ξ is `params`, ξ' the parameters that sampled the batch.

        `baseline`: that of another estimate on the same batch, so that both terms of a correction share it.
        """
        # For the parameters that sampled the batch, all weights are exactly 1 and need no computation.
        on_policy = params is batch.sampled_at
        return estimate(self.estimator, self.policy, params, batch.trajectories, baseline, on_policy)

    def estimate_each(self, params: Tree, batch: Batch, baseline: Any = None) -> Estimate:
        """As `estimate`, with the gradient d_i^{ξ'}(ξ) of each trajectory: its leaves are [n, ...]."""
        on_policy = params is batch.sampled_at
        return estimate(self.estimator, self.policy, params, batch.trajectories, baseline, on_policy, each=True)

    def hessian_product(self, batch: Batch, v: Tree) -> Tree:
        """Ĥ v, an unbiased estimate of ∇²L(ξ_a) v from a batch sampled at ξ_a.

        It is the derivative of d^{ξ_a}(ξ) at ξ = ξ_a in the direction v, weights included: with C_h the sum of the scores up
        to h, the mean of Σ_h (γ^h r_h − b_h) [ ∇C_h v + C_h (C_h · v) ] for GPOMDP.
        """
        d = lambda params: estimate(self.estimator, self.policy, params, batch.trajectories).gradient
        with kernels.forward_mode():
            product: Tree = jax.jvp(d, (batch.sampled_at,), (v,))[1]
        return product

    def limited(self, moved: Tree, batch: Batch) -> Tree:
        """Parameters that a step may move to from ξ_t after this batch: `moved`, unless the policy limits it."""
        if not hasattr(self.policy, "limit_step"):
            return moved
        limited: Tree = self.policy.limit_step(self.params, moved, batch.trajectories.mask.sum())
        return limited

    def pool(self, batches: tuple[Batch, ...]) -> Batch:
        """Join batches into one: each trajectory is treated as sampled by the mixture of all their policies.

        Estimates without a baseline are unbiased. A leave-one-out baseline introduces a bias if the batches were sampled at
        different parameters: it differs between batches, and weighted scores have mean zero only over all batches together.
        """
        joined = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(batch.trajectories for batch in batches))
        sizes = jnp.array([len(batch.trajectories.reward) for batch in batches], joined.reward.dtype)
        every = jnp.stack([log_probs_in_blocks(self.policy, batch.sampled_at, joined) for batch in batches])
        return Batch(joined._replace(log_prob=mixture_log_prob(every, sizes / sizes.sum())), None)


class Tracker(Protocol):
    """How g_t follows ∇L(ξ_t). A tracker should be a `record`, so that its floats are traced."""

    def init(self, params: Tree, blank: "Blank") -> Tree:
        """The memory before the first batch: any pytree. `blank()` is an empty batch, for a memory that holds batches."""

    def wants(self, here: Here, memory: Tree) -> tuple[Sample, ...]:
        """The batches to sample. Their sizes may only depend on `here.n` and `here.large`."""

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Tree) -> Tracked:
        """Compute g_t and the next memory from the batches."""


class Blank(Protocol):
    def __call__(self, n: int | None = None) -> Batch:
        """An empty batch of n trajectories; None: of the size of a large one."""


class Step(Protocol):
    """How g_t moves the parameters."""

    def init(self, params: Tree) -> Tree:
        """The state before the first step: any pytree."""

    def apply(self, here: Here, tracked: Tracked, state: Tree) -> tuple[Tree, Tree]:
        """Compute ξ_{t+1} and the next state."""

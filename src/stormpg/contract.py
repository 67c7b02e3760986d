"""What the four axes tell each other: estimator, tracker, schedule and step meet here and nowhere else.

An iteration t goes

    schedule.large   → large or small, and so the number n of trajectories
    tracker.wants    → `Sample`s: how many trajectories at which parameters
    (they are sampled, inside JAX or outside)
    tracker.track    → `Tracked`: the gradient g_t, the next memory, and what a step may use
    step.apply       → ξ_{t+1}
    schedule.after   → when the next large batch comes

Every part gets `Here`: all that may be known at iteration t.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.estimators import Estimate, Estimator, estimate
from stormpg.records import Tree
from stormpg.scores import log_probs_in_blocks
from stormpg.trajectories import Batch, mixture_log_prob

# The draws that every stored run is made of: number i of iteration t is at 3(t + 1) + i of the seed's key. All other names
# have a branch of their own, so that a new one changes no old one.
DRAWS = ("rollout", "subset", "uniform")
START, NAMED = 0, 1  # of the seed's key: of the policy's first parameters, and the branch of the names


class Sample(NamedTuple):
    """n trajectories that a tracker wants, sampled at `params`; None: at ξ_t."""

    n: int
    params: Tree | None = None


class Tracked(NamedTuple):
    """What a tracker makes of its batches."""

    gradient: Tree  # g_t
    memory: Tree  # of the same structure and shapes as the one before
    batch: Batch  # whose returns and weights the table shows
    weight: Array | None = None  # [n, H] importance weights of that batch, for the table; None: all 1
    states: Batch | None = None  # on which a step measures divergence; None: those of `batch`
    rate: Array | None = None  # a factor for the step size, for a tracker that has a rule for it
    info: Mapping[str, Array] = {}  # numbers for the table, one column each, the same for large and small batches


@dataclasses.dataclass(frozen=True)
class Moment:
    """Iteration t of one seed, and its random numbers."""

    seed: Array  # its key
    iteration: Array  # t

    def key(self, name: str) -> Array:
        """The key of a random draw: a function of seed, name and t alone."""
        if name in DRAWS:
            return self._draws()[DRAWS.index(name)]
        digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        branch = jax.random.fold_in(jax.random.fold_in(self.seed, NAMED), digest)
        return jax.random.fold_in(branch, self.iteration)

    def uniform(self, name: str) -> Array:
        """A number on [0, 1), from the bits of the key itself: a random draw in a program is slow to compile."""
        bits = jax.random.key_data(self.key(name))[-1] >> 8  # as many as a float32 holds
        return bits.astype(jnp.result_type(float)) / 2**24

    def _draws(self) -> Array:
        """All of `DRAWS` in one call, which compiles faster than three. What nobody uses is not computed."""
        return jax.vmap(jax.random.fold_in, (None, 0))(self.seed, len(DRAWS) * (self.iteration + 1) + jnp.arange(len(DRAWS)))


@dataclasses.dataclass(frozen=True)
class Here(Moment):
    """All that a tracker or a step may know at iteration t."""

    params: Tree  # ξ_t
    policy: Any
    estimator: Estimator
    large: bool  # whether this is a large batch; static
    n: int  # S0 for a large batch, B for a small one; static

    def estimate(self, params: Tree, batch: Batch, baseline: Any = None) -> Estimate:
        """mean_i d_i^{ξ'}(`params`), ξ' = who sampled the batch, with its weights and its baseline.

        `baseline`: that of another estimate on the same batch, so that both terms of a correction share it.
        """
        # The parameters that sampled a batch have weight 1, exactly and at no cost.
        on_policy = params is batch.sampled_at
        return estimate(self.estimator, self.policy, params, batch.trajectories, baseline, on_policy)

    def pool(self, batches: tuple[Batch, ...]) -> Batch:
        """One batch of several: each trajectory as if the mixture of all their parameters had sampled it.

        Without a baseline its estimate is unbiased. A leave-one-out baseline biases it where the batches were sampled at
        different points: their trajectories see different means, and only summed over all batches do the scores cancel.
        """
        joined = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(batch.trajectories for batch in batches))
        sizes = jnp.array([len(batch.trajectories.reward) for batch in batches], joined.reward.dtype)
        every = jnp.stack([log_probs_in_blocks(self.policy, batch.sampled_at, joined) for batch in batches])
        return Batch(joined._replace(log_prob=mixture_log_prob(every, sizes / sizes.sum())), None)


class Tracker(Protocol):
    """How g_t follows ∇L(ξ_t). Make it a `record`, so that its floats are traced."""

    def init(self, params: Tree, blank: "Blank") -> Tree:
        """The memory before the first batch: any tree. `blank(n)`: an empty batch, for a memory that holds batches."""

    def wants(self, here: Here, memory: Tree) -> tuple[Sample, ...]:
        """What it wants sampled. The numbers of trajectories may depend on `here.n` and `here.large` only."""

    def track(self, here: Here, batches: tuple[Batch, ...], memory: Tree) -> Tracked:
        """g_t and the next memory, from the batches that it wanted."""


class Blank(Protocol):
    def __call__(self, n: int) -> Batch: ...


class Step(Protocol):
    """How g_t moves the parameters."""

    def init(self, params: Tree) -> Tree:
        """The state before the first step: any tree."""

    def apply(self, here: Here, tracked: Tracked, state: Tree) -> tuple[Tree, Tree]:
        """ξ_{t+1}, and the next state."""

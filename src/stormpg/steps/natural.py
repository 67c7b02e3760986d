"""Natural-gradient steps. The Fisher matrix F is the Hessian of the divergence KL(π_{ξ_t} ‖ π_ξ) at ξ_t."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from optax.tree_utils import tree_norm, tree_vdot

from stormpg import kernels
from stormpg.contract import Here, Tracked
from stormpg.estimators import advantage, check_scalar, estimate
from stormpg.kernels.libraries import Unbuilt
from stormpg.kernels.scalar_code import Unfit
from stormpg.pytrees import Tree, add, as_float, check_positive, record, static
from stormpg.scores import block_sum, log_probs
from stormpg.trajectories import Batch, Trajectories


class Divergence(NamedTuple):
    """The mean of KL(π_{ξ_t} ‖ π_ξ) over some states, in nats a step, and products with its Hessian at ξ_t, the matrix F."""

    value: Callable[[Tree], Array]
    fisher: Callable[[], Callable[[Tree], Tree]]  # makes v ↦ F v, which differentiates the divergence twice


def divergence_on(here: Here, taken: Trajectories) -> Divergence:
    """The divergence over the states of these trajectories."""
    kernel = kernels.of("divergence", here.policy, here.params)
    if kernel is not None:
        try:
            return Divergence(*kernel(here.policy, here.params, taken))
        except Unfit as error:
            if isinstance(error, Unbuilt):
                kernels.tell_once(str(error))
    every_step = jax.vmap(jax.vmap(here.policy.kl, (None, None, 0)), (None, None, 0))

    def divergence(candidate: Tree) -> Array:
        value = lambda part: (every_step(here.params, candidate, part.observation) * part.mask).sum()
        return block_sum(value, taken) / taken.mask.sum()

    # F is linearised once, so that a product with it needs no tanh.
    return Divergence(divergence, lambda: jax.linearize(jax.grad(divergence), here.params)[1])


def inverse_fisher(
    product: Callable[[Tree], Tree], g: Tree, damping: Array, iterations: int
) -> tuple[Tree, Callable[[Tree], Tree]]:
    """s = (F + damping)⁻¹ g by conjugate gradients, and the product with F + damping, from the product with F."""
    from jax.scipy.sparse.linalg import cg  # takes a tenth of the time of `import stormpg`

    def fisher(v: Tree) -> Tree:
        return add(product(v), v, damping)

    # A small g is multiplied by a power of two, which is exact: its squares would be 0 in float32.
    exponent = jnp.frexp(tree_norm(g, ord="inf"))[1]
    unit = jax.tree.map(lambda x: jnp.ldexp(x, -exponent), g)
    # Stop at this residual: below it there is only rounding, and 0/0 would follow.
    s, _ = cg(fisher, unit, tol=float(np.finfo(damping.dtype).eps), maxiter=iterations)
    return jax.tree.map(lambda x: jnp.ldexp(x, exponent), s), fisher


@record
class NaturalGradient:
    """s = F⁻¹ g by conjugate gradients; the longest step √(2δ/sᵀFs) · 2^{−k} that improves the surrogate with KL ≤ δ.

    If none of the lengths tried does, the parameters do not move.
    """

    delta: Array
    damping: Array
    iterations: int = static(default=10)  # of conjugate gradients, at most
    backtracks: int = static(default=10)

    def init(self, params: Tree) -> tuple[()]:
        return ()

    def apply(self, here: Here, tracked: Tracked, state: Any) -> tuple[Tree, Any]:
        surrogate = surrogate_on(here, tracked.states or tracked.batch)
        moved = self.within(surrogate, tracked.gradient, here.params)
        if tracked.rate is not None:
            moved = add(here.params, add(moved, here.params, -1.0), tracked.rate)
        return moved, state

    def within(self, surrogate: "Surrogate", g: Tree, params: Tree) -> Tree:
        """ξ_{t+1} from g_t and the surrogate around ξ_t."""
        s, fisher = inverse_fisher(surrogate.divergence.fisher(), g, self.damping, self.iterations)
        curvature = jnp.maximum(tree_vdot(s, fisher(s)), float(np.finfo(self.delta.dtype).tiny))
        length = jnp.sqrt(2 * self.delta / curvature)
        before = surrogate.objective(params)

        def attempt(trial: tuple[Array, Array]) -> tuple[Array, Array]:
            k, _ = trial
            candidate = add(params, s, length * 0.5**k)
            good = (surrogate.objective(candidate) > before) & (surrogate.divergence.value(candidate) <= self.delta)
            return jnp.where(good, k, k + 1), good

        def searching(trial: tuple[Array, Array]) -> Array:
            k, good = trial
            return ~good & (k <= self.backtracks)

        k, good = jax.lax.while_loop(searching, attempt, (jnp.zeros((), dtype=int), jnp.zeros((), dtype=bool)))
        return add(params, s, jnp.where(good, length * 0.5**k, 0.0))


class Surrogate(NamedTuple):
    """The surrogate objective and the divergence, as functions of the parameters."""

    objective: Callable[[Tree], Array]  # mean Σ_t (π_ξ/π_ξ')(a_t|s_t) c_t, whose gradient is that of `estimators.surrogate`
    divergence: Divergence


def surrogate_on(here: Here, batch: Batch) -> Surrogate:
    """The surrogate objective on a batch, and the divergence from π_{ξ_t} on its states."""
    policy, params, estimator, taken = here.policy, here.params, here.estimator, batch.trajectories
    check_scalar(estimator)
    baseline = estimate(estimator, policy, params, taken).baseline
    gain = taken.mask * advantage(estimator, taken, jnp.ones_like(taken.reward), baseline)
    weighted = taken._replace(reward=gain / taken.reward.shape[0])

    def objective(candidate: Tree) -> Array:
        value = lambda part: (jnp.exp(log_probs(policy, candidate, part) - part.log_prob) * part.reward).sum()
        return block_sum(value, weighted)

    return Surrogate(objective, divergence_on(here, taken))


@record
class NaturalDirection:
    """ξ_{t+1} = ξ_t + η (F + damping)⁻¹ g_t, with F on every `stride`-th time step of the states that the tracker offers."""

    eta: Array
    damping: Array
    stride: int = static()
    iterations: int = static(default=10)  # of conjugate gradients, at most

    def init(self, params: Tree) -> tuple[()]:
        return ()

    def apply(self, here: Here, tracked: Tracked, state: Any) -> tuple[Tree, Any]:
        taken = thinned(tracked.states or tracked.batch, self.stride)
        s, _ = inverse_fisher(divergence_on(here, taken).fisher(), tracked.gradient, self.damping, self.iterations)
        eta = self.eta if tracked.rate is None else self.eta * tracked.rate
        return add(here.params, s, eta), state


def thinned(batch: Batch, stride: int) -> Trajectories:
    """Every `stride`-th time step of the trajectories of a batch."""
    thin: Trajectories = jax.tree.map(lambda x: x[:, ::stride], batch.trajectories)
    return thin


def natural(eta: float = 1.0, damping: float = 0.1, stride: int = 4) -> NaturalDirection:
    """`eta` (η): the step size; the damping is added to the diagonal of F; F uses every `stride`-th time step."""
    check_positive(eta=eta, damping=damping, stride=stride)
    return NaturalDirection(as_float(eta), as_float(damping), stride)


def natural_gradient(delta: float = 0.01, damping: float = 0.01) -> NaturalGradient:
    """`delta` (δ) bounds the KL divergence of one step; the damping is added to the diagonal of the Fisher matrix F."""
    check_positive(delta=delta, damping=damping)
    return NaturalGradient(as_float(delta), as_float(damping))

"""Steps: how g_t moves the parameters, ξ_{t+1} = ξ_t + step(g_t).

Any optax optimiser, with a traced step size; and the natural gradient with a trust region, which optax does not have. The
objective is maximised, so an optax optimiser gets −g_t.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.scipy.sparse.linalg import cg
from optax.tree_utils import tree_vdot

from stormpg.contract import Here, Tracked
from stormpg.errors import InputError, nearest
from stormpg.estimators import advantage, check_scalar, estimate
from stormpg.pytrees import Tree, add, as_float, record, static
from stormpg.scores import block_sum, log_probs
from stormpg.trajectories import Batch


@record
class Optax:
    """An optax optimiser with η_t = η · decay^(t / decay_every), where t counts its updates.

    `separate`: large batches use one optimiser, with rate η, and small batches another, with rate η · inner_rate (Papini's
    two Adams). Otherwise both share one.
    """

    eta: Array
    decay: Array
    inner_rate: Array
    decay_every: int = static()
    factory: Any = static()  # learning rate -> optax.GradientTransformation
    separate: bool = static(default=False)

    def optimiser(self, large: bool) -> optax.GradientTransformation:
        eta = self.eta if large or not self.separate else self.eta * self.inner_rate
        return self.factory(lambda count: eta * self.decay ** (count / self.decay_every))

    def init(self, params: Tree) -> Any:
        state = self.optimiser(True).init(params)
        return (state, state) if self.separate else state

    def apply(self, here: Here, tracked: Tracked, state: Any) -> tuple[Tree, Any]:
        mine = state[0 if here.large else 1] if self.separate else state
        updates, mine = self.optimiser(here.large).update(jax.tree.map(jnp.negative, tracked.gradient), mine, here.params)
        if self.separate:
            mine = (mine, state[1]) if here.large else (state[0], mine)
        if tracked.rate is not None:
            updates = jax.tree.map(lambda x: tracked.rate * x, updates)
        return optax.apply_updates(here.params, updates), mine


def optax_step(
    eta: float,
    optimizer: str | Callable[..., Any] | optax.GradientTransformation = "adam",
    decay: float = 1.0,
    decay_every: int = 100,
    separate: bool = False,
    inner_rate: float = 0.5,
) -> Optax:
    """`optimizer`: the name of an optax optimiser, a function from a learning-rate schedule to one, or an optax transformation.

    A transformation is used as it is: it has its own learning rate, and `eta` and `decay` do not apply to it.
    """
    for name, value in (("eta", eta), ("inner_rate", inner_rate)):
        if not isinstance(value, jax.core.Tracer) and not value > 0:
            raise InputError(f"{name} is {value}; expected a number above 0.")
    if not isinstance(decay, jax.core.Tracer) and not 0 < decay <= 1:
        raise InputError(f"decay is {decay}; expected a factor in (0, 1].")
    if decay_every < 1:
        raise InputError(f"decay_every is {decay_every}; expected a whole number of at least 1.")
    factory: Any = optimizer if callable(optimizer) else getattr(optax, str(optimizer), None)
    if isinstance(optimizer, optax.GradientTransformation):
        factory = Fixed(optimizer)
    try:
        known = callable(factory) and hasattr(factory(lambda count: 0.1), "update")
    except Exception as error:
        if callable(optimizer):
            raise InputError(
                f"optimizer={optimizer!r} failed ({type(error).__name__}: {error}); expected a function from an optax schedule "
                "(a function of the step count) to an optax transformation."
            ) from error
        known = False  # another function of optax
    if not known:
        raise InputError(f"unknown optimizer {optimizer!r}: {nearest(str(optimizer), ('adam', 'sgd', 'rmsprop', 'adamw'))}.")
    return Optax(as_float(eta), as_float(decay), as_float(inner_rate), decay_every, factory, separate)


class Fixed(NamedTuple):
    """An optax transformation that has its own learning rate, as a function of one."""

    transformation: optax.GradientTransformation

    def __call__(self, rate: Any) -> optax.GradientTransformation:
        return self.transformation


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
        # F is the Hessian of the divergence at its minimum. It is linearised once, so that a product with it needs no tanh.
        product = jax.linearize(jax.grad(surrogate.divergence), params)[1]

        def fisher(v: Tree) -> Tree:
            return add(product(v), v, self.damping)

        # Stop at this residual: below it there is only rounding, and 0/0 would follow.
        s, _ = cg(fisher, g, tol=float(np.finfo(self.delta.dtype).eps), maxiter=self.iterations)
        curvature = jnp.maximum(tree_vdot(s, fisher(s)), float(np.finfo(self.delta.dtype).tiny))
        length = jnp.sqrt(2 * self.delta / curvature)
        before = surrogate.objective(params)

        def attempt(trial: tuple[Array, Array]) -> tuple[Array, Array]:
            k, _ = trial
            candidate = add(params, s, length * 0.5**k)
            good = (surrogate.objective(candidate) > before) & (surrogate.divergence(candidate) <= self.delta)
            return jnp.where(good, k, k + 1), good

        def searching(trial: tuple[Array, Array]) -> Array:
            k, good = trial
            return ~good & (k <= self.backtracks)

        k, good = jax.lax.while_loop(searching, attempt, (jnp.zeros((), dtype=int), jnp.zeros((), dtype=bool)))
        return add(params, s, jnp.where(good, length * 0.5**k, 0.0))


class Surrogate(NamedTuple):
    """The surrogate objective and the divergence, as functions of the parameters."""

    objective: Callable[[Tree], Array]  # mean Σ_t (π_ξ/π_ξ')(a_t|s_t) c_t, whose gradient is that of `estimators.surrogate`
    divergence: Callable[[Tree], Array]  # mean KL(π_{ξ_t} ‖ π_ξ) over the states


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

    def divergence(candidate: Tree) -> Array:
        every_step = jax.vmap(jax.vmap(policy.kl, (None, None, 0)), (None, None, 0))
        value = lambda part: (every_step(params, candidate, part.observation) * part.mask).sum()
        return block_sum(value, taken) / taken.mask.sum()

    return Surrogate(objective, divergence)


def natural_gradient(delta: float = 0.01, damping: float = 0.01) -> NaturalGradient:
    """`delta` (δ) bounds the KL divergence of one step; the damping is added to the diagonal of the Fisher matrix F."""
    for name, value in (("delta", delta), ("damping", damping)):
        if not isinstance(value, jax.core.Tracer) and not value > 0:
            raise InputError(f"{name} is {value}; expected a number above 0.")
    return NaturalGradient(as_float(delta), as_float(damping))

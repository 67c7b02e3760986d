"""Steps: how g_t moves the parameters, ξ_{t+1} = ξ_t + step(g_t).

Any optax optimiser, with the step size traced; and what optax does not have: the natural gradient with a trust
region. The objective is maximised, so an optax optimiser is given −g_t.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.scipy.sparse.linalg import cg
from optax.tree_utils import tree_vdot

from stormpg.contract import Here, Tracked
from stormpg.errors import InputError, nearest
from stormpg.estimators import advantage, check_scalar, estimate
from stormpg.records import Tree, add, as_float, record, static
from stormpg.scores import block_sum, log_probs
from stormpg.trajectories import Batch


@record
class Optax:
    """An optax optimiser with η_t = η · decay^(t / decay_every), t its own count of updates.

    `separate`: large batches have an optimiser of their own, with rate η, and small ones another, with rate
    η · inner_rate (Papini's two Adams); otherwise both share one.
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
    optimizer: str | Callable[..., Any] = "adam",
    decay: float = 1.0,
    decay_every: int = 100,
    separate: bool = False,
    inner_rate: float = 0.5,
) -> Optax:
    """`optimizer`: the name of an optax optimiser, or any function from a learning rate to one."""
    for name, value in (("eta", eta), ("inner_rate", inner_rate)):
        if not isinstance(value, jax.core.Tracer) and not value > 0:
            raise InputError(f"{name} is {value}; expected a number above 0.")
    if not isinstance(decay, jax.core.Tracer) and not 0 < decay <= 1:
        raise InputError(f"decay is {decay}; expected a factor in (0, 1].")
    if decay_every < 1:
        raise InputError(f"decay_every is {decay_every}; expected a whole number of at least 1.")
    factory = optimizer if callable(optimizer) else getattr(optax, str(optimizer), None)
    try:
        known = callable(factory) and hasattr(factory(lambda count: 0.1), "update")
    except Exception:  # something else of optax's
        known = False
    if not known:
        raise InputError(f"unknown optimizer {optimizer!r}: {nearest(str(optimizer), ('adam', 'sgd', 'rmsprop', 'adamw'))}.")
    return Optax(as_float(eta), as_float(decay), as_float(inner_rate), decay_every, factory, separate)


@record
class NaturalGradient:
    """s = F⁻¹ g by conjugate gradients; the longest step √(2δ/sᵀFs) · 2^{−k} that improves the surrogate with KL ≤ δ.

    Where none of the tried lengths does, the parameters stay.
    """

    delta: Array
    damping: Array
    iterations: int = static(default=10)  # of conjugate gradients, at most
    backtracks: int = static(default=10)

    def init(self, params: Tree) -> tuple[()]:
        return ()

    def apply(self, here: Here, tracked: Tracked, state: Any) -> tuple[Tree, Any]:
        surrogate = surrogate_on(here, tracked.states or tracked.batch)
        return self.within(surrogate, tracked.gradient, here.params), state

    def within(self, surrogate: "Surrogate", g: Tree, params: Tree) -> Tree:
        """ξ_{t+1} from g_t and what the batch says of the points around ξ_t."""
        # F is the Hessian of the divergence at its minimum; linearised once, a product with it costs no tanh.
        product = jax.linearize(jax.grad(surrogate.divergence), params)[1]

        def fisher(v: Tree) -> Tree:
            return add(product(v), v, self.damping)

        # Below this residual there is only rounding; without an end there, 0/0 would follow.
        s, _ = cg(fisher, g, tol=jnp.finfo(self.delta.dtype).eps, maxiter=self.iterations)
        curvature = jnp.maximum(tree_vdot(s, fisher(s)), jnp.finfo(self.delta.dtype).tiny)
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
    """What a batch says of the points around ξ_t."""

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
    """δ bounds the KL divergence of one step; the damping is added to the diagonal of the Fisher matrix F."""
    for name, value in (("delta", delta), ("damping", damping)):
        if not isinstance(value, jax.core.Tracer) and not value > 0:
            raise InputError(f"{name} is {value}; expected a number above 0.")
    return NaturalGradient(as_float(delta), as_float(damping))

"""Steps by an optax optimiser, with a traced step size. The objective is maximised, so the optimiser gets −g_t."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from stormpg.contract import Here, Tracked
from stormpg.errors import InputError, nearest
from stormpg.pytrees import Tree, as_float, check_positive, record, static


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
    check_positive(eta=eta, inner_rate=inner_rate)
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

"""Fused kernels. They apply in float32 to a policy whose network has one hidden layer: in Triton on a GPU, in C on a CPU.

`sampling.rollouts` and `scores` call `instead`, which uses plain JAX where no kernel applies. On a CPU the kernels need a C
compiler. STORMPG_FUSED=0 disables them. This file decides which policies (`DENSITIES`, `WHOLE`) and sizes (`LIMITS`) have any.
"""

import contextlib
import contextvars
import functools
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from stormpg.errors import tell
from stormpg.kernels import libraries
from stormpg.kernels.network import without_normalisation
from stormpg.kernels.scalar_code import Unfit
from stormpg.machine.xla import platform
from stormpg.policies.censored import Censored
from stormpg.policies.families import Categorical, Gaussian, MultiCategorical
from stormpg.policies.networks import MLP
from stormpg.pytrees import Opaque, Tree

T = TypeVar("T")

# The modules with the kernels of a rollout and of cumulative sums; on a CPU also of probabilities and scores of whole policies
MODULES = {"cpu": "stormpg.kernels.cpu", "gpu": "stormpg.kernels.gpu", "cuda": "stormpg.kernels.gpu"}

WHOLE = Gaussian, Categorical  # policies that have kernels of the whole policy on a CPU
DENSITIES = *WHOLE, Censored, MultiCategorical  # policies that have kernels of their network

# The most inputs, hidden units and outputs of a network. With more inputs, matrix products are faster on a CPU; with more of
# anything, the network does not fit into the registers of a GPU.
LIMITS = {"cpu": (32, 1024, 16), "gpu": (32, 256, 16)}

# Functions with derivatives by kernels in forward mode, and how many arguments they have without what is kept
FORWARD = {"log_probs": 3, "score_sum": 4}

_forward = contextvars.ContextVar("forward", default=False)
_told: set[str] = set()  # the reasons that this process has given for plain JAX


def of(name: str, policy: Any, params: Tree) -> Callable[..., Any] | None:
    """The kernel of this name on this platform, if it supports this policy; None: plain JAX. On a GPU the reason is given once.

    The kernels of a network alone (`rows`) serve where those of the platform's module do not.
    """
    if not enabled():
        return None
    if reason := misfit(policy, params):
        if platform() != "cpu":
            tell_once(reason)
        return None
    modules = [MODULES[platform()]] * (platform() != "cpu" or type(policy) in WHOLE) + ["stormpg.kernels.rows"]
    found = (getattr(importlib.import_module(module), name, None) for module in modules)
    return next(filter(None, found), None)


def enabled() -> bool:
    """Whether there are kernels for this platform. On a CPU they need a compiler."""
    if os.environ.get("STORMPG_FUSED") == "0" or platform() not in MODULES:
        return False
    return platform() != "cpu" or (libraries.compiler() is not None and jnp.result_type(float) == jnp.float32)


def instead(name: str, plain: Callable[..., T], policy: Any, params: Tree, *arguments: Any, **static: Any) -> tuple[T, Tree]:
    """`plain(policy, params, *arguments)`, by the kernel `name` if possible, and what the kernel keeps, or None.

    `static`: more arguments for the kernel. A kernel cannot be differentiated: its derivatives are those of `plain`, or in
    `forward_mode` those of the kernels of a network alone.
    """
    found = of(name, policy, params)
    if found is None:
        return plain(policy, params, *arguments), None
    kernel = functools.partial(found, **static)
    fast = jax.custom_jvp(kernel)

    @fast.defjvp
    def derivative(primals: Any, tangents: Any) -> Any:
        made, slope = jax.jvp(differentiable(name, plain, policy, params), primals, tangents)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(kernel, *primals)[1])  # no kernel reads it
        return (made, nothing), (slope, nothing)

    try:
        made: tuple[T, Tree] = fast(policy, params, *arguments)
    except Unfit as error:
        if platform() != "cpu" or isinstance(error, libraries.Unbuilt):
            tell_once(f"the environment {static['env'].name} does not fit: {error}" if "env" in static else str(error))
        return plain(policy, params, *arguments), None
    return made


@contextlib.contextmanager
def forward_mode() -> Iterator[None]:
    """Inside this context, derivatives are computed by the kernels of a network alone. Reverse mode then fails."""
    before = _forward.set(True)
    try:
        yield
    finally:
        _forward.reset(before)


def differentiable(name: str, plain: Callable[..., T], policy: Any, params: Tree) -> Callable[..., T]:
    """`plain`, or the same function by kernels that can be differentiated in forward mode."""
    if not _forward.get() or name not in FORWARD or misfit(policy, params) is not None:
        return plain
    kernel = getattr(importlib.import_module("stormpg.kernels.rows"), name)
    return lambda *arguments: kernel(*arguments[: FORWARD[name]])[0]


def running_sums(x: Array, backward: bool = False) -> Array:
    """Σ_{k≤h} x_k, or Σ_{k≥h} x_k, for x [n, H]."""

    def plain(x: Array) -> Array:
        return jnp.cumsum(x[:, ::-1], axis=1)[:, ::-1] if backward else jnp.cumsum(x, axis=1)

    if not enabled() or x.dtype != jnp.float32:
        return plain(x)
    fast = jax.custom_jvp(functools.partial(importlib.import_module(MODULES[platform()]).running_sums, backward=backward))
    fast.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))
    try:
        made: Array = fast(x)
        return made
    except libraries.Unbuilt as error:
        tell_once(str(error))
        return plain(x)


def misfit(policy: Any, params: Tree) -> str | None:
    """Why the kernels of a network do not support this policy, which may normalise its observations, or None."""
    policy, params = without_normalisation(policy, params)
    if type(policy) not in DENSITIES:  # a subclass may override any method
        kind = type(policy.content if isinstance(policy, Opaque) else policy)
        return f"the policy is {kind.__name__}, and they are written for {', '.join(one.__name__ for one in DENSITIES)}"
    network = policy.mean if hasattr(policy, "mean") else policy.logits
    if type(network) is not MLP:
        return f"the policy's network is {type(network).__name__}, and they are written for MLP"
    hidden = network.sizes[1:-1]
    if len(hidden) != 1:
        return f"the policy's network has {len(hidden)} hidden layers, and they are written for one"
    limits = LIMITS["cpu" if platform() == "cpu" else "gpu"]
    if any(size > limit for size, limit in zip(network.sizes, limits, strict=True)):
        return "the policy's network has {} inputs, {} hidden units and {} outputs; their limits are {}, {} and {}".format(
            *network.sizes, *limits
        )
    if any(jnp.result_type(leaf) != jnp.float32 for leaf in jax.tree.leaves(params)):
        return "the parameters are not float32"
    return None


def tell_once(reason: str) -> None:
    """Warn that plain JAX replaces kernels, once for each reason."""
    if reason not in _told:
        _told.add(reason)
        tell(f"plain JAX is used instead of the kernels: {reason}. STORMPG_FUSED=0 does this without a warning.")

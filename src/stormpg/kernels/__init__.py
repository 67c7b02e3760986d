"""Fused GPU kernels. They apply on a GPU, in float32, to a policy whose network has one hidden layer.

`sampling.rollouts` and `scores` call `applies` and use plain JAX if it returns False. STORMPG_FUSED=0 disables the kernels.
"""

import contextlib
import contextvars
import os
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from stormpg.errors import tell
from stormpg.machine.xla import platform
from stormpg.policies.families import Categorical, Gaussian
from stormpg.policies.networks import MLP
from stormpg.pytrees import Opaque, Tree

_allowed = contextvars.ContextVar("allowed", default=True)

LIMITS = 32, 256, 16  # the most inputs, hidden units and outputs of a network that fits into a program's registers

_told: set[str] = set()  # the reasons that this process has given for plain JAX


def applies(policy: Any, params: Tree) -> bool:
    """Whether the kernels support this policy. If they do not, on a GPU, the reason is given once."""
    if not _allowed.get() or os.environ.get("STORMPG_FUSED") == "0" or platform() not in ("gpu", "cuda"):
        return False
    reason = misfit(policy, params)
    if reason is not None:
        tell_once(reason)
    return reason is None


def misfit(policy: Any, params: Tree) -> str | None:
    """Why the kernels do not support this policy, or None. Subclasses are excluded, because they may override any method."""
    if type(policy) not in (Gaussian, Categorical):
        kind = type(policy.content if isinstance(policy, Opaque) else policy)
        return f"the policy is {kind.__name__}, and they are written for Gaussian and Categorical"
    network = policy.mean if type(policy) is Gaussian else policy.logits
    if type(network) is not MLP:
        return f"the policy's network is {type(network).__name__}, and they are written for MLP"
    hidden = network.sizes[1:-1]
    if len(hidden) != 1:
        return f"the policy's network has {len(hidden)} hidden layers, and they are written for one"
    if any(size > limit for size, limit in zip(network.sizes, LIMITS, strict=True)):
        return "the policy's network has {} inputs, {} hidden units and {} outputs; their limits are {}, {} and {}".format(
            *network.sizes, *LIMITS
        )
    if any(jnp.result_type(leaf) != jnp.float32 for leaf in jax.tree.leaves(params)):
        return "the parameters are not float32"
    return None


def tell_once(reason: str) -> None:
    """Warn that plain JAX replaces the kernels, once for each reason."""
    if reason not in _told:
        _told.add(reason)
        tell(f"plain JAX is used instead of the GPU kernels: {reason}. STORMPG_FUSED=0 does this without a warning.")


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Trace plain JAX in this block, which can be differentiated. The kernels cannot."""
    token = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(token)

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

from stormpg.machine.xla import platform
from stormpg.policies.families import Categorical, Gaussian
from stormpg.policies.networks import MLP
from stormpg.pytrees import Tree

_allowed = contextvars.ContextVar("allowed", default=True)

MOST_INPUTS, WIDEST, MOST_OUTPUTS = 32, 256, 16  # limits for a network that fits into a program's registers


def applies(policy: Any, params: Tree) -> bool:
    """Whether the kernels support this policy. Subclasses are excluded, because they may override any method."""
    if not _allowed.get() or os.environ.get("STORMPG_FUSED") == "0" or platform() not in ("gpu", "cuda"):
        return False
    network = policy.mean if type(policy) is Gaussian else policy.logits if type(policy) is Categorical else None
    if type(network) is not MLP or len(network.sizes) != 3:
        return False
    inputs, width, outputs = network.sizes
    small = inputs <= MOST_INPUTS and width <= WIDEST and outputs <= MOST_OUTPUTS
    return small and all(jnp.result_type(leaf) == jnp.float32 for leaf in jax.tree.leaves(params))


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Trace plain JAX in this block, which can be differentiated. The kernels cannot."""
    token = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(token)

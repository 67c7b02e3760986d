"""Fused kernels, where they apply: on a GPU, in float32, for a policy whose network has one hidden layer.

`trajectories` and `scores` ask here and take the plain way otherwise. STORMPG_FUSED=0 switches the kernels off.
"""

import os
from typing import Any

import jax
import jax.numpy as jnp

from stormpg.networks import MLP
from stormpg.policies import Categorical, Gaussian
from stormpg.records import Tree


def applies(policy: Any, params: Tree) -> bool:
    """Whether the kernels can do this policy's log-probabilities and scores."""
    if os.environ.get("STORMPG_FUSED") == "0" or jax.default_backend() != "gpu":
        return False
    network = policy.mean if isinstance(policy, Gaussian) else policy.logits if isinstance(policy, Categorical) else None
    single = all(jnp.result_type(leaf) == jnp.float32 for leaf in jax.tree.leaves(params))
    return single and isinstance(network, MLP) and len(network.sizes) == 3

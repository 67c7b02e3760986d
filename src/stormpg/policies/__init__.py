"""Policies π_ξ(a|s): policy families, networks, observation normalisation, acting in NumPy, and ONNX export.

Any object with init, sample, log_prob and mode is a policy. The constructors here make the built-in ones.
"""

from stormpg.policies.constructors import (
    categorical,
    categorical_mlp,
    gaussian,
    gaussian_linear,
    gaussian_mlp,
    multi_categorical,
    multi_categorical_mlp,
    policy_for,
    softmax_table,
)
from stormpg.policies.families import Categorical, Gaussian, MultiCategorical, Policy
from stormpg.policies.normalisation import Normalised

__all__ = [
    "Categorical",
    "Gaussian",
    "MultiCategorical",
    "Normalised",
    "Policy",
    "categorical",
    "categorical_mlp",
    "gaussian",
    "gaussian_linear",
    "gaussian_mlp",
    "multi_categorical",
    "multi_categorical_mlp",
    "policy_for",
    "softmax_table",
]

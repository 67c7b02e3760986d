"""The descriptions of policies in run folders: what `policy_for` makes a policy again from."""

from collections.abc import Mapping
from typing import Any

from stormpg.envs.base import AnyEnvironment
from stormpg.policies.censored import Censored
from stormpg.policies.constructors import policy_for, with_one
from stormpg.policies.families import Categorical, Gaussian, MultiCategorical
from stormpg.policies.networks import MLP, LinearFeatures, LookupTable
from stormpg.policies.normalisation import Normalised


def describe_policy(policy: Any) -> dict[str, Any] | None:
    """Return the kind and settings from which `policy_for` makes this policy again; None for a user-defined policy.

    The entry `scaled` is written only for a scaled policy: old descriptions do not have it, and their policies are not scaled.
    """
    if isinstance(policy, Normalised):
        inner = describe_policy(policy.policy)
        return None if inner is None else {**inner, "normalise": "large" if policy.only_large else True}
    if isinstance(policy, Gaussian):
        about: dict[str, Any] = {"sigma": float(policy.sigma), "learn_sigma": policy.learn_sigma}
        about |= {} if policy.sigma_step is None else {"sigma_step": float(policy.sigma_step)}
        about |= {} if policy.sigma_batch is None else {"sigma_batch": policy.sigma_batch}
        about |= {} if policy.scale is None else {"scaled": [list(part) for part in policy.scale]}
        about |= {"censored": True} if isinstance(policy, Censored) else {}
        if isinstance(policy.mean, MLP):
            return {"kind": "gaussian-mlp", **_describe_mlp(policy.mean), **about}
        if isinstance(policy.mean, LinearFeatures) and policy.mean.psi is with_one:
            return {"kind": "gaussian-linear", **about}
    if isinstance(policy, Categorical | MultiCategorical):
        if isinstance(policy.logits, MLP):
            kind = "categorical-mlp" if isinstance(policy, Categorical) else "multi-categorical-mlp"
            return {"kind": kind, **_describe_mlp(policy.logits)}
        if isinstance(policy.logits, LookupTable):
            return {"kind": "softmax-table"}
    return None


def _describe_mlp(network: MLP) -> dict[str, Any]:
    """Return the settings of a network. A factor of 1 is not written, because old descriptions do not have it."""
    factor = {} if network.output_scale == 1.0 else {"output_scale": network.output_scale}
    return {"hidden": list(network.sizes[1:-1]), **factor}


def from_description(env: AnyEnvironment, about: Mapping[str, Any]) -> Any:
    """Return the policy that `describe_policy` described."""
    unscaled = {"scaled": False} if str(about.get("kind")).startswith("gaussian") else {}
    return policy_for(env, **{**unscaled, **about})

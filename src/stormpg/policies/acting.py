"""Acting outside JAX: a policy with its parameters as functions of NumPy arrays.

A built-in policy acts in NumPy alone, which is faster than a compiled program for a few observations. Any other policy is
compiled once for each shape.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from stormpg.policies.families import Categorical, Gaussian, MultiCategorical, table_rows
from stormpg.policies.networks import MLP, LookupTable
from stormpg.policies.normalisation import Normalised
from stormpg.pytrees import Opaque, Tree, traceable

Function = Callable[..., np.ndarray]


class Actor(NamedTuple):
    """A policy at fixed parameters ξ, for batches of observations."""

    act: Function  # (observations [n, ...], noise [n, ...]) -> actions [n, ...]
    mode: Function  # observations -> actions


def actor(policy: Any, params: Tree) -> Actor:
    """Return the policy at ξ = `params`."""
    policy = policy.content if isinstance(policy, Opaque) else policy
    if isinstance(policy, Normalised):
        scale, inner = numpy_scale(policy, params), actor(policy.policy, params["policy"])
        return Actor(lambda seen, noise: inner.act(scale(seen), noise), lambda seen: inner.mode(scale(seen)))
    if isinstance(policy, Gaussian) and (mean := numpy_network(policy.mean, params["mean"])):
        sigma, placed = np.asarray(policy.deviation(params)), policy.placed
        return Actor(lambda seen, noise: placed(mean(seen)) + sigma * noise, lambda seen: placed(mean(seen)))
    if isinstance(policy, Categorical) and (logits := numpy_network(policy.logits, params["logits"])):
        return Actor(lambda seen, noise: (logits(seen) + noise).argmax(axis=-1), lambda seen: logits(seen).argmax(axis=-1))
    if isinstance(policy, MultiCategorical) and (together := numpy_network(policy.logits, params["logits"])):
        chosen = functools.partial(_largest, policy.sizes)
        return Actor(lambda seen, noise: chosen(together(seen) + noise), lambda seen: chosen(together(seen)))
    wrapped = traceable(policy)
    draw = "act" if hasattr(policy, "noise") and hasattr(policy, "act") else "sample"
    return Actor(
        lambda seen, noise: np.asarray(_compiled(draw, wrapped, params, seen, noise)),
        lambda seen: np.asarray(_compiled("mode", wrapped, params, seen, None)),
    )


def numpy_network(network: Any, params: Tree) -> Function | None:
    """Return the network at these parameters as a NumPy function, or None if it is not a built-in one."""
    if isinstance(network, MLP):
        # For matrices as small as these, `@`, new arrays and the addition of one bias to all rows take twice as long.
        weights, biases = ([np.asarray(layer[name]) for layer in params] for name in ("weight", "bias"))

        @functools.lru_cache(maxsize=1)
        def layers(rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
            return [(weight, np.tile(bias, (rows, 1))) for weight, bias in zip(weights, biases, strict=True)]

        def outputs(seen: np.ndarray) -> np.ndarray:
            *hidden, (weight, bias) = layers(len(seen))
            for each, own in hidden:
                seen = np.dot(seen, each)
                np.tanh(np.add(seen, own, seen), seen)
            result: np.ndarray = np.dot(seen, weight)
            result += bias
            return result

        return outputs
    if isinstance(network, LookupTable):
        table = np.asarray(params)
        return lambda seen: table[seen]
    return None


def _largest(sizes: tuple[int, ...], logits: np.ndarray) -> np.ndarray:
    """Return the index of the largest logit of each choice."""
    chosen: np.ndarray = np.argmax(table_rows(np, logits, sizes), axis=-1)
    return chosen


def numpy_scale(policy: Normalised, params: Tree) -> Function:
    """Return the policy's observation normalisation as a NumPy function."""
    shift, spread = (np.asarray(part) for part in policy.shift_and_spread(params))
    return lambda seen: np.clip((seen - shift) / spread, -policy.clip, policy.clip)


def _function(kind: str, policy: Any, params: Tree, seen: Any, noise: Any) -> Any:
    """Return the actions for a batch of observations by the policy's `mode`, `act` or `sample`."""
    if kind == "mode":
        return jax.vmap(policy.mode, (None, 0))(params, seen)
    if kind == "act":
        return jax.vmap(policy.act, (None, 0, 0))(params, seen, noise)
    return jax.vmap(policy.sample, (None, 0, 0))(params, noise, seen)


_compiled = jax.jit(_function, static_argnames=("kind",))

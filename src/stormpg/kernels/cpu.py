"""CPU kernels for a whole rollout, for the log-probabilities of a batch, and for its weighted sum of scores, in C.

The environment and the policy are traced from their own functions and written as C (`c_code`); only the network, one hidden
layer of tanh units, is written by hand (`network.c`). The compiler of the machine builds them once (`libraries`).
"""

import functools
import importlib.resources
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from stormpg.kernels import keeping, libraries
from stormpg.kernels.c_code import c_function
from stormpg.kernels.network import check_floats, head, read_batch, scalars, split, unpacked, weights
from stormpg.kernels.scalar_code import is_number, on_lanes
from stormpg.pytrees import Tree
from stormpg.trajectories import Trajectories

LANES = 16  # rows that pass by while the weights of 16 hidden units stay in registers
GROUP = 8  # lanes that the functions of policy and environment compute at once; it divides LANES
UNITS = 16  # hidden units in a vector

PRELUDE = """\
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xla/ffi/api/c_api.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif
#if defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && defined(__x86_64__)
#define MANY __attribute__((simd("notinbranch"), const)) /* glibc has a form for vectors */
MANY float sinf(float); MANY float cosf(float); MANY float expf(float); MANY float logf(float); MANY float powf(float, float);
#endif
static inline int bits(float x) { int y; memcpy(&y, &x, 4); return y; }
static inline float as_bits(int y) { float x; memcpy(&x, &y, 4); return x; }
"""


@functools.cache
def text(name: str) -> str:
    """A file of this folder."""
    return importlib.resources.files("stormpg.kernels").joinpath(name).read_text()


def types(*trees: Tree) -> list[Any]:
    """The types of all numbers of some trees, in order."""
    leaves = [leaf for leaf in jax.tree.leaves(trees) if is_number(leaf)]
    return [jnp.result_type(leaf) for leaf in leaves for _ in range(int(np.prod(jnp.shape(leaf))))]


class Source:
    """The C source for a policy, without its handlers."""

    def __init__(self, policy: Any, params: Tree, action: Any) -> None:
        _, layers, others = split(policy, params)
        inputs, width = layers[0]["weight"].shape
        outputs = layers[1]["bias"].shape[0]
        self.policy, self.others, self.action = policy, others, action
        self.head = head(policy, params, outputs, action)
        self.output = [jnp.float32] * outputs
        self.fixed = types(policy, others)
        self.sizes = {
            "LANES": LANES,
            "GROUP": GROUP,
            "INPUTS": inputs,
            "UNITS": padded(width),
            "OUTPUTS": outputs,
            "ACTIONS": len(types(action)),
            "OTHERS": len(types(others)),
        }

    def function(self, name: str, run: Callable[..., Any], *lanes: Any) -> str:
        """A function of the policy's fixed numbers and of these, of each lane."""
        return c_function(name, run, len(self.fixed), [*self.fixed, *self.output, *types(*lanes)])

    def complete(self, functions: Sequence[str], **more: Any) -> str:
        defined = "".join(f"#define {name} {value}\n" for name, value in {**self.sizes, **more}.items())
        return "\n".join((PRELUDE, text("version.h"), defined, *functions, text("network.c"), text("policy.c")))


def padded(width: int) -> int:
    """The width of a layer in whole vectors."""
    return -(-width // UNITS) * UNITS


def operands(policy: Any, params: Tree) -> tuple[Array, ...]:
    """The network's weights and the policy's other numbers, as the kernels read them."""
    _, layers, others = split(policy, params)
    return (*weights(layers, padded(layers[0]["bias"].shape[0])), jnp.concatenate((scalars(policy)[:-1], scalars(others))))


def call(source: str, function: str, shapes: Any, *arrays: Array) -> Any:
    """Call a handler. `jax.vmap` gives it one more leading axis."""
    name = libraries.target(source, function)
    handler: Callable[..., Any] = jax.ffi.ffi_call(name, shapes, vmap_method="expand_dims")
    return handler(*arrays)


def bits_of(x: Array) -> Array:
    """Return integers and truth values as floats with the same bits."""
    return x if x.dtype == jnp.float32 else jax.lax.bitcast_convert_type(x.astype(jnp.int32), jnp.float32)


def number(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


@functools.lru_cache(maxsize=64)
def _of_a_batch(structure: Any, leaves: tuple[Any, ...]) -> str:
    """The source of LOG_PROB and SCORE_SUM for shapes of policy, parameters and action."""
    policy, params, action = jax.tree.unflatten(structure, leaves)
    made = Source(policy, params, action)
    functions = [made.function("log_prob", made.head.log_prob(), action), made.function("slope", made.head.slope(), action)]
    return made.complete(functions, LOG_PROB="log_prob_of_rows", SCORE_SUM="score_sum_of_rows")


def of_batches(policy: Any, params: Tree, action: Any) -> str:
    """The same, for a policy, its parameters and the shape of an action."""
    leaves, structure = jax.tree.flatten(shapes_of((policy, params, action)))
    return _of_a_batch(structure, tuple(leaves))


def of_a_batch(policy: Any, params: Tree, trajectories: Trajectories) -> str:
    """The same, for trajectories."""
    check_floats(trajectories.observation)
    action = jax.ShapeDtypeStruct(trajectories.action.shape[2:], trajectories.action.dtype)
    return of_batches(policy, params, action)


def shapes_of(tree: Tree) -> Tree:
    """The shapes and types of a tree of arrays, which can be compared."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), tree)


def to_keep(given: tuple[Array, ...], n: int, horizon: int, keep: bool) -> list[jax.ShapeDtypeStruct]:
    """The shape of the activations of a batch and of the network's outputs, if they are kept. `given`: see `operands`."""
    width = padded(given[1].shape[0]) + padded(given[3].shape[0])
    return [number(n, horizon, width)] if keep and n * horizon * width <= keeping.MOST else []


def log_probs(policy: Any, params: Tree, trajectories: Trajectories, *, keep: bool = False) -> tuple[Array, Array | None]:
    """Return log π_ξ(a_h|s_h), [n, H], 0 on padded steps, and the activations."""
    n, horizon = trajectories.mask.shape
    given, source = operands(policy, params), of_a_batch(policy, params, trajectories)
    shapes = number(n, horizon), *to_keep(given, n, horizon, keep)
    values, *kept = call(source, "log_prob_of_rows", shapes, *given, *read_batch(trajectories))
    return values, kept[0] if kept else None


def score_sum(
    policy: Any, params: Tree, trajectories: Trajectories, coefficient: Array, kept: Array | None = None
) -> tuple[Tree, None]:
    """Return Σ_i Σ_t c_t ∇log π_ξ(a_t|s_t) for coefficients c, [n, H]. `kept`: the activations."""
    name, layers, others = split(policy, params)
    given = operands(policy, params)
    (inputs, width), outputs = given[0].shape, given[2].shape[0]
    extra = len(types(others))
    shapes = number(inputs + 1 + outputs, width), number(outputs + extra)
    source = of_a_batch(policy, params, trajectories)
    more = [] if kept is None else [kept]
    wide, narrow = call(source, "score_sum_of_rows", shapes, *given, *read_batch(trajectories), coefficient, *more)
    left = iter(narrow[outputs:])
    extra_gradient = jax.tree.map(lambda leaf: jnp.stack([next(left) for _ in range(leaf.size)]).reshape(leaf.shape), others)
    return {**extra_gradient, name: unpacked(layers, wide, narrow[:outputs])}, None


def running_sums(x: Array, backward: bool) -> Array:
    """Return Σ_{k≤h} x_k, or Σ_{k≥h} x_k, for x [n, H]."""
    source = PRELUDE + text("version.h") + text("sums.c")
    made: Array = call(source, "to_come" if backward else "running", number(*x.shape), x)
    return made


@functools.lru_cache(maxsize=64)
def _of_a_rollout(step: Callable[..., Any], structure: Any, leaves: tuple[Any, ...]) -> str:
    """The source of ROLLOUT for an environment's step and for these shapes."""
    policy, params, draw, action, state = jax.tree.unflatten(structure, leaves)
    made = Source(policy, params, action)
    key = jax.eval_shape(jax.random.key, 0)
    advance = c_function("env_step", on_lanes(step, key, state, action), 0, types(state, action))
    functions = [
        made.function("act", made.head.act(draw), draw),
        made.function("log_prob", made.head.log_prob(), action),
        advance,
    ]
    return made.complete(functions, ROLLOUT="rollout", NOISE=len(types(draw)), STATE=len(types(state)))


def rollout(
    policy: Any, params: Tree, start: tuple[Tree, Array], noise: Array, *, env: Any, horizon: int, keep: bool = False
) -> tuple[Trajectories, Array | None]:
    """Return n trajectories from `start`, and the activations."""
    state, first = start
    n, width = first.shape
    check_floats(first)

    def each(x: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape[1:], x.dtype)

    draw = jax.ShapeDtypeStruct(noise.shape[2:], noise.dtype)
    action = jax.eval_shape(policy.act, params, each(first), draw)
    shapes = (*shapes_of((policy, params)), draw, action, jax.tree.map(each, state))
    leaves, structure = jax.tree.flatten(shapes)
    source = _of_a_rollout(env.step, structure, tuple(leaves))
    packed = jnp.concatenate([bits_of(x).reshape(n, -1) for x in jax.tree.leaves(state)], axis=1)
    moves = int(np.prod(action.shape))
    if keep:  # a sum of scores follows: its library is compiled at the same time as this one
        libraries.prepare(of_batches(policy, params, action))
    given = operands(policy, params)
    shapes = (
        number(n, horizon, width), jax.ShapeDtypeStruct((n, horizon, moves), action.dtype), *[number(n, horizon)] * 3,
        *to_keep(given, n, horizon, keep),
    )  # fmt: skip
    seen, acted, reward, mask, log_prob, *kept = call(
        source, "rollout", shapes, *given, noise.reshape(n, horizon, -1), packed, first
    )  # fmt: skip
    made = Trajectories(seen, acted.reshape(n, horizon, *action.shape), reward, mask, log_prob)
    return made, kept[0] if kept else None

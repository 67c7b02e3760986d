"""Evaluation of a function on many lanes at once, with no array other than vectors of one number per lane.

A GPU kernel holds one trajectory per lane, and its compiler (Triton) does not support small vectors: no stack, no slice, no
sum of four numbers. The function is therefore traced once, as it was written, and its operations are then applied one number
at a time: a value of shape [k] becomes k values of shape [lanes].
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Numbers = np.ndarray  # of objects: each element is the vector of lanes of one number, or UNKNOWN

UNKNOWN = object()  # a number that a kernel cannot compute: part of a random key, or computed from one

ELEMENTWISE = {
    *("abs", "add", "add_any", "and", "atan2", "ceil", "clamp", "convert_element_type", "cos", "div", "eq"),
    *("exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt"),
    *("max", "min", "mul", "ne", "neg", "not", "or", "pow", "rem", "rsqrt", "select_n", "sign", "sin", "sqrt"),
    *("square", "sub", "tan", "tanh", "xor"),
}

CALLS = {"checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit", "remat2"}


class Unfit(Exception):
    """The function has an operation that cannot be applied number by number."""


def on_lanes(function: Callable[..., Any], *shapes: Any) -> Callable[..., list[Array]]:
    """Return `function`, which takes trees with these shapes and dtypes, as a function of all their numbers in order.

    The numbers of random keys are omitted. Raises Unfit if the function cannot be evaluated this way: here, not when the result
    is called.
    """
    jaxpr = jax.make_jaxpr(function)(*shapes)
    avals = [v.aval for v in jaxpr.jaxpr.invars]

    @jax.jit  # traced once for each number of lanes, even if several kernels call it
    def run(*numbers: Array) -> list[Array]:
        left = iter(numbers)
        inputs = [fill(aval.shape, left) if is_number(aval) else unknown(aval.shape) for aval in avals]
        return all_known(evaluate(jaxpr.jaxpr, jaxpr.consts, inputs, numbers[0].shape[0]))

    numbers = [jax.ShapeDtypeStruct((1,), a.dtype) for a in avals if is_number(a) for _ in range(a.size)]
    try:  # whichever error a rule raises, the caller falls back to plain JAX
        jax.eval_shape(run, *numbers)
    except (IndexError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise Unfit(f"an operation in a form without a rule: {error}") from error
    return run


def is_number(aval: Any) -> bool:
    """Whether a traced value consists of numbers, not of random keys."""
    return not jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def unknown(shape: tuple[int, ...]) -> Numbers:
    """Return an array of this shape with only UNKNOWN in it."""
    return np.full(shape, UNKNOWN, dtype=object)


def fill(shape: tuple[int, ...], numbers: Any) -> Numbers:
    """Return an array of this shape, filled with the next numbers of an iterator."""
    out = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        out[place] = next(numbers)
    return out


def constant(value: Any, lanes: int) -> Numbers:
    """Return a constant with each of its numbers repeated for every lane."""
    value = np.asarray(value)
    return fill(value.shape, (jnp.full((lanes,), x.item(), jax.dtypes.canonicalize_dtype(x.dtype)) for x in value.reshape(-1)))


def evaluate(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Numbers], lanes: int) -> list[Numbers]:
    """Apply every operation of a traced function, number by number, and return its outputs."""
    values: dict[Any, Numbers] = {}

    def known(atom: Any) -> Numbers:
        return constant(atom.val, lanes) if hasattr(atom, "val") else values[atom]

    values.update(zip(jaxpr.constvars, (constant(c, lanes) for c in consts), strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))
    for eqn in jaxpr.eqns:
        operands = [known(atom) for atom in eqn.invars]
        outputs = apply(eqn, operands, lanes)
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [known(atom) for atom in jaxpr.outvars]


def apply(eqn: Any, operands: list[Numbers], lanes: int) -> list[Numbers]:
    """Apply one operation and return its outputs."""
    name, params = eqn.primitive.name, eqn.params
    if name in CALLS:
        closed = params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"]
        return evaluate(getattr(closed, "jaxpr", closed), getattr(closed, "consts", ()), operands, lanes)
    if name == "scan":
        return loop(eqn, operands, lanes)
    if any(number is UNKNOWN for operand in operands for number in operand.ravel()):
        return [unknown(v.aval.shape) for v in eqn.outvars]
    if name in ELEMENTWISE:
        return [elementwise(eqn, operands)]
    rule = RULES.get(name)
    if rule is None:
        raise Unfit(f"no rule for {name}")
    out = rule(operands, params, eqn.outvars[0].aval, lanes)
    return out if isinstance(out, list) else [out]


def elementwise(eqn: Any, operands: list[Numbers]) -> Numbers:
    """Apply an element-wise operation."""
    together = np.broadcast(*operands) if len(operands) > 1 else operands[0]
    out = np.empty(together.shape, dtype=object)
    spread = [np.broadcast_to(operand, together.shape) for operand in operands]
    for place in np.ndindex(together.shape):
        out[place] = eqn.primitive.bind(*(operand[place] for operand in spread), **eqn.params)
    return out


def loop(eqn: Any, operands: list[Numbers], lanes: int) -> list[Numbers]:
    """Apply a loop that only carries values: its steps take no other inputs and return no other outputs.

    It stays a loop, because an unrolled one would make a kernel that takes minutes to compile.
    """
    body, consts = body_of(eqn)
    fixed, carry = operands[: -len(eqn.outvars)], operands[-len(eqn.outvars) :]

    def step(_: Any, flat: list[Array]) -> list[Array]:
        left = iter(flat)
        return all_known(evaluate(body, consts, [*fixed, *(fill(x.shape, left) for x in carry)], lanes))

    done = iter(jax.lax.fori_loop(0, eqn.params["length"], step, all_known(carry)))
    return [fill(x.shape, done) for x in carry]


def body_of(eqn: Any) -> tuple[Any, Any]:
    """The body of a loop that only carries values, and its constants. Raises Unfit for any other loop."""
    closed = eqn.params["jaxpr"]
    body, consts = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())

    def shapes(atoms: Any) -> list[tuple[int, ...]]:
        return [atom.aval.shape for atom in atoms]

    count = len(eqn.outvars)
    carries = shapes(body.outvars) == shapes(eqn.outvars) == shapes(eqn.invars[-count:])
    if not carries or shapes(body.invars) != shapes(eqn.invars):
        raise Unfit("a loop over arrays")
    return body, consts


def all_known(values: Sequence[Numbers]) -> list[Array]:
    """Return all numbers of some values in order. Raises Unfit if one of them is UNKNOWN."""
    numbers = [number for value in values for number in value.ravel()]
    if any(number is UNKNOWN for number in numbers):
        raise Unfit("a result depends on a random key")
    return numbers


def reduce_with(function: Callable[[Any, Any], Any]) -> Callable[..., Numbers]:
    """Return the rule for a reduction by a function of two numbers."""

    def rule(operands: list[Numbers], params: Any, aval: Any, lanes: int) -> Numbers:
        (x,) = operands
        rest = [axis for axis in range(x.ndim) if axis not in params["axes"]]
        moved = np.transpose(x, (*params["axes"], *rest)).reshape(-1, *aval.shape)
        out = np.empty(aval.shape, dtype=object)
        for place in np.ndindex(aval.shape):
            out[place] = functools.reduce(function, moved[(slice(None), *place)])
        return out

    return rule


def argmax(operands: list[Numbers], params: Any, aval: Any, lanes: int) -> Numbers:
    candidates = np.moveaxis(operands[0], params["axes"][0], 0)
    out = np.empty(aval.shape, dtype=object)
    for place in np.ndindex(aval.shape):
        best, index = candidates[(0, *place)], jnp.zeros((lanes,), aval.dtype)
        for number in range(1, len(candidates)):
            candidate = candidates[(number, *place)]
            better = candidate > best
            index = jnp.where(better, jnp.full((lanes,), number, aval.dtype), index)
            best = jnp.where(better, candidate, best)
        out[place] = index
    return out


def product(operands: list[Numbers], params: Any, aval: Any, lanes: int) -> Numbers:
    (contract_a, contract_b), (batch, _) = params["dimension_numbers"]
    if batch:
        raise Unfit("a matrix product with batch dimensions")
    return as_numbers(np.tensordot(operands[0], operands[1], axes=(list(contract_a), list(contract_b))))


def broadcast(operands: list[Numbers], params: Any, aval: Any, lanes: int) -> Numbers:
    shape = [1] * len(aval.shape)
    for axis, size in zip(params["broadcast_dimensions"], operands[0].shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(operands[0].reshape(shape), aval.shape)


def sliced(operands: list[Numbers], params: Any, aval: Any, lanes: int) -> Numbers:
    strides = params["strides"] or [1] * operands[0].ndim
    return operands[0][
        tuple(slice(*bounds) for bounds in zip(params["start_indices"], params["limit_indices"], strides, strict=True))
    ]


def counted(operands: list[Numbers], params: Any, aval: Any, lanes: int) -> Numbers:
    return constant(np.indices(aval.shape)[params["dimension"]].astype(aval.dtype), lanes)


def as_numbers(x: Any) -> Numbers:
    """Return x as an array of objects: of an array without axes, NumPy may have returned the bare element."""
    if isinstance(x, np.ndarray):
        return x
    out = np.empty((), dtype=object)
    out[()] = x
    return out


RULES: dict[str, Callable[..., Any]] = {
    "argmax": argmax,
    "broadcast_in_dim": broadcast,
    "copy": lambda operands, *_: operands[0],
    "stop_gradient": lambda operands, *_: operands[0],
    "concatenate": lambda operands, params, *_: np.concatenate(operands, axis=params["dimension"]),
    "dot_general": product,
    "iota": counted,
    "reduce_and": reduce_with(lax.bitwise_and),
    "reduce_max": reduce_with(lax.max),
    "reduce_min": reduce_with(lax.min),
    "reduce_or": reduce_with(lax.bitwise_or),
    "reduce_sum": reduce_with(lax.add),
    "reshape": lambda operands, params, aval, _: operands[0].reshape(aval.shape),
    "rev": lambda operands, params, *_: np.flip(operands[0], params["dimensions"]),
    "slice": sliced,
    "squeeze": lambda operands, params, aval, _: operands[0].reshape(aval.shape),
    "stack": lambda operands, params, *_: np.stack(operands, axis=params["axis"]),
    "transpose": lambda operands, params, *_: np.transpose(operands[0], params["permutation"]),
    "unstack": lambda operands, params, *_: [as_numbers(part) for part in np.moveaxis(operands[0], params["axis"], 0)],
}

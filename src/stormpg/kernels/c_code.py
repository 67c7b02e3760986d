"""A function of scalars as C: the operations of a traced function, one C statement each, in a loop over lanes.

`scalar_code.on_lanes` turns the function of an environment or of a policy into operations on vectors of lanes. Here each of
them becomes an operation on one number, and the compiler turns the loop over lanes into vector instructions.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stormpg.kernels.scalar_code import CALLS, Unfit, body_of

TYPES = {"float32": "float", "int32": "int", "uint32": "unsigned", "bool": "int"}  # all of 4 bytes, so that lanes are vectors

INFIX = {
    **{"add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"},
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}
OF_MATH_H = ("ceil", "cos", "exp", "exp2", "expm1", "floor", "log", "log1p", "sin", "sqrt", "tan", "tanh")

# The C expression of each operation, for its operands {0}, {1} ...
FORMS = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in INFIX.items()},
    **{name: f"{name}f({{0}})" for name in OF_MATH_H},
    "abs": "fabsf({0})",
    "atan2": "atan2f({0}, {1})",
    "clamp": "{1} < {0} ? {0} : {1} > {2} ? {2} : {1}",
    "copy": "{0}",
    "is_finite": "isfinite({0})",
    "logistic": "1.0f / (1.0f + expf(-{0}))",
    "max": "({0} > {1} || {0} != {0}) ? {0} : {1}",  # a NaN stays one
    "min": "({0} < {1} || {0} != {0}) ? {0} : {1}",
    "neg": "-{0}",
    "pow": "powf({0}, {1})",
    "rem": "fmodf({0}, {1})",
    "rsqrt": "1.0f / sqrtf({0})",
    "select_n": "{0} ? {2} : {1}",
    "sign": "(float)(({0} > 0.0f) - ({0} < 0.0f))",
    "square": "{0} * {0}",
    "stop_gradient": "{0}",
}
WHOLE = {  # of integers, where it is different
    "abs": "abs({0})",
    "max": "{0} > {1} ? {0} : {1}",
    "min": "{0} < {1} ? {0} : {1}",
    "rem": "{0} % {1}",
    "sign": "({0} > 0) - ({0} < 0)",
}


def c_type(aval: Any) -> str:
    """The C type of a traced value."""
    if aval.dtype.name not in TYPES:
        raise Unfit(f"a number of type {aval.dtype.name}")
    return TYPES[aval.dtype.name]


def literal(value: Any) -> str:
    """A constant in C, exact to the last bit."""
    number = np.asarray(value).reshape(-1)[0]
    if number.dtype.kind == "b":
        return str(int(number))
    if number.dtype.kind in "iu":
        return f"({int(number)}{'u' if number.dtype.kind == 'u' else ''})"
    if not np.isfinite(number):
        return "NAN" if np.isnan(number) else "INFINITY" if number > 0 else "(-INFINITY)"
    return f"({float(np.float32(number)).hex()}f)"


class Writer:
    """Writes the statements of a traced function whose values are numbers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.numbers = itertools.count()

    def new(self, aval: Any, expression: str) -> str:
        """A new variable with this value."""
        name = f"v{next(self.numbers)}"
        self.lines.append(f"{c_type(aval)} {name} = {expression};")
        return name

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[str]) -> list[str]:
        """Write all operations. Returns the names of the outputs."""
        names: dict[Any, str] = dict(zip(jaxpr.invars, inputs, strict=True))
        names.update(zip(jaxpr.constvars, map(literal, consts), strict=True))

        def known(atom: Any) -> str:
            return literal(atom.val) if hasattr(atom, "val") else names[atom]

        for eqn in jaxpr.eqns:
            names.update(zip(eqn.outvars, self.operation(eqn, [known(atom) for atom in eqn.invars]), strict=True))
        return [known(atom) for atom in jaxpr.outvars]

    def operation(self, eqn: Any, operands: list[str]) -> list[str]:
        """Write one operation. Returns the names of its outputs."""
        name, params, out = eqn.primitive.name, eqn.params, eqn.outvars[0].aval
        if name in CALLS:
            closed = params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"]
            return self.run(getattr(closed, "jaxpr", closed), getattr(closed, "consts", ()), operands)
        if name == "scan":
            return self.loop(eqn, operands)
        if name in ("broadcast_in_dim", "reshape", "squeeze"):  # of a single number
            return [operands[0]]
        if name == "convert_element_type":
            whole = out.dtype == bool and eqn.invars[0].aval.dtype != bool
            return [self.new(out, f"{operands[0]} != 0" if whole else f"({c_type(out)}){operands[0]}")]
        if name == "integer_pow":
            return [self.new(out, self.power(out, operands[0], params["y"]))]
        if name == "not":
            return [self.new(out, f"!{operands[0]}" if out.dtype == bool else f"~{operands[0]}")]
        floating = jnp.issubdtype(eqn.invars[-1].aval.dtype, jnp.floating)
        form = FORMS.get(name) if floating or name not in WHOLE else WHOLE[name]
        if form is None or (name == "select_n" and len(operands) != 3):
            raise Unfit(f"no rule for {name}")
        return [self.new(out, form.format(*operands))]

    def power(self, aval: Any, base: str, exponent: int) -> str:
        """The expression of base^exponent, by squaring."""
        factors, square, left = list[str](), base, abs(exponent)
        while left:
            if left % 2:
                factors.append(square)
            left //= 2
            if left:
                square = self.new(aval, f"{square} * {square}")
        product = " * ".join(factors) or "1.0f"
        return f"1.0f / ({product})" if exponent < 0 else product

    def loop(self, eqn: Any, operands: list[str]) -> list[str]:
        """Write a loop that only carries values."""
        body, consts = body_of(eqn)
        fixed, first = operands[: -len(eqn.outvars)], operands[-len(eqn.outvars) :]
        carry = [self.new(v.aval, x) for v, x in zip(eqn.outvars, first, strict=True)]
        step = f"v{next(self.numbers)}"
        self.lines.append(f"for (int {step} = 0; {step} < {eqn.params['length']}; {step}++) {{")
        ahead = self.run(body, consts, [*fixed, *carry])
        kept = [self.new(v.aval, x) for v, x in zip(eqn.outvars, ahead, strict=True)]  # all, before any of them is assigned
        self.lines += [f"{old} = {new};" for old, new in zip(carry, kept, strict=True)]
        self.lines.append("}")
        return carry


def c_function(name: str, run: Callable[..., Any], fixed: int, dtypes: Sequence[Any]) -> str:
    """A C function of `run`, which takes and returns vectors of one number for each lane (`scalar_code.on_lanes`).

    `dtypes`: of its inputs. The first `fixed` of them are the same for all lanes. The C function takes those as one array, and
    the others and the results as arrays of lanes, whose integers are stored in the bits of floats:

        void name(const float *fixed, float (*in)[LANES], float (*out)[LANES], int many)

    It computes whole groups of lanes: loops of a fixed length become vector instructions.
    """
    traced = jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct((1,), dtype) for dtype in dtypes))
    writer = Writer()
    avals = [v.aval for v in traced.jaxpr.invars]
    places = [f"fixed[{i}]" if i < fixed else f"in[{i - fixed}][lane]" for i in range(len(avals))]
    inputs = [writer.new(a, x if c_type(a) == "float" else f"bits({x})") for a, x in zip(avals, places, strict=True)]
    try:  # whichever error a rule raises, the caller falls back to plain JAX
        outputs = writer.run(traced.jaxpr, traced.consts, inputs)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise Unfit(f"an operation in a form without a rule: {error}") from error
    for number, (atom, value) in enumerate(zip(traced.jaxpr.outvars, outputs, strict=True)):
        writer.lines.append(f"out[{number}][lane] = {value if c_type(atom.aval) == 'float' else f'as_bits({value})'};")
    body = "\n".join(writer.lines)
    return f"""
static inline void {name}(
    const float *restrict fixed, float (*restrict in)[LANES], float (*restrict out)[LANES], int many
) {{
for (int first = 0; first < many; first += GROUP)
for (int lane = first; lane < first + GROUP; lane++) {{
{body}
}}
}}
"""

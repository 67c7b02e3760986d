"""A network with one hidden layer in the registers of a GPU, by hand, and how its kernels are called, in Pallas for Triton."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from stormpg.kernels.network import Weights, power_of_two, weights

Ref = Any  # a Pallas reference to an array in GPU memory

SCALE = 2.0 / math.log(2.0)  # tanh(x) = 1 - 2 / (2^(SCALE x) + 1), and a GPU computes powers of 2


@functools.cache
def interpreted() -> bool:
    """Whether GPU kernels run in Python: this process has no GPU."""
    return bool(jax.devices()[0].platform == "cpu")


def call(kernel: Callable[..., None], programs: int, out_shape: Any, *operands: Any) -> Any:
    """Run a kernel on a grid of `programs` programs, each of one warp."""
    return pl.pallas_call(
        kernel,
        grid=(programs,),
        out_shape=out_shape,
        interpret=interpreted(),
        compiler_params=None if interpreted() else triton.CompilerParams(num_warps=1, num_stages=1),
    )(*operands)


# tanh(x / SCALE) of $1. The approximations have errors of one unit in the last place. Without .ftz, which rounds denormal
# numbers to 0, each would take three more instructions for them; here 1 is added to every such number.
TANH = """{
    .reg .f32 y;
    ex2.approx.ftz.f32 y, $1;
    add.ftz.f32 y, y, 0f3F800000;
    rcp.approx.ftz.f32 y, y;
    fma.rn.ftz.f32 $0, y, 0fC0000000, 0f3F800000;
}"""


def instructions(text: str, *operands: Array) -> Array:
    """Instructions of a GPU for each element of some arrays."""
    arrays = jnp.broadcast_arrays(*operands)
    shape = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)
    constraints = ",".join(["=f", *["f"] * len(arrays)])
    (value,) = triton.elementwise_inline_asm(text, args=arrays, constraints=constraints, pack=1, result_shape_dtypes=[shape])
    return value


def scaled_tanh(x: Array) -> Array:
    """tanh(x / SCALE) by four instructions. The absolute error is 1e-7, also for a small x."""
    return 1.0 - 2.0 / (jnp.exp2(x) + 1.0) if interpreted() else instructions(TANH, x)


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a · b + c by one instruction. The compiler would take two."""
    return a * b + c if interpreted() else instructions("fma.rn.f32 $0, $1, $2, $3;", a, b, c)


def weights_on_a_gpu(layers: Any) -> Weights:
    """Return the weights with a power of two of hidden units, and the first layer scaled for `scaled_tanh`."""
    return weights(layers, power_of_two(layers[0]["bias"].shape[0]), SCALE)


class Loaded(NamedTuple):
    """The network in registers: each vector of units is a column, [width, 1], so that threads hold whole columns of lanes."""

    into: list[Array]
    bias: Array
    out: list[Array]
    out_bias: list[Array]


def load_weights(refs: Any) -> Loaded:
    """Load the network from GPU memory into registers."""
    w = Weights(*refs)
    return Loaded(
        [w.into[i, :][:, None] for i in range(w.into.shape[0])],
        w.bias[:][:, None],
        [w.out[o, :][:, None] for o in range(w.out.shape[0])],
        [w.out_bias[o] for o in range(w.out.shape[0])],
    )


def first_layer(inputs: list[Array], weights: list[Array], bias: Array) -> Array:
    """bias + Σ_i x_i w_i: [width, lanes]."""
    total = bias
    for x, weight in zip(inputs, weights, strict=True):
        total = multiply_add(x[None, :], weight, total)
    return total


def hidden(w: Loaded, inputs: list[Array]) -> Array:
    """Return the values of the hidden layer: [width, lanes]."""
    return scaled_tanh(first_layer(inputs, w.into, w.bias))


def slope_of(h: Array) -> Array:
    """Return the slope of tanh where its value is h."""
    return multiply_add(-h, h, jnp.ones_like(h))


def output(w: Loaded, h: Array) -> list[Array]:
    """Return the outputs of the network for the values h of the hidden layer, each [lanes]."""
    return [(h * weight).sum(axis=0) + bias for weight, bias in zip(w.out, w.out_bias, strict=True)]


def pulled(pull: list[Array], weights: list[Array]) -> Array:
    """Σ_o p_o w_o, for slopes p_o of the outputs: [width, lanes]."""
    total = pull[0][None, :] * weights[0]
    for p, weight in zip(pull[1:], weights[1:], strict=True):
        total = multiply_add(p[None, :], weight, total)
    return total


def add_slopes(sums: list[Array], inputs: list[Array], back: Array, pull: list[Array], values: Array) -> list[Array]:
    """Add the slopes of the weights, for each lane: from each input, of the hidden layer's bias, and to each output.

    `back`, [width, lanes]: the slopes of the hidden layer before its tanh. `values`: what slopes of the outputs multiply.
    """
    count = len(inputs)
    return [
        *(multiply_add(x[None, :], back, total) for x, total in zip(inputs, sums[:count], strict=True)),
        sums[count] + back,
        *(multiply_add(p[None, :], values, total) for p, total in zip(pull, sums[count + 1 :], strict=True)),
    ]


def read(ref: Any, lanes: int) -> list[Array]:
    """Read the numbers that `scalars` wrote, each repeated for every lane."""
    return [jnp.broadcast_to(ref[i], (lanes,)) for i in range(ref.shape[0] - 1)]

"""Export of a policy's mode as an ONNX model, for use in other programs."""

from pathlib import Path
from typing import Any

import numpy as np

from stormpg.envs.base import Box
from stormpg.errors import InputError
from stormpg.files import write_file
from stormpg.policies.families import NEVER, Categorical, Gaussian, MultiCategorical, table_rows
from stormpg.policies.networks import MLP
from stormpg.policies.normalisation import Normalised
from stormpg.pytrees import Tree

OPSET = 17


class Graph:
    """A chain of operations on one value, the observations."""

    def __init__(self, onnx: Any) -> None:
        self.onnx, self.value = onnx, "observation"
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """Add a constant and return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def end(self, name: str) -> None:
        """Give the value its final name."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [self.value], [name]))
        self.value = name

    def then(self, operation: str, *constants: Any, **attributes: Any) -> None:
        """Apply an operation to the value and some constants."""
        inputs, output = [self.value, *(self.constant(c) for c in constants)], f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [output], **attributes))
        self.value = output


def write_onnx(policy: Any, params: Tree, env: Any, path: Path) -> Path:
    """Write a model from the input "observation", float32[n, d], to flat actions: clipped floats, or integers from 0."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise InputError("exporting a policy needs the package onnx: pip install 'stormpg[onnx]'.") from None
    graph = Graph(onnx)
    if isinstance(policy, Normalised):
        shift, spread = (np.asarray(part, np.float32) for part in policy.shift_and_spread(params))
        graph.then("Sub", shift)
        graph.then("Div", spread)
        graph.then("Clip", np.float32(-policy.clip), np.float32(policy.clip))
        policy, params = policy.policy, params["policy"]
    choices = isinstance(policy, Categorical | MultiCategorical)
    network = policy.mean if isinstance(policy, Gaussian) else policy.logits if choices else None
    if not isinstance(network, MLP):
        raise InputError(
            "only policies with the built-in MLP can be exported: use gaussian_mlp or categorical_mlp, for example."
        )
    layers = params["mean" if isinstance(policy, Gaussian) else "logits"]
    for number, layer in enumerate(layers):
        graph.then("MatMul", np.asarray(layer["weight"], np.float32))
        graph.then("Add", np.asarray(layer["bias"], np.float32))
        if number + 1 < len(layers):
            graph.then("Tanh")
    if isinstance(policy, Categorical):
        graph.then("ArgMax", axis=-1, keepdims=0)
    elif isinstance(policy, MultiCategorical):
        place = table_rows(np, np.arange(float(sum(policy.sizes))), policy.sizes)  # of each logit; negative: padding
        real = place >= 0
        graph.then("Gather", np.where(real, place, 0).astype(np.int64).reshape(-1), axis=1)
        graph.then("Add", np.where(real, 0, NEVER).reshape(-1).astype(np.float32))
        graph.then("Reshape", np.asarray((-1, *place.shape)))
        graph.then("ArgMax", axis=-1, keepdims=0)
    else:
        if policy.scale is not None:
            centre, half_width = (np.asarray(part, np.float32) for part in policy.scale)
            graph.then("Mul", half_width)
            graph.then("Add", centre)
        low, high = env.bounds
        graph.then("Max", np.asarray(low, np.float32))
        graph.then("Min", np.asarray(high, np.float32))
    graph.end("action")
    whole = not isinstance(env.action_space, Box)
    describe, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto
    seen = describe("observation", kind.FLOAT, ["n", network.sizes[0]])
    shape = ["n"] if isinstance(policy, Categorical) else ["n", *env.action_space.shape]
    done = describe(graph.value, kind.INT64 if whole else kind.FLOAT, shape)
    inner = onnx.helper.make_graph(graph.nodes, "policy", [seen], [done], graph.constants)
    model = onnx.helper.make_model(inner, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    write_file(path, lambda part: Path(part).write_bytes(model.SerializeToString()))
    return path

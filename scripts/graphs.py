"""Small ONNX models, each written down as an expression:

model(
    op("Add", "s x -> t"),
    op("Identity", "t -> y"),
    inputs=[tensor("x", np.float32, "batch", 3), tensor("s", np.float32, "batch", 3)],
    outputs=[tensor("y", np.float32, "batch", 3), tensor("t", np.float32, "batch", 3)],
)
"""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8


def onnx_type(dtype: np.dtype | type) -> int:
    """The ONNX type of a numpy type; object and bytes stand for strings."""
    if dtype in (object, bytes):
        return TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def tensor(name: str, dtype: np.dtype | type, *dims: int | str | None) -> ValueInfoProto:
    """An input or output. A text names a dynamic axis; None is one without a name."""
    return helper.make_tensor_value_info(name, onnx_type(dtype), dims)


def op(kind: str, names: str, **attributes) -> NodeProto:
    """A node, its inputs and outputs as in "a b -> c"; a dot leaves an input out."""
    before, after = names.split("->")
    inputs = ["" if name == "." else name for name in before.split()]
    return helper.make_node(kind, inputs, after.split(), **attributes)


def model(
    *nodes: NodeProto,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    constants: dict[str, np.ndarray] | None = None,
    doc: str = "",
) -> ModelProto:
    """A checked model. The doc string is the graph's. Operators of another domain are those of its version 1."""
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers, doc_string=doc)
    domains = {"": OPSET} | {node.domain: 1 for node in nodes if node.domain}
    made = helper.make_model(
        graph, ir_version=IR_VERSION, opset_imports=list(map(helper.make_opsetid, domains, domains.values()))
    )
    onnx.checker.check_model(made)
    return made


def delay(dtype: np.dtype | type, *dims: int, axis: int = 0, state: tuple[str, str] = ("s", "s_out")) -> ModelProto:
    """Answers with what the sequence sent one request before: y = s, s' = x. Right for elements of every type.

    dims are those of a lane; the batch is inserted at the axis.
    """
    shape = [*dims[:axis], "batch", *dims[axis:]]
    before, after = state
    return model(
        op("Identity", f"{before} -> y"),
        op("Identity", f"x -> {after}"),
        inputs=[tensor("x", dtype, *shape), tensor(before, dtype, *shape)],
        outputs=[tensor("y", dtype, *shape), tensor(after, dtype, *shape)],
    )


def running_sum(
    *dims: int | str,
    dtype: np.dtype | type = np.float32,
    nodes: Sequence[NodeProto] = (),
    term: str = "x",
    inputs: Sequence[ValueInfoProto] = (),
    constants: dict[str, np.ndarray] | None = None,
) -> ModelProto:
    """Answers with the sum of what the sequence has sent: y = s' = s + term.

    The term is x, or what the nodes make of it, of further inputs and of constants.
    """
    return model(
        *nodes,
        op("Add", f"s {term} -> s_out"),
        op("Identity", "s_out -> y"),
        inputs=[tensor("x", dtype, *dims), tensor("s", dtype, *dims), *inputs],
        outputs=[tensor("y", dtype, *dims), tensor("s_out", dtype, *dims)],
        constants=constants,
    )


BF16 = np.dtype(ml_dtypes.bfloat16)

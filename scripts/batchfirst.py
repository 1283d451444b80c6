"""A model with its batch on the first axis of every input and output, as Triton's implicit state needs it.

Transposes are put where the model has the batch elsewhere, as users of implicit state do; the rest is as it was.
"""

from pathlib import Path

import onnx
from onnx import AttributeProto, GraphProto, ValueInfoProto, helper


def batch_first(source: Path, target: Path) -> None:
    """Writes the model to target. Batch axes are those called "batch"; at most one of each tensor."""
    model = onnx.load(source)
    graph = model.graph
    before, after = [], []
    for value in graph.input:
        if order := order_of(value):
            inner = f"{value.name}/as_in_model"
            rename(graph, value.name, inner)
            permutation = [order.index(axis) for axis in range(len(order))]
            before.append(helper.make_node("Transpose", [value.name], [inner], perm=permutation))
            reorder(value, order)
    for value in graph.output:
        if order := order_of(value):
            inner = f"{value.name}/as_in_model"
            rename(graph, value.name, inner)
            after.append(helper.make_node("Transpose", [inner], [value.name], perm=order))
            reorder(value, order)
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model)
    onnx.save(model, target)


def order_of(value: ValueInfoProto) -> list[int]:
    """The axes with the batch first; empty if it is there already, or nowhere."""
    names = [dim.dim_param for dim in value.type.tensor_type.shape.dim]
    batch = names.index("batch") if "batch" in names else 0
    return [batch, *(axis for axis in range(len(names)) if axis != batch)] if batch else []


def reorder(value: ValueInfoProto, order: list[int]) -> None:
    shape = value.type.tensor_type.shape
    dims = [shape.dim[axis] for axis in order]
    value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))


def rename(graph: GraphProto, old: str, new: str) -> None:
    """Gives a tensor another name wherever nodes read or write it, also in subgraphs."""
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                rename(attribute.g, old, new)
                for output in attribute.g.output:
                    if output.name == old:
                        output.name = new

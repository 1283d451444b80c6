"""States that start empty, in models with operators that end ONNX Runtime's process on an empty tensor: the load is refused
where the state gets there, with the line that serves the model right, and else it is served without a word. So it is in
models that run with just one extent of a state."""

import re
from collections.abc import Sequence

import numpy as np
import pytest
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, helper
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from configs import config, io
from conftest import Folder
from graphs import OPSET, model, op, tensor
from sequences import Reference, check
from unary import infer

F32 = np.float32
C = 4
X, Y = io("x", "FP32", -1, C), io("y", "FP32", C)
SAMPLE, FILTERED = io("x", "FP32", 1), io("y", "FP32", 1)
STATES = {"cache": "cache_out"}
TENSORS = {
    "inputs": [tensor("x", F32, "batch", "time", C), tensor("cache", F32, "batch", "past", C)],
    "outputs": [tensor("y", F32, "batch", C), tensor("cache_out", F32, "batch", "total", C)],
}
LINE = re.compile(r"parameters \{ key: 'initial_states' value \{ string_value: '([^']*)' \} \}")


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def summary(of: str) -> ModelProto:
    """A GRU over the cache: over what was before this request, or over all."""
    return model(
        op("Concat", "cache x -> cache_out", axis=1),
        op("Transpose", f"{of} -> by_time", perm=[1, 0, 2]),
        op("GRU", "by_time w r -> every last", hidden_size=C),
        op("Squeeze", "last zero -> h"),
        op("ReduceSum", "x one -> now", keepdims=0),
        op("Add", "h now -> y"),
        **TENSORS,
        constants={"w": weights(1, 3 * C, C), "r": weights(1, 3 * C, C), "zero": np.array([0]), "one": np.array([1])},
    )


def attention(of: str) -> ModelProto:
    """Attention by Einsum to the keys of the cache: to those from before this request, or to all."""
    return model(
        op("Concat", "cache x -> cache_out", axis=1),
        op("ReduceMean", "x -> q", axes=[1], keepdims=1),
        op("Einsum", f"q {of} -> scores", equation="btc,bsc->bts"),
        op("Softmax", "scores -> shares", axis=2),
        op("Einsum", f"shares {of} -> rows", equation="bts,bsc->btc"),
        op("Squeeze", "rows one -> y"),
        **TENSORS,
        constants={"one": np.array([1])},
    )


def positions() -> ModelProto:
    """Angles of positions by Einsum, as rotary embeddings have them: the length before says where they begin."""
    return model(
        op("Concat", "cache x -> cache_out", axis=1),
        op("Shape", "cache -> before_dims"),
        op("Gather", "before_dims at_time -> before"),
        op("Shape", "cache_out -> dims"),
        op("Gather", "dims at_time -> total"),
        op("Range", "zero total step -> numbers"),
        op("Cast", "numbers -> positions", to=1),
        op("Einsum", "positions rates -> angles", equation="i,j->ij"),
        op("Sin", "angles -> turned"),
        op("Mul", "cache_out turned -> all"),
        op("Cast", "before -> length", to=1),
        op("ReduceSum", "all one -> sums", keepdims=0),
        op("Add", "sums length -> y"),
        **TENSORS,
        constants={
            "at_time": np.array(1), "zero": np.array(0), "step": np.array(1), "one": np.array([1]),
            "rates": np.array([1, 0.1, 0.01, 0.001], F32),
        },
    )  # fmt: skip


def over_rows(*nodes: NodeProto, functions: Sequence[FunctionProto] = ()) -> ModelProto:
    """A GRU over rows, which nodes make from x, the cache and what is known of their lengths."""
    onnx = model(
        op("Concat", "cache x -> cache_out", axis=1),
        op("Shape", "cache -> cache_dims"),
        op("Gather", "cache_dims one -> past"),
        op("Shape", "x -> dims"),
        op("Gather", "dims one -> time"),
        *nodes,
        op("GRU", "by_time w r -> every last", hidden_size=C),
        op("Squeeze", "last zero -> h"),
        op("ReduceSum", "x one -> now", keepdims=0),
        op("Add", "h now -> y"),
        **TENSORS,
        constants={
            "w": weights(1, 3 * C, C), "r": weights(1, 3 * C, C), "zero": np.array([0]), "one": np.array([1]),
            "end": np.array([1000]), "at_zero": np.array(0), "go": np.array(True),
        },
    )  # fmt: skip
    onnx.functions.extend(functions)
    return onnx


def function(name: str, inputs: str, *nodes: NodeProto) -> FunctionProto:
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, inputs.split(), ["out"], nodes, versions)


def row() -> GraphProto:
    """The body of a Loop: one row of zeros, with the rank of x."""
    outputs = [tensor("on_out", bool), tensor("row", F32, "batch", C)]
    nodes = [op("Identity", "on -> on_out"), op("ReduceSum", "x one -> row", keepdims=0)]
    return helper.make_graph(nodes, "body", [tensor("i", np.int64), tensor("on", bool)], outputs)


TURN = op("Transpose", "rows -> by_time", perm=[1, 0, 2])
INNER = function("Inner", "a", op("Transpose", "a -> out", perm=[1, 0, 2]))
OUTER = function("Outer", "a", op("Inner", "a -> out", domain="own"))
# Models that cut a tensor as long as the empty cache out of one that is not empty, or hide the way to the GRU.
HIDDEN = {
    "functions": over_rows(op("Outer", "cache -> by_time", domain="own"), functions=[OUTER, INNER]),
    "last_of_x": over_rows(op("Sub", "time past -> start"), op("Slice", "x start end one -> rows"), TURN),
    "length_and_back": over_rows(
        op("Add", "past time -> total"), op("Sub", "total time -> n"), op("Slice", "x zero n one -> rows"), TURN
    ),
    "all_but_x": over_rows(op("Neg", "time -> n"), op("Slice", "cache_out zero n one -> rows"), TURN),
    "loop": over_rows(op("Squeeze", "past zero -> n"), op("Loop", "n go -> rows", body=row()), op("Identity", "rows -> by_time")),
    "pad": over_rows(
        op("Sub", "past time -> less"),
        op("Concat", "zero zero zero zero less zero -> pads", axis=0),
        op("Pad", "x pads -> rows"),
        TURN,
    ),
}


def window(*, extent: int) -> ModelProto:
    """A filter over the last samples, of which there must be as many as it has weights; the file leaves that open."""
    return model(
        op("MatMul", "window w -> filtered"),
        op("Add", "filtered x -> y"),
        op("Slice", "window one end one -> rest"),
        op("Concat", "rest x -> window_out", axis=1),
        inputs=[tensor("x", F32, "batch", 1), tensor("window", F32, "batch", "samples")],
        outputs=[tensor("y", F32, "batch", 1), tensor("window_out", F32, "batch", "samples")],
        constants={"w": weights(extent, 1), "one": np.array([1]), "end": np.array([1000])},
    )


ONE_EXTENT = (10, 24, 480)


@pytest.mark.parametrize("extent", ONE_EXTENT)
def test_the_extent_of_a_refusal(refusal, extent: int):
    said = refusal(f"window_{extent}", Folder(config([SAMPLE], [FILTERED]), window(extent=extent)))
    assert 'state "window" would start empty along axis 1, and the model does not run with that' in said
    assert LINE.search(said)[1] == f"window = 0[1,{extent}]"


@pytest.mark.parametrize("extent", ONE_EXTENT)
def test_served_with_that_extent(own_client, extent: int):
    random = np.random.default_rng(1)
    sequences = [[{"x": random.standard_normal((1, 1)).astype(F32)} for _ in range(5)] for _ in range(4)]
    reference = Reference(window(extent=extent), {"window": "window_out"}, {"window": np.zeros((1, extent), F32)})
    check(own_client, f"window_{extent}", reference, sequences, tolerance=1e-5)


REFUSED = {"gru_of_before": summary("cache"), "attention_to_before": attention("cache")}
SERVED = {"gru_of_all": summary("cache_out"), "attention_to_all": attention("cache_out"), "rotary_positions": positions()}
ONE_ZERO = {"cache": np.zeros((1, 1, C), F32)}
MODELS = {name: Folder(config([X], [Y]), onnx) for name, onnx in SERVED.items()}
MODELS |= {
    name: Folder(config([X], [Y], initial_states=f"cache = 0[1,1,{C}]"), onnx) for name, onnx in REFUSED.items()
}  # what the refusal says
MODELS |= {
    f"window_{extent}": Folder(config([SAMPLE], [FILTERED], initial_states=f"window = 0[1,{extent}]"), window(extent=extent))
    for extent in ONE_EXTENT
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_line_of_the_refusal(refusal, name: str):
    for suffix, parameters in {"": {}, "_as_told": {"initial_states": f"cache = 0[1,0,{C}]"}}.items():
        said = refusal(name + suffix, Folder(config([X], [Y], **parameters), REFUSED[name]))
        assert 'state "cache" would start empty' in said and "ONNX Runtime crashes on an empty tensor" in said
        assert LINE.search(said)[1] == f"cache = 0[1,1,{C}]"


@pytest.mark.parametrize("name", [*REFUSED, *SERVED])
def test_served(own_server, own_client, name: str):
    random = np.random.default_rng(1)
    lengths = [(3, 1, 2), (3, 1, 2), (1, 4, 1), (2, 2, 2)]
    sequences = [[{"x": random.standard_normal((1, time, C)).astype(F32)} for time in times] for times in lengths]
    reference = Reference((REFUSED | SERVED)[name], STATES, ONE_ZERO if name in REFUSED else {})
    check(own_client, name, reference, sequences, tolerance=1e-5)
    assert f"{name}_0_0: state" not in "\n".join(line for line in own_server.log_text().splitlines() if "crashes" in line)


def long_name(onnx: ModelProto) -> bytes:
    """The model with a tensor of which the name is too long for the backend's reader."""
    for names in [names for node in onnx.graph.node for names in (node.input, node.output)]:
        names[:] = ["t" * 4097 if name == "by_time" else name for name in names]
    return onnx.SerializeToString()


def group(onnx: ModelProto) -> bytes:
    """The file with an unknown field of protobuf's old kind, which ONNX Runtime skips and the reader refuses."""
    return onnx.SerializeToString() + bytes([0xA3, 0x06, 0xA4, 0x06])


@pytest.mark.parametrize("kind", [long_name, group])
def test_files_read_in_part(serve, kind):
    """A request that would end the server is refused, whatever the backend can read of the model file."""
    served = config([X], [Y], initial_states=f"cache = 0[1,1,{C}]")
    server = serve({"gru": Folder(served, None, {"1/model.onnx": kind(summary("cache"))})})
    with InferenceServerClient(server.grpc_url) as client:
        with pytest.raises(InferenceServerException, match="no extent of 0"):
            infer(client, "gru", 1, {"x": np.ones((1, 0, C), F32)}, start=True, end=True)
        infer(client, "gru", 2, {"x": np.ones((1, 2, C), F32)}, start=True, end=True)
    assert ("could not read which operators" in server.log_text()) == (kind is group)


def unsorted() -> ModelProto:
    """A model whose nodes stand in the file in reverse, which ONNX Runtime accepts."""
    onnx = summary("cache")
    nodes = list(onnx.graph.node)[::-1]
    del onnx.graph.node[:]
    onnx.graph.node.extend(nodes)
    return onnx


@pytest.mark.parametrize("name", [*HIDDEN, "unsorted"])
def test_warning(serve, name: str):
    """What the backend does not understand, it warns of: the first request ends this server."""
    onnx = HIDDEN[name] if name in HIDDEN else unsorted()
    server = serve({name: Folder(config([X], [Y]), None, {"1/model.onnx": onnx.SerializeToString()})})
    assert 'state \\"cache\\" begins with shape [1,0,4], and ONNX Runtime crashes when' in server.log_text()
    with InferenceServerClient(server.grpc_url) as client, pytest.raises(InferenceServerException):
        infer(client, name, 1, {"x": np.ones((1, 3, C), F32)}, start=True, end=True)
    assert server.wait() < 0, "no signal ended it"

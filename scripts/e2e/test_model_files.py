"""Where the model's file lies, and what is said of one that cannot be one."""

from pathlib import Path

import numpy as np
import onnx
from tritonclient.grpc import InferenceServerClient

from configs import config, io
from conftest import Folder
from graphs import op, running_sum
from unary import infer

F32 = np.float32
X, Y = io("x", "FP32", 300), io("y", "FP32", 300)
WEIGHTS = np.arange(300, dtype=F32)


def weighted() -> onnx.ModelProto:
    """y = s' = s + weights * x."""
    scale = [op("Mul", "x weights -> more")]
    return running_sum("batch", 300, nodes=scale, term="more", constants={"weights": WEIGHTS})


def with_external_data(folder: Path) -> dict[str, bytes]:
    """The files of a model whose weights are in a second file, by their names."""
    apart = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save_model(weighted(), folder / "model.onnx", **apart)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_model_with_a_folder_of_its_own(serve, tmp_path):
    """1/model.onnx/model.onnx next to its data, as Triton's documentation has it, and both in the version's folder."""
    (tmp_path / "made").mkdir()
    files = with_external_data(tmp_path / "made")
    assert set(files) == {"model.onnx", "weights.bin"}
    server = serve(
        {
            "inside": Folder(config([X], [Y]), files={f"1/model.onnx/{name}": data for name, data in files.items()}),
            "next_to": Folder(config([X], [Y]), files={f"1/{name}": data for name, data in files.items()}),
            "completed": Folder(
                'backend: "stateful"\nsequence_batching { oldest { } }',
                files={f"1/model.onnx/{name}": data for name, data in files.items()},
            ),
        }
    )
    with InferenceServerClient(server.grpc_url) as client:
        for name in ("inside", "next_to", "completed"):
            for step in (1, 2):
                answer = infer(client, name, 1, {"x": np.ones((1, 300), F32)}, start=step == 1, end=step == 2)
                np.testing.assert_array_equal(answer["y"][0], step * WEIGHTS)

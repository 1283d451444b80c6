"""Configurations of Triton's onnxruntime backend, of which only the backend was changed."""

import base64
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from tritonclient.grpc import InferenceServerClient

from conftest import Folder
from graphs import delay, op, running_sum
from tritonserver import ROOT, ServerError, TritonServer
from unary import infer

F32 = np.float32

# What the onnxruntime backend's own documentation shows, on a model with states as Triton manages them.
CONFIG = """
backend: "onnxruntime"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [3] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [3] }]
sequence_batching {
  oldest { max_candidate_sequences: 16 }
  state [{ input_name: "s" output_name: "s_out" data_type: TYPE_FP32 dims: [3] initial_state { name: "zero" data_type: TYPE_FP32 dims: [3] zero_data: true } }]
}
instance_group [{ count: 1 kind: KIND_CPU }]
"""
TUNED = """
optimization {
  graph { level: 1 }
  execution_accelerators {
    gpu_execution_accelerator [{
      name: "tensorrt"
      parameters { key: "precision_mode" value: "FP16" }
      parameters { key: "max_workspace_size_bytes" value: "1073741824" }
    }, {
      name: "cuda"
      parameters { key: "cudnn_conv_use_max_workspace" value: "0" }
    }]
  }
  input_pinned_memory { enable: true }
}
parameters { key: "intra_op_thread_count" value { string_value: "3" } }
parameters { key: "inter_op_thread_count" value { string_value: "2" } }
parameters { key: "execution_mode" value { string_value: "1" } }
parameters { key: "enable_mem_arena" value { string_value: "1" } }
parameters { key: "enable_mem_pattern" value { string_value: "0" } }
parameters { key: "memory.enable_memory_arena_shrinkage" value { string_value: "cpu:0" } }
parameters { key: "session.use_device_allocator_for_initializers" value { string_value: "1" } }
parameters { key: "cudnn_conv_algo_search" value { string_value: "0" } }
parameters { key: "gpu_mem_limit" value { string_value: "4294967200" } }
"""


def ours(config: str) -> str:
    """The configuration for our backend: nothing else is changed."""
    assert config.count('backend: "onnxruntime"') == 1
    return config.replace('backend: "onnxruntime"', 'backend: "stateful"')


def parameters(**values: str) -> str:
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def sums(client: InferenceServerClient, model: str, factor: float = 1) -> None:
    """Checks that the model answers with running sums, of two sequences in turn."""
    for step in (1, 2, 3):
        for sequence in (1, 2):
            x = np.full((1, 3), sequence, F32)
            answer = infer(client, model, sequence, {"x": x}, start=step == 1, end=step == 3)
            np.testing.assert_array_equal(answer["y"], factor * step * x)


def threads(server: TritonServer) -> int:
    return int(Path(f"/proc/{server.pid}/status").read_text().split("Threads:")[1].split()[0])


def test_only_the_backend_changes(serve):
    """Every setting reaches ONNX Runtime, which lists the options of a session in its log."""
    models = {
        "tuned": Folder(ours(CONFIG + TUNED), running_sum("batch", 3)),
        "plain": Folder(ours(CONFIG), running_sum("batch", 3)),
    }
    server = serve(models, options=["--backend-config=stateful,ort-logging-level=1"])
    with InferenceServerClient(server.grpc_url) as client:
        sums(client, "tuned")
        sums(client, "plain")
    [line] = re.findall(r"onnxruntime: tuned_0_0: Session Options \{.*", server.log_text())
    for want in (
        "execution_mode:1",
        "enable_mem_pattern:0",
        "enable_cpu_mem_arena:1",
        "graph_optimization_level:2",
        "intra_op_param:OrtThreadPoolParams { thread_pool_size: 3 ",
        "inter_op_param:OrtThreadPoolParams { thread_pool_size: 2 ",
        "session.use_device_allocator_for_initializers: 1",
    ):
        assert want in line
    idle = "cudnn_conv_algo_search, gpu_execution_accelerator tensorrt and cuda, gpu_mem_limit"
    assert f"without effect on this instance (CPU): {idle}" in server.log_text()


def test_every_candidate_has_a_slot(serve):
    """As many sequences at once as the configuration allows: Triton's own states would have room for all of them."""
    server = serve({"m": Folder(ours(CONFIG), running_sum("batch", 3))})
    x = np.ones((1, 3), F32)
    with InferenceServerClient(server.grpc_url) as client:
        for step in (1, 2):
            for sequence in range(1, 17):
                answer = infer(client, "m", sequence, {"x": x}, start=step == 1, end=step == 2)
                np.testing.assert_array_equal(answer["y"], step * x)


def test_everything_wrong_is_said_at_once(refusal):
    """ONNX Runtime would ignore an unknown setting in silence."""
    wrong = parameters(
        **{
            "session.disable_prepaking": "1",
            "execution_mode": "2",
            "enable_mem_arena": "maybe",
            "intra_op_threads": "1",
            "intra_op_thread_count": "2",
            "graph_optimization": "all",
        }
    )
    field = """optimization { graph { level: 2 } execution_accelerators {
        cpu_execution_accelerator [{ name: "openvino" }] gpu_execution_accelerator [{ name: "auto_mixed_precision" }] } }"""
    said = refusal("wrong_settings", Folder(ours(CONFIG) + wrong + field, running_sum("batch", 3)))
    for want in (
        'did you mean "session.disable_prepacking"?',
        "parameter execution_mode is",
        "parameter enable_mem_arena is",
        "parameters intra_op_threads",
        "graph.level is 2 (disabled)",
        "ort_ep_library",  # what to do instead of openvino
        "auto_mixed_precision",
    ):
        assert want in said


def test_threads_of_all_models(serve):
    """With a global pool, five models with eight threads each start none."""
    models = {f"m{i}": Folder(ours(CONFIG) + parameters(intra_op_thread_count="8"), running_sum("batch", 3)) for i in range(5)}
    pool = [
        f"--backend-config=stateful,{setting}"
        for setting in ("enable-global-threadpool=1", "intra_op_thread_count=3", "inter_op_thread_count=2")
    ]
    shared = serve(models, options=pool)
    with InferenceServerClient(shared.grpc_url) as client:
        for name in models:
            sums(client, name)
    assert "intra_op_thread_count has no effect" in shared.log_text()
    count = threads(shared)
    shared.stop()
    assert threads(serve(models)) - count > 5 * 7 - 3 - 5  # those of the pools, and a few that come and go


def compiled(source: str, library: Path, *flags: str) -> Path:
    """A library of the C tests of package ortrunner, compiled against the vendor's header."""
    module = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go"]
    headers = subprocess.run(module, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    path = ROOT / "ortrunner" / "testdata" / source
    subprocess.run(["gcc", "-shared", "-fPIC", *flags, f"-I{headers}", "-o", str(library), str(path)], check=True)
    return library


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with the operator com.example.Twice."""
    return compiled("customop.c", tmp_path_factory.mktemp("operators") / "libtwice.so").read_bytes()


def doubled() -> onnx.ModelProto:
    """y = s' = s + Twice(x)."""
    return running_sum("batch", 3, nodes=[op("Twice", "x -> more", domain="com.example")], term="more")


def test_custom_operators(serve, tmp_path, operators: bytes):
    """A library of operators in the version's folder, in the model's, by its path, and where the loader finds it."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libfound.so").write_bytes(operators)

    def folder(name: str, files: dict[str, bytes]) -> Folder:
        return Folder(f'{ours(CONFIG)}model_operations {{ op_library_filename: ["{name}"] }}', doubled(), files)

    models = {
        "version": folder("libtwice.so", {"1/libtwice.so": operators}),
        "model": folder("lib/libtwice.so", {"lib/libtwice.so": operators}),
        "absolute": folder(f"{tmp_path}/lib/libfound.so", {}),
        "found": folder("libfound.so", {}),
        "completed": Folder(
            'backend: "stateful"\nsequence_batching { oldest { } }\nmodel_operations { op_library_filename: ["libtwice.so"] }',
            doubled(),
            {"1/libtwice.so": operators},
        ),
    }
    path = os.pathsep.join(filter(None, [str(tmp_path / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]))
    server = serve(models, env={"LD_LIBRARY_PATH": path})
    with InferenceServerClient(server.grpc_url) as client:
        for name in models:
            sums(client, name, factor=2)


def test_no_operators(refusal):
    """Without its library, or with one that is not there, the model says what to write."""
    assert "model_operations { op_library_filename }" in refusal("no_library", Folder(ours(CONFIG), doubled()))
    missing = Folder(ours(CONFIG) + 'model_operations { op_library_filename: ["libnone.so"] }', doubled())
    assert "library libnone.so, from op_library_filename" in refusal("missing_library", missing)


def test_files_by_compute_capability(serve):
    """On the CPU every instance has the default file, as for the onnxruntime backend."""
    files = 'cc_model_filenames { key: "8.0" value: "ampere.onnx" }\ndefault_model_filename: "usual.onnx"\n'
    server = serve({"m": Folder(ours(CONFIG) + files, files={"1/usual.onnx": running_sum("batch", 3).SerializeToString()})})
    with InferenceServerClient(server.grpc_url) as client:
        sums(client, "m")


def test_a_plugin_without_a_device(refusal, tmp_path):
    """A library of execution providers that offers nothing on this machine."""
    library = compiled("plugin.c", tmp_path / "libep.so", "-DPROVIDERS=0")
    said = refusal("plugin", Folder(ours(CONFIG) + parameters(ort_ep_library=str(library)), running_sum("batch", 3)))
    assert "it offers no device on this machine" in said


def test_a_plugin_that_computes_nothing(serve, tmp_path):
    """Its session asks the execution provider what it can compute, and ONNX Runtime computes the rest."""
    options = {"ort_ep_name": "SecondProvider", "ort_ep_options": f"trace = {tmp_path}/trace"}
    with_plugin = ours(CONFIG) + parameters(ort_ep_library="libep.so", **options)
    library = compiled("plugin.c", tmp_path / "libep.so", "-DPROVIDERS=2").read_bytes()
    server = serve({"m": Folder(with_plugin, running_sum("batch", 3), {"1/libep.so": library})})
    with InferenceServerClient(server.grpc_url) as client:
        sums(client, "m")
    assert "SecondProvider was asked" in (tmp_path / "trace").read_text()


def load_files(server: TritonServer, model: str, config: dict, files: dict[str, bytes]) -> None:
    """Loads a model from a configuration and files in the request."""
    encoded = {f"file:{path}": base64.b64encode(data).decode() for path, data in files.items()}
    server.request(f"v2/repository/models/{model}/load", {"parameters": {"config": json.dumps(config)} | encoded})


SENT = {
    "backend": "stateful",
    "max_batch_size": 8,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [300]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [300]}],
    "sequence_batching": {"oldest": {}},
    "instance_group": [{"kind": "KIND_CPU"}],
}


def weighted(folder: Path, weight: float) -> dict[str, bytes]:
    """y = s' = s + weight x, with the weights in a file of their own."""
    made = running_sum("batch", 300, nodes=[op("Mul", "x w -> more")], term="more", constants={"w": np.full(300, weight, F32)})
    folder.mkdir()
    onnx.save_model(made, folder / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return {f"1/{path.name}": path.read_bytes() for path in folder.iterdir()}


def test_models_in_the_load_request(serve, tmp_path):
    """The load API with files: a new model with external data, other files for one that is loaded, and back again."""
    server = serve({"there": Folder(None, running_sum("batch", 300))}, explicit=True)
    x = np.ones((1, 300), F32)

    def answers(client: InferenceServerClient, model: str) -> list[float]:
        return [float(infer(client, model, 1, {"x": x}, start=step == 1, end=step == 3)["y"][0, 0]) for step in (1, 2, 3)]

    with InferenceServerClient(server.grpc_url) as client:
        server.load("there", SENT)
        assert answers(client, "there") == [1, 2, 3]
        server.unload("there")  # else tritonserver 2.51 goes on with the old files: the configuration is the same
        load_files(server, "there", SENT, weighted(tmp_path / "five", 5))
        assert answers(client, "there") == [5, 10, 15]
        initial = {"1/model.onnx": delay(F32, 300).SerializeToString(), "initial_state/first": np.full(300, 9, F32).tobytes()}
        load_files(server, "there", SENT | {"parameters": {"initial_states": {"string_value": "s = file:first"}}}, initial)
        assert answers(client, "there") == [9, 1, 1]
        server.load("there", SENT)
        assert answers(client, "there") == [1, 2, 3]
        load_files(server, "sent", SENT, weighted(tmp_path / "seven", 7))
        assert answers(client, "sent") == [7, 14, 21]
        with pytest.raises(ServerError, match="it is truncated, or not an ONNX model"):
            load_files(server, "bad", SENT, {"1/model.onnx": b"no model"})

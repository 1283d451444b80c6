"""The backends that scripts/bench.py compares: what each needs in its model's folder, configuration and environment."""

import ctypes.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from tritonclient.grpc import model_config_pb2

from batchfirst import batch_first
from benchbuild import OTHERS, PYTHON, SOURCE
from benchlayout import Layout, Tensor
from benchworkload import ModelConfig, Setting, Workload, datatype, shape
from tritonserver import BACKENDS

TCMALLOC = "+tcmalloc"  # ends the name of a contender with that allocator


@dataclass(frozen=True)
class Contender:
    """A backend under test. prepare adjusts a configuration and fills the model's folder."""

    name: str
    backends: Path
    prepare: Callable[[Workload, ModelConfig, Path, Setting], None]
    computes: bool = True  # False: answers are zeros, so they are not checked
    environment: dict[str, str] = field(default_factory=dict)
    preloaded: str = ""  # a library

    def with_allocator(self, library: str) -> "Contender":
        environment = self.environment | {"LD_PRELOAD": library}
        return replace(self, name=self.name + TCMALLOC, environment=environment, preloaded=library)


def prepare_stateful(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    (folder / "1").mkdir()
    (folder / "1" / "model.onnx").symlink_to(workload.file)


def prepare_implicit(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    """Lists the states as Triton's implicit state, which wants the batch first, and no control that the model lacks."""
    (folder / "1").mkdir()
    batch_first(workload.file, folder / "1" / "model.onnx")
    del config.parameters["state_pairs"]
    for tensor in (*config.input, *config.output):
        if -1 in tensor.dims:  # the batch, where it is not the first axis
            dims = [dim for dim in tensor.dims if dim != -1]
            del tensor.dims[:]
            tensor.dims.extend(dims)
    batching = config.sequence_batching
    controls = [each for each in batching.control_input if each.name == workload.layout.reset]
    del batching.control_input[:]
    for reset in controls:
        start = batching.control_input.add(name=reset.name).control.add()
        start.kind = start.CONTROL_SEQUENCE_START
        start.bool_false_true.extend([False, True])
    for before, after in workload.layout.states:
        dims = [extent for extent in before.shape if extent >= 0]
        fp32 = model_config_pb2.TYPE_FP32
        state = batching.state.add(input_name=before.name, output_name=after.name, data_type=fp32, dims=dims)
        state.initial_state.add(name="zero", data_type=fp32, dims=dims, zero_data=True)


def prepare_ort(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    prepare_implicit(workload, config, folder, setting)
    config.backend = "onnxruntime"
    config.parameters.clear()
    config.parameters["intra_op_thread_count"].string_value = "1"


def prepare_nothing(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    """Tells the do-nothing backend which outputs to send; see internal/bench/nothing/nothing.c."""
    config.backend = "nothing"
    (folder / "1").mkdir()
    write_outputs(workload, config, folder)


def write_outputs(workload: Workload, config: ModelConfig, folder: Path) -> None:
    outputs = [output for output in config.output if output.name == workload.output]
    lines = [" ".join([tensor.name, datatype(tensor), *map(str, shape(tensor))]) for tensor in outputs]
    (folder / "outputs.txt").write_text("\n".join(lines) + "\n")


def prepare_floor(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    """Lets the do-nothing backend step the model, too; see internal/bench/nothing/inplace.h."""
    prepare_nothing(workload, config, folder, setting)
    write_session(folder / "session.txt", workload.file, workload.layout, setting.sequences)


def prepare_minimal(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    """Lets the do-nothing backend compute, with the configuration of implicit; see internal/bench/nothing/implicit.h."""
    prepare_implicit(workload, config, folder, setting)
    model = folder / "1" / "model.onnx"
    write_outputs(workload, config, folder)
    write_session(folder / "implicit.txt", model, workload.layout_of(model), 0)
    config.backend = "nothing"
    config.parameters.clear()


def write_session(file: Path, model: Path, layout: Layout, sequences: int) -> None:
    reset = [Tensor(layout.reset, np.bool_, (-1, 1))] if layout.reset else []
    lines = [f"input {tensor.name} {described(tensor)}" for tensor in [*layout.inputs, *reset]]
    lines += [f"output {tensor.name} {described(tensor)}" for tensor in layout.outputs]
    lines += [f"state {before.name} {after.name} {described(before)}" for before, after in layout.states]
    library = BACKENDS / "stateful" / "libonnxruntime_stateful.so"
    file.write_text("\n".join([str(library), str(model), str(sequences), *lines]) + "\n")


def described(tensor: Tensor) -> str:
    onnx_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return " ".join(map(str, [np.dtype(tensor.dtype).itemsize, onnx_type, *tensor.shape]))


def prepare_python(workload: Workload, config: ModelConfig, folder: Path, setting: Setting) -> None:
    config.backend = "python"
    prepare_stateful(workload, config, folder, setting)
    shutil.copy(SOURCE / "python" / "model.py", folder / "1")
    (folder / "1" / "layout.json").write_text(json.dumps(workload.layout.as_json()))


# The stub of the Python backend uses the first Python in the PATH.
STUB = {"PATH": f"{PYTHON / 'bin'}:{os.environ['PATH']}"}

CONTENDERS = {
    contender.name: contender
    for contender in [
        Contender("stateful", BACKENDS, prepare_stateful),
        Contender("implicit", BACKENDS, prepare_implicit),
        Contender("minimal", OTHERS, prepare_minimal),
        Contender("nothing", OTHERS, prepare_nothing, computes=False),
        Contender("floor", OTHERS, prepare_floor, computes=False),
        Contender("python", OTHERS, prepare_python, environment=STUB),
    ]
}


def before(backends: Path) -> Contender:
    """Another version of ours."""
    return Contender("before", backends.resolve(), prepare_stateful)


def ort(folder: Path) -> Contender:
    """Triton's ONNX Runtime backend, whose ONNX Runtime is in its own folder."""
    paths = [str(folder.resolve()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return Contender("ort", OTHERS, prepare_ort, environment={"LD_LIBRARY_PATH": ":".join(paths)})


def find_tcmalloc(given: str) -> str:
    """The library to preload: the one that was given, or one that the linker finds; empty, with a message, if it finds
    none."""
    if given:
        if not Path(given).is_file():
            sys.exit(f"bench: --tcmalloc {given}: there is no such file")
        return str(Path(given).resolve())
    found = ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")
    if not found:
        print("there is no tcmalloc on this machine (Debian and Ubuntu: libtcmalloc-minimal4): measuring without it")
    return found or ""

"""The models that scripts/bench.py serves, and how: a model of internal/bench/models and its configuration."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from benchbuild import MODELS
from benchlayout import Layout

ModelConfig = model_config_pb2.ModelConfig


@dataclass(frozen=True)
class Setting:
    """What all contenders share of a configuration."""

    max_batch: int
    instances: int = 1
    sequences: int = 1024  # the most that live at once


@dataclass(frozen=True)
class Workload:
    """A model, and how its answers are asked for and checked."""

    model: str
    output: str
    verify: bool = False  # the load generator's -verify
    pace: float = 1  # how many times as long a measurement takes, so that it has enough batches

    @property
    def file(self) -> Path:
        return MODELS / self.model / "1" / "model.onnx"

    def config(self, setting: Setting) -> ModelConfig:
        """The model's configuration; what matters is equal for all contenders: batch size, instances, no delay. There are
        twice as many slots as sequences, so that batches can stay in place."""
        config = text_format.Parse((MODELS / self.model / "config.pbtxt").read_text(), ModelConfig())
        config.max_batch_size = setting.max_batch
        config.instance_group[0].count = setting.instances
        oldest = config.sequence_batching.oldest
        oldest.max_candidate_sequences = max(oldest.max_candidate_sequences, 2 * setting.sequences)
        return config

    @cached_property
    def layout(self) -> Layout:
        return self.layout_of(self.file)

    def layout_of(self, file: Path) -> Layout:
        """The layout of the model in another file, which has the same tensors."""
        text = self.config(Setting(max_batch=1)).parameters["state_pairs"].string_value
        pairs = [tuple(pair.split(", ")) for pair in text.removeprefix("<<<").removesuffix(">>>").split(">>>, <<<")]
        return Layout.of(file, pairs, {"seq": 4})

    def state_bytes(self) -> int:
        """The bytes of one sequence's states."""
        return sum(before.zeros(1).nbytes for before, _ in self.layout.states)


WORKLOADS = {
    workload.model: workload
    for workload in [
        Workload("accumulate_fp32", output="Output", verify=True),
        Workload("lstm2x512", output="y"),
        Workload("kvring", output="y"),
        Workload("silero_vad", output="output"),
        Workload("lstm5x512", output="y", pace=2),
        Workload("zipformer97", output="y", pace=6),
    ]
}


def datatype(tensor) -> str:
    """The KServe name of a tensor's type in a configuration."""
    name = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def shape(tensor) -> list[int]:
    """The shape of one request: a batch axis of 1, and 1 for every axis that the configuration leaves open."""
    return [1, *(max(dim, 1) for dim in tensor.dims)]


def has_string_ids(config: ModelConfig) -> bool:
    control = model_config_pb2.ModelSequenceBatching.Control
    return any(
        kind.kind == control.CONTROL_SEQUENCE_CORRID and kind.data_type == model_config_pb2.TYPE_STRING
        for control_input in config.sequence_batching.control_input
        for kind in control_input.control
    )

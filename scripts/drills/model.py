"""Models whose states say whose they are, how many steps they have, and of which values they are made.

A request is the sequence's name and a value. The first one names every element of the state; the answer is the least and the
greatest name that was found, the number of steps, and a hash of all values in their order.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto

import graphs
from graphs import op, tensor

INT64 = np.int64
WRAP = 1 << 64


@dataclass(frozen=True)
class Model:
    """A model in a repository. names is how many times a state holds the sequence's name: 8 bytes each."""

    name: str
    names: int = 64
    candidates: int = 1024
    batch: int = 32
    parameters: dict[str, str] = field(default_factory=dict)

    def config(self) -> str:
        given = [f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}' for k, v in self.parameters.items()]
        return "\n".join(
            [
                'backend: "stateful"',
                f"max_batch_size: {self.batch}",
                'input [{ name: "X" data_type: TYPE_INT64 dims: [2] }]',
                'output [{ name: "Y" data_type: TYPE_INT64 dims: [4] }]',
                "sequence_batching { max_sequence_idle_microseconds: 600000000",
                f"  oldest {{ max_candidate_sequences: {self.candidates} max_queue_delay_microseconds: 100 }} }}",
                "instance_group [{ kind: KIND_CPU }]",
                # Slots for all candidates, rather than for most of them.
                'parameters { key: "max_candidate_sequence_use_ratio" value { string_value: "1" } }',
                *given,
            ]
        )

    def graph(self) -> ModelProto:
        return graphs.model(
            op("Split", "X halves -> name value", axis=1),
            op("Equal", "who zero -> begins"),
            op("Where", "begins name who -> new_who"),
            op("Split", "steps halves -> count hash", axis=1),
            op("Add", "count one -> new_count"),
            op("Mul", "hash three -> hashed"),
            op("Add", "hashed value -> new_hash"),
            op("Concat", "new_count new_hash -> new_steps", axis=1),
            op("ReduceMin", "new_who -> least", axes=[1], keepdims=1),
            op("ReduceMax", "new_who -> greatest", axes=[1], keepdims=1),
            op("Concat", "least greatest new_count new_hash -> Y", axis=1),
            inputs=[
                tensor("X", INT64, "batch", 2),
                tensor("who", INT64, "batch", self.names),
                tensor("steps", INT64, "batch", 2),
            ],
            outputs=[
                tensor("Y", INT64, "batch", 4),
                tensor("new_who", INT64, "batch", self.names),
                tensor("new_steps", INT64, "batch", 2),
            ],
            constants={"halves": np.array([1, 1]), "zero": np.array([0]), "one": np.array([1]), "three": np.array([3])},
        )

    def write(self, repository: Path) -> None:
        folder = repository / self.name / "1"
        folder.mkdir(parents=True)
        (folder.parent / "config.pbtxt").write_text(self.config())
        (folder / "model.onnx").write_bytes(self.graph().SerializeToString())


def request(name: int, value: int) -> dict[str, np.ndarray]:
    return {"X": np.array([[name, value]], INT64)}


def hashed(before: int, value: int) -> int:
    """The hash after a step, as the model makes it: 64 bits that wrap around."""
    return ((before * 3 + value + WRAP // 2) % WRAP) - WRAP // 2

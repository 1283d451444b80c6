"""A model of Triton's Python backend that keeps states by hand, as the benchmark's peer: what a user without a stateful
backend writes. The states of the sequences are numpy arrays in a dict; a batch joins those of its requests, runs ONNX
Runtime once, and takes the new ones apart again. layout.json, written by scripts/benchcontenders.py, tells the tensors apart.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

START, END = 1, 2  # the flags of a request


class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"]) / args["model_version"]
        layout = json.loads((folder / "layout.json").read_text())
        self.inputs = [(each["name"], each["axis"]) for each in layout["inputs"]]
        self.outputs = [(each["name"], each["axis"]) for each in layout["outputs"]]
        self.states = [(each["input"], each["output"], each["axis"]) for each in layout["states"]]
        self.initial = [np.zeros(each["shape"], np.float32) for each in layout["states"]]
        self.reset = layout["reset"]
        self.sequences = {}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, ["CPUExecutionProvider"])

    def execute(self, requests):
        starts = [bool(request.flags() & START) for request in requests]
        before = [self.initial if start else self.sequences[request.correlation_id()] for request, start in zip(requests, starts)]
        feeds = {}
        for name, axis in self.inputs:
            arrays = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for request in requests]
            feeds[name] = np.concatenate([array[0] if axis else array for array in arrays], axis=axis)
        for i, (name, _, axis) in enumerate(self.states):
            feeds[name] = np.concatenate([states[i] for states in before], axis=axis)
        if self.reset:
            feeds[self.reset] = np.array(starts).reshape(-1, 1)
        names = [name for name, _ in self.outputs] + [output for _, output, _ in self.states]
        results = self.session.run(names, feeds)
        return [self.answer(request, lane, results) for lane, request in enumerate(requests)]

    def answer(self, request, lane, results):
        answers = []
        for (name, axis), result in zip(self.outputs, results):
            own = np.ascontiguousarray(result.take([lane], axis))
            answers.append(pb_utils.Tensor(name, own[np.newaxis] if axis else own))
        if request.flags() & END:
            self.sequences.pop(request.correlation_id(), None)
        else:
            news = results[len(self.outputs) :]
            self.sequences[request.correlation_id()] = [new.take([lane], axis) for (_, _, axis), new in zip(self.states, news)]
        return pb_utils.InferenceResponse(answers)

"""Servers that answer as Triton with the stateful backend does, share a store, and die when a test says so.

The model sums up: the answer to a request is the sum of what its sequence has sent.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

Request, Response = service_pb2.ModelInferRequest, service_pb2.ModelInferResponse


@dataclass
class State:
    step: int = 0
    sum: int = 0


@dataclass
class Store:
    """Saved states by key, and those before them. every: a state is saved after so many steps; 0: only if asked."""

    every: int = 3
    saved: dict[str, State] = field(default_factory=dict)
    before: dict[str, State] = field(default_factory=dict)
    owner: dict[str, "FakeServer"] = field(default_factory=dict)

    def save(self, key: str, state: State) -> None:
        if key in self.saved and self.saved[key].step < state.step:
            self.before[key] = self.saved[key]
        self.saved[key] = State(state.step, state.sum)

    def take(self, key: str, at_most: int) -> State:
        if self.goes_back(key, at_most):
            self.saved[key] = self.before.pop(key)
        saved = self.saved.get(key, State())
        return State(saved.step, saved.sum)

    def goes_back(self, key: str, at_most: int) -> bool:
        saved, before = self.saved.get(key), self.before.get(key)
        return saved is not None and saved.step > at_most and before is not None and before.step <= at_most

    def steps(self, key: str) -> list[int]:
        return [states[key].step for states in (self.saved, self.before) if key in states]

    def drop(self, key: str) -> None:
        self.saved.pop(key, None)
        self.before.pop(key, None)


class Refused(Exception):
    def __init__(self, code: grpc.StatusCode, text: str):
        super().__init__(text)
        self.code = code


@dataclass
class Live:
    key: str
    state: State
    saved_step: int = 0


class FakeServer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """A server on a free port. It keeps its port when it is started again.

    before   called with the number of each request before it runs, and after: it may raise Refused, or kill the server
    """

    def __init__(self, store: Store):
        self.store = store
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[int], None] = lambda number: None
        self.counts_steps = True
        self.requests: list[Request] = []
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.live: dict[int, Live] = {}
        self._server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        deadline = time.monotonic() + 5
        while True:
            try:
                self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
                break
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self._server.start()

    def die(self) -> None:
        """Ends at once: requests that run get no answer."""
        self._server.stop(0).wait()

    def die_soon(self) -> None:
        """For a request that runs: the server dies before its answer is sent."""
        threading.Thread(target=self.die).start()
        time.sleep(0.3)

    def ModelInfer(self, request: Request, context: grpc.ServicerContext) -> Response:
        try:
            return self._answer(request, context)
        except Refused as refused:
            context.abort(refused.code, str(refused))
            raise AssertionError from refused

    def ModelStreamInfer(self, requests: Iterator[Request], context: grpc.ServicerContext):
        for request in requests:
            answer = service_pb2.ModelStreamInferResponse()
            try:
                answer.infer_response.CopyFrom(self._answer(request, context))
            except Refused as refused:
                answer.error_message = str(refused)
            yield answer

    def _answer(self, request: Request, context: grpc.ServicerContext) -> Response:
        number = len(self.requests)
        self.requests.append(request)
        self.headers.append(dict(context.invocation_metadata()))
        self.before(number)
        live = self._run(request)
        self.after(number)
        response = Response(model_name=request.model_name)
        response.outputs.add(name="y", datatype="INT64", shape=[1, 1])
        response.raw_output_contents.append(np.int64(live.state.sum).tobytes())
        if self.counts_steps:
            response.parameters["stateful_step"].int64_param = live.state.step
            response.parameters["stateful_saved_step"].int64_param = live.saved_step
        return response

    def _run(self, request: Request) -> Live:
        parameters = request.parameters
        number, step = parameters["sequence_id"].int64_param, parameters["stateful_step"].int64_param
        live = self.live.get(number)
        if parameters["sequence_start"].bool_param:
            resume = parameters["stateful_resume"].string_param == "try"
            key = parameters["stateful_key"].string_param
            ours = resume and live and self.store.owner.get(key) is self
            if not ours or live.state.step > step and min(self.store.steps(key), default=step + 1) <= step:
                self.store.owner[key] = self
                if not resume:
                    self.store.drop(key)
                state = self.store.take(key, step)
                live = Live(key, state, state.step)
                self.live[number] = live
        elif live is None:
            text = f"inference request for sequence {number} to model 'sum' must specify the START flag on the first request"
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, text)
        if step < live.state.step:
            text = f"sequence {number}: step {step} was done before: expected step {live.state.step}"
            raise Refused(grpc.StatusCode.ALREADY_EXISTS, text)
        if step > live.state.step:
            text = f"sequence {number}: stateful_step {step} leaves a gap: expected step {live.state.step}"
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, text)
        (value,) = np.frombuffer(request.raw_input_contents[0], np.int64)
        if value < 0:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "error during inference: a negative value")
        live.state = State(live.state.step + 1, live.state.sum + int(value))
        due = self.store.every and live.state.step % self.store.every == 0
        if due or parameters["stateful_save"].bool_param:
            self.store.save(live.key, live.state)
            live.saved_step = live.state.step
        if parameters["sequence_end"].bool_param:
            self.store.drop(live.key)
            del self.live[number]
        return live

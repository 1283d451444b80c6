"""A gRPC stream with one request at a time."""

import queue
from typing import Any

from tritonclient.grpc import InferenceServerClient, InferResult
from tritonclient.utils import InferenceServerException


class Stream:
    """The stream of a client. It is opened by the first request, and again by the next one after it broke."""

    def __init__(self, client: InferenceServerClient, headers: dict[str, str]):
        self._client = client
        self._headers = headers
        self._answers: queue.SimpleQueue[InferResult | InferenceServerException] = queue.SimpleQueue()
        self._open = False

    def infer(self, arguments: dict[str, Any], timeout: float) -> InferResult:
        """Sends a request and waits for its answer at most timeout seconds."""
        try:
            if not self._open:
                self._start()
            self._client.async_stream_infer(**arguments)
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            # A stream that the server has ended in order does not say so.
            self.close()
            raise InferenceServerException(f"no answer on the stream in {timeout:g} s", "StatusCode.DEADLINE_EXCEEDED") from None
        except InferenceServerException as error:
            self.close()
            raise InferenceServerException(error.message(), error.status() or "StatusCode.UNAVAILABLE") from error
        if isinstance(answer, InferResult):
            return answer
        if answer.status() is not None:  # not of the request: the stream is broken
            self.close()
        raise answer

    def close(self) -> None:
        """Ends the stream. Answers that are still on the way are not waited for."""
        if self._open:
            self._client.stop_stream(cancel_requests=True)
            self._open = False

    def _start(self) -> None:
        answers = self._answers = queue.SimpleQueue()

        def take(result: InferResult | None, error: InferenceServerException | None) -> None:
            answers.put(error if result is None else result)

        self._client.start_stream(take, headers=self._headers)
        self._open = True

"""Single requests of sequences, each answered before the next is sent; tests of one sequence read best so."""

from collections.abc import Sequence

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import np_to_triton_dtype


def infer(
    client: InferenceServerClient,
    model: str,
    sequence: int | str,
    values: dict[str, np.ndarray],
    *,
    start: bool = False,
    end: bool = False,
    outputs: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
    """Returns the outputs by name, or raises InferenceServerException with the server's message.

    Types and shapes are those of the values, so that wrong ones can be sent. Sequence 0 is none. Without outputs, all
    are asked for.
    """
    result = client.infer(
        model,
        [tensor(name, value) for name, value in values.items()],
        sequence_id=sequence,
        sequence_start=start,
        sequence_end=end,
        outputs=None if outputs is None else [InferRequestedOutput(name) for name in outputs],
    )
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def tensor(name: str, value: np.ndarray) -> InferInput:
    """An input of a request."""
    return InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype)).set_data_from_numpy(value)

"""Single requests of sequences, each answered before the next is sent; tests of one sequence read best so."""

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import np_to_triton_dtype


def infer(
    client: InferenceServerClient,
    model: str,
    sequence: int | str,
    values: dict[str, np.ndarray],
    *,
    start: bool = False,
    end: bool = False,
) -> dict[str, np.ndarray]:
    """Returns the outputs by name, or raises InferenceServerException with the server's message.

    Types and shapes are those of the values, so that wrong ones can be sent.
    """
    inputs = [
        InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype)).set_data_from_numpy(value)
        for name, value in values.items()
    ]
    result = client.infer(model, inputs, sequence_id=sequence, sequence_start=start, sequence_end=end)
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}

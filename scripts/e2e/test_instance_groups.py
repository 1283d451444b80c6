"""Where instances run, as docs/parameters.md says: Triton decides KIND_AUTO, also where no kind is given."""

import subprocess

import numpy as np
import pytest

from configs import config, io
from conftest import Folder
from graphs import running_sum
from unary import infer

GPU = subprocess.getstatusoutput("nvidia-smi -L")[0] == 0

# Each with the number of instances, and what Triton calls the first one.
AUTO = {
    "auto": ("instance_group [{ kind: KIND_AUTO }]", 1, "auto_0_0"),
    "two_without_kind": ("instance_group [{ count: 2 }]", 2, "two_without_kind_0_0"),
    "without_group": ("", 1, "without_group_0"),
}


def folder(group: str) -> Folder:
    settings = config([io("x", "FP32", 3)], [io("y", "FP32", 3)], group=group, state_pairs="<<<s, s_out>>>")
    return Folder(settings, running_sum("batch", 3))


MODELS = {name: folder(group) for name, (group, _, _) in AUTO.items()}


@pytest.mark.skipif(GPU, reason="this machine has a GPU, where KIND_AUTO is KIND_GPU")
@pytest.mark.parametrize("name", AUTO)
def test_auto_is_the_cpu_without_a_gpu(own_server, own_client, name):
    _, count, instance = AUTO[name]
    groups = own_server.request(f"v2/models/{name}/config")["instance_group"]
    assert [(group["kind"], group["count"]) for group in groups] == [("KIND_CPU", count)]
    assert f'"{instance}: ready on CPU"' in own_server.log_text()
    ones = {"x": np.ones((1, 3), np.float32)}
    infer(own_client, name, 7, ones, start=True)
    np.testing.assert_array_equal(infer(own_client, name, 7, ones, end=True)["y"], [[2, 2, 2]])


@pytest.mark.skipif(GPU, reason="this machine has a GPU, which KIND_AUTO takes")
def test_auto_with_a_gpu_that_is_not_there(refusal):
    said = refusal("auto_with_gpus", folder("instance_group [{ kind: KIND_AUTO gpus: [ 0 ] }]"))
    assert "has kind KIND_CPU but specifies one or more GPUs" in said

"""The folders from which a server takes the backend, each with the three files of the library alone."""

import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient

from configs import config, io
from conftest import Folder
from graphs import running_sum
from prometheus import scrape
from tritonserver import BACKENDS, ServerError, TritonServer, binary
from unary import infer

F32 = np.float32
LIBRARY = BACKENDS / "stateful"
ONE = "instance_group [{ kind: KIND_CPU count: 1 }]"  # Triton adds a second one for backends named onnxruntime
SUM = config([io("x", "FP32", 3)], [io("y", "FP32", 3)], group=ONE)
# By model: where the library lies in its folder, and its configuration. The last is for Triton's onnxruntime backend, and
# names our library in runtime.
PLACES = {
    "in_the_version": ("1", SUM),
    "in_the_model": (".", SUM),
    "named": (".", SUM.replace('backend: "stateful"', 'backend: "onnxruntime" runtime: "libtriton_stateful.so"')),
}


def install(folder: Path) -> None:
    """Copies the library, as an image or an archive has it."""
    shutil.copytree(LIBRARY, folder, dirs_exist_ok=True)


def counts(server: TritonServer, model: str) -> list[float]:
    """The running sum that a sequence of three ones gets."""
    with InferenceServerClient(server.grpc_url) as client:
        ones = {"x": np.ones((1, 3), F32)}
        return [infer(client, model, 1, ones, start=step == 1, end=step == 3)["y"].flat[0] for step in (1, 2, 3)]


def ended(server: TritonServer, model: str) -> float:
    return scrape(server.metrics_url, "stateful_").of(model)["stateful_sequences_ended_total"]


def has_runtime(server: TritonServer) -> bool:
    """Whether the server reads the field runtime: from 24.01 on."""
    return tuple(map(int, server.request("v2")["version"].split("."))) >= (2, 42)


def test_inside_the_models_folder(serve, tmp_path):
    """As KServe, Seldon and SageMaker need it, whose images cannot be changed: the backends folder is empty. Each copy is a
    library of its own, and they share the server's metrics."""
    (tmp_path / "empty").mkdir()
    server = serve({name: Folder(text, lambda: running_sum("batch", 3)) for name, (_, text) in PLACES.items()},
        backends=tmp_path / "empty", explicit=True)  # fmt: skip
    with pytest.raises(ServerError, match="unable to find|failed to stat"):
        server.load("in_the_model")
    places = {name: place for name, (place, _) in PLACES.items() if name != "named" or has_runtime(server)}
    for name, place in places.items():
        install(server.repository / name / place)
        server.load(name)
        for file in LIBRARY.glob("*.so"):
            assert str((server.repository / name / place / file.name).resolve()) in Path(f"/proc/{server.pid}/maps").read_text()
        assert counts(server, name) == [1, 2, 3]
    for name in places:
        assert counts(server, name) == [1, 2, 3]
        deadline = time.monotonic() + 10
        while ended(server, name) != 2 and time.monotonic() < deadline:  # metrics follow the answers
            time.sleep(0.01)
        assert ended(server, name) == 2
        server.unload(name)


# A tritonserver that sees an /opt of its own, to which the library was copied as docs/install.md says, and that is not told of any
# backends folder.
IN_OPT = """#!/bin/sh
for option; do
    shift
    case $option in --backend-directory=*) ;; *) set -- "$@" "$option" ;; esac
done
exec unshare --map-root-user --mount sh -c '
    mount -t tmpfs none /opt && mkdir -p /opt/tritonserver/backends && cp -r {library} /opt/tritonserver/backends/ &&
    exec setpriv --pdeathsig=kill {server} "$@"' sh "$@"
"""
# Whether that is possible here.
OWN_OPT = "unshare --map-root-user --mount sh -c 'mount -t tmpfs none /opt && setpriv --pdeathsig=kill test -x {server}'"


def test_the_servers_backends_folder(serve, tmp_path, monkeypatch):
    """/opt/tritonserver/backends, where a server looks by itself."""
    if subprocess.run(["sh", "-c", OWN_OPT.format(server=binary())], capture_output=True).returncode != 0:
        pytest.skip("programs here cannot have an /opt of their own")
    program = tmp_path / "tritonserver"
    program.write_text(IN_OPT.format(library=LIBRARY, server=binary()))
    program.chmod(0o755)
    monkeypatch.setenv("TRITONSERVER", str(program))
    server = serve({"sum": Folder(SUM, lambda: running_sum("batch", 3))}, explicit=True)
    server.load("sum")
    assert "/opt/tritonserver/backends/stateful/libtriton_stateful_go.so" in Path(f"/proc/{server.pid}/maps").read_text()
    assert counts(server, "sum") == [1, 2, 3]
    server.unload("sum")

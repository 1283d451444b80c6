"""This backend writes no file and opens no connection."""

import os
import re
import subprocess
import time
from pathlib import Path

import certifi
import numpy as np
from tritonclient.grpc import InferenceServerClient

from conftest import Folder
from tritonserver import BACKENDS, MODELS, TritonServer
from unary import infer

MODEL = "accumulate_fp32"

# ONNX Runtime's collector is called nine seconds after the start, were its telemetry on.
WATCHED_FOR = 12

# Where one of these is set, ONNX Runtime itself leaves its telemetry off; empty and 0 are as good as not set.
SILENCERS = (
    "CI TF_BUILD GITHUB_ACTIONS GITLAB_CI CIRCLECI TRAVIS JENKINS_URL CODEBUILD_BUILD_ID BUILDKITE TEAMCITY_VERSION"
    " APPVEYOR BITBUCKET_BUILD_NUMBER SYSTEM_TEAMFOUNDATIONCOLLECTIONURI ORT_RUNNING_UNIT_TESTS"
).split()

# Preloaded into the server, it writes down which library asks for a socket.
RECORDER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int socket(int domain, int type, int protocol) {
  Dl_info caller;
  FILE *record = fopen(getenv("SOCKET_RECORD"), "a");
  fprintf(record, "%s\\n", dladdr(__builtin_return_address(0), &caller) ? caller.dli_fname : "unknown");
  fclose(record);
  return ((int (*)(int, int, int))dlsym(RTLD_NEXT, "socket"))(domain, type, protocol);
}
"""


def test_nothing_is_written_or_sent(serve, tmp_path: Path):
    """A server with a home of its own serves for longer than telemetry takes to begin, and the home stays empty, no
    library but the server's own asks for a socket, and its sockets are the ports and their clients."""
    home, record = tmp_path / "home", tmp_path / "sockets"
    for folder in ("cache", "config", "data", "tmp"):
        (home / folder).mkdir(parents=True)
    example = MODELS / MODEL
    server = serve(
        {MODEL: Folder((example / "config.pbtxt").read_text(), (example / "1" / "model.onnx").read_bytes())},
        env={
            **dict.fromkeys(SILENCERS, ""),
            "ORT_DISABLE_TELEMETRY": "0",
            "SSL_CERT_FILE": certifi.where(),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_DATA_HOME": str(home / "data"),
            "TMPDIR": str(home / "tmp"),
            "LD_PRELOAD": str(recorder(tmp_path)),
            "SOCKET_RECORD": str(record),
        },
    )
    end = time.monotonic() + WATCHED_FOR
    steps = 0
    with InferenceServerClient(server.grpc_url) as client:
        while time.monotonic() < end:
            infer(client, MODEL, 1, {"Input": np.ones((1, 4, 1, 5), np.float32)}, start=steps == 0)
            steps += 1
            time.sleep(0.01)
        assert steps > 100
        assert [str(path) for path in home.rglob("*") if not path.is_dir()] == []
        assert strangers(server) == []
    callers = {Path(line) for line in record.read_text().splitlines()}
    assert callers, "nothing was recorded"
    assert not [caller for caller in callers if BACKENDS in caller.parents], callers


def recorder(folder: Path) -> Path:
    source, library = folder / "recorder.c", folder / "recorder.so"
    source.write_text(RECORDER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    return library


def strangers(server: TritonServer) -> list[str]:
    """The sockets of the server's process over a network that are neither its ports nor connections to them."""
    open_files = [os.readlink(file) for file in Path(f"/proc/{server.pid}/fd").iterdir() if file.is_symlink()]
    own = {match[1] for name in open_files if (match := re.fullmatch(r"socket:\[(\d+)\]", name))}
    ports = {int(url.rpartition(":")[2]) for url in (server.http_url, server.grpc_url, server.metrics_url)}
    found = []
    for protocol in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        for line in Path(f"/proc/{server.pid}/net/{protocol}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in own and int(fields[1].rpartition(":")[2], 16) not in ports:
                found.append(f"{protocol} {line}")
    return found

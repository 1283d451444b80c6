"""The library as a guest in the server's process: where it lies, what it needs, how it comes and goes."""

import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from configs import config, io, oldest
from conftest import Folder
from graphs import delay
from tritonserver import BACKENDS, EXIT_TIMEOUT, MODELS, ROOT, ServerError, TritonServer
from unary import infer

MODEL = "accumulate_fp32"
STEP = {"Input": np.ones((1, 4, 1, 5), np.float32)}
LIBRARY = BACKENDS / "stateful" / "libtriton_stateful.so"


def example(name: str = MODEL) -> Folder:
    return Folder((MODELS / name / "config.pbtxt").read_text(), (MODELS / name / "1" / "model.onnx").read_bytes())


def resident(server: TritonServer) -> int:
    """The server's memory in KiB."""
    status = open(f"/proc/{server.pid}/status").read()
    return int(status.split("VmRSS:")[1].split()[0])


def threads(server: TritonServer) -> int:
    status = open(f"/proc/{server.pid}/status").read()
    return int(status.split("Threads:")[1].split()[0])


def test_the_folder_alone_is_enough(serve, tmp_path):
    """The install folder, copied anywhere, works with no environment variable and without the repository."""
    shutil.copytree(BACKENDS / "stateful", tmp_path / "elsewhere" / "stateful")
    server = serve({MODEL: example()}, backends=tmp_path / "elsewhere")
    with InferenceServerClient(server.grpc_url) as client:
        assert infer(client, MODEL, 1, STEP, start=True)["Output"].flat[0] == 5


@pytest.mark.parametrize("name", ["libtriton_stateful_go.so", "libonnxruntime_stateful.so"])
def test_part_of_a_library(serve, tmp_path, name: str):
    """A copy that a full disk truncated is refused and named; after it was copied again, the same server loads the model."""
    backend = tmp_path / "backends" / "stateful"
    shutil.copytree(BACKENDS / "stateful", backend)
    whole = (backend / name).read_bytes()
    server = serve({MODEL: example()}, backends=tmp_path / "backends", explicit=True)
    for size in (len(whole) - 100, len(whole) // 2, 4096, 100, 0):
        (backend / name).write_bytes(whole[:size])
        with pytest.raises(ServerError) as refused:
            server.load(MODEL)
        for words in (f"{backend / name}", "is truncated", "copy the backend's folder again", "the disk is not full"):
            assert words in str(refused.value), size
        assert server.is_running()
    (backend / name).write_bytes(whole)
    server.load(MODEL)
    with InferenceServerClient(server.grpc_url) as client:
        assert infer(client, MODEL, 1, STEP, start=True)["Output"].flat[0] == 5


def test_it_loads_as_triton_opens_it():
    """dlopen(RTLD_NOW | RTLD_LOCAL) in a process without Triton and without a GPU driver."""
    code = f"import ctypes, os; ctypes.CDLL({str(LIBRARY)!r}, mode=os.RTLD_NOW | os.RTLD_LOCAL)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


SLACKS = """
import ctypes, os, sys, time
before = set(os.listdir("/proc/self/task"))
ctypes.CDLL(sys.argv[1], mode=os.RTLD_LAZY | os.RTLD_LOCAL)
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    late, timed, others = set(), set(), set()
    for thread in set(os.listdir("/proc/self/task")) - before:
        try:
            slack = int(open(f"/proc/{thread}/timerslack_ns").read())
        except PermissionError:
            sys.exit(77)
        if slack == 20_000_000:
            late.add(thread)
        else:
            others.add(slack)
        call = open(f"/proc/self/task/{thread}/syscall").read().split()  # a number and six arguments
        if len(call) > 6 and int(call[4], 16):
            timed.add(thread)
    if len(late) == 1 and late == timed and others == {1_000_000}:
        sys.exit()
    time.sleep(0.01)
sys.exit(f"{late} have the slack of 20 ms, {timed} wait with a timeout, and others have a slack of {others} ns: want 1 ms")
"""


def test_only_sysmon_sleeps_late():
    """Of Go's threads, the one that watches the others has a large timer slack: when nothing runs, it alone waits with a
    timeout. Were it another one, or all, goroutines would wait for up to 20 ms."""
    library = BACKENDS / "stateful" / "libtriton_stateful_go.so"
    done = subprocess.run([sys.executable, "-c", SLACKS, library], timeout=60, stderr=subprocess.PIPE, text=True)
    if done.returncode == 77:
        pytest.skip("the kernel shows the timer slack of other threads to root alone")
    assert done.returncode == 0, done.stderr


GUEST = """
#define _GNU_SOURCE
#include <dlfcn.h>
extern const void *OrtGetApiBase(void);
const char *runtime(void) { Dl_info info; return dladdr(OrtGetApiBase(), &info) ? info.dli_fname : ""; }
"""

IN_ONE_PROCESS = """
import ctypes, os, sys
ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
runtime = ctypes.CDLL(sys.argv[2], mode=os.RTLD_NOW | os.RTLD_LOCAL).runtime
runtime.restype = ctypes.c_char_p
print(runtime().decode())
"""


def test_another_onnx_runtime_in_the_process(tmp_path):
    """A library that needs libonnxruntime.so.1, as Triton's onnxruntime backend does, gets the one that was meant for it,
    although ours was loaded before; were that ours' name, too, the loader would hand out what is there."""
    (wheels,) = ROOT.glob("build/venv/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.1.*")
    theirs = tmp_path / "libonnxruntime.so.1"
    shutil.copy(wheels, theirs)
    guest = tmp_path / "libguest.so"
    (tmp_path / "guest.c").write_text(GUEST)
    command = ["gcc", "-shared", "-fPIC", "-o", guest, tmp_path / "guest.c", theirs, f"-Wl,-rpath,{tmp_path}", "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    ours = BACKENDS / "stateful" / "libonnxruntime_stateful.so"
    ran = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, ours, guest], check=True, timeout=60, stdout=subprocess.PIPE, text=True
    )
    assert ran.stdout.strip() == str(theirs)


def test_many_models_load_at_once(serve):
    """Models and instances load in parallel threads when the server starts."""
    names = [f"model_{i}" for i in range(6)]
    server = serve({name: example() for name in names}, options=["--model-load-thread-count=6"])
    with InferenceServerClient(server.grpc_url) as client:
        for i, name in enumerate(names, 1):
            assert infer(client, name, i, STEP, start=True)["Output"].flat[0] == 5


def test_loading_and_unloading_leaves_nothing(serve):
    """100 rounds of load, use and unload keep memory and threads flat."""
    server = serve({MODEL: example()}, explicit=True)

    def rounds(n: int) -> None:
        for i in range(n):
            server.load(MODEL)
            with InferenceServerClient(server.grpc_url) as client:
                infer(client, MODEL, i + 1, STEP, start=True)
                infer(client, MODEL, i + 1, STEP, end=True)
            server.unload(MODEL)
            deadline = time.monotonic() + 20
            while server.request("v2/repository/index", {})[0].get("state") != "UNAVAILABLE":
                assert time.monotonic() < deadline, "the model is not unloaded"
                time.sleep(0.005)

    rounds(30)  # the allocator's pools fill
    memory, running = resident(server), threads(server)
    rounds(70)
    grown = resident(server) - memory
    assert grown < 8 * 1024, f"70 rounds took {grown} KiB"
    assert threads(server) <= running + 2


def test_unused_slots_cost_nothing(serve):
    """100,000 slots of 1 KiB load like 100 and take no memory before sequences do; Triton's own share, of 100,000
    candidates, is the same."""
    scheduler = oldest(0, candidates=100_000)
    folders = {
        name: Folder(
            config([io("x", "FP32", 256)], [io("y", "FP32", 256)], scheduler, state_pairs="<<<s, s_out>>>",
                   max_candidate_sequence_use_ratio=ratio),
            delay(np.float32, 256).SerializeToString(),
        )
        for name, ratio in {"before": "0.001", "few": "0.001", "many": "1"}.items()
    }  # fmt: skip
    server = serve(folders, options=["--model-control-mode=explicit"])
    took, grew = {}, {}
    with InferenceServerClient(server.grpc_url) as client:
        for name in folders:  # the first one pays for what all models share
            memory, start = resident(server), time.perf_counter()
            client.load_model(name)
            took[name], grew[name] = time.perf_counter() - start, resident(server) - memory
    assert re.search(r"100000 now, at most 100000;", server.log.read_text())
    assert took["many"] - took["few"] < 1, took
    assert grew["many"] - grew["few"] < 10 * 1024, grew


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_under_load_ends_the_server_in_order(serve, name: str):
    """The server ends with 0 within its exit timeout while clients send as fast as they can."""
    server = serve({MODEL: example()})
    stop, done = threading.Event(), []

    def load(sequence: int) -> None:
        steps = 0
        try:
            with InferenceServerClient(server.grpc_url) as client:
                while not stop.is_set():
                    infer(client, MODEL, sequence, STEP, start=True)
                    infer(client, MODEL, sequence, STEP, end=True)
                    steps += 1
        except InferenceServerException:
            pass  # the server refuses or is gone
        done.append(steps)

    clients = [threading.Thread(target=load, args=(i + 1,)) for i in range(8)]
    for client in clients:
        client.start()
    time.sleep(1)
    server.signal(getattr(signal, name))
    code = server.wait()
    stop.set()
    for client in clients:
        client.join(20)
    assert code == 0, server.log_tail()
    assert len(done) == 8 and min(done) > 5


@pytest.mark.parametrize(("idle", "code"), [(60_000_000, 1), (500_000, 0)])
def test_a_signal_while_a_sequence_idles(serve, idle: int, code: int):
    """Triton waits for open sequences: to the end of its exit timeout, and ends with 1, or until their idle limit."""
    folder = example()
    config = re.sub(r"max_sequence_idle_microseconds: *\d+", f"max_sequence_idle_microseconds: {idle}", folder.config)
    assert str(idle) in config
    server = serve({MODEL: Folder(config, folder.onnx)})
    with InferenceServerClient(server.grpc_url) as client:
        infer(client, MODEL, 1, STEP, start=True)
    begun = time.monotonic()
    server.signal(signal.SIGTERM)
    assert server.wait() == code, server.log_tail()
    assert ("Exit timeout expired" in server.log_text()) == (code == 1)
    if code == 1:
        assert time.monotonic() - begun >= EXIT_TIMEOUT

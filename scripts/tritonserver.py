"""Starts the real tritonserver of build/venv, and stops it whatever happens.

    with TritonServer(repository) as server:
        client = tritonclient.grpc.InferenceServerClient(server.grpc_url)

Tests, benchmarks and go run build.go serve all use this. As a program it serves the example models until it is
interrupted. Only the standard library is needed.
"""

import argparse
import atexit
import contextlib
import functools
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
BACKENDS = ROOT / "build" / "install" / "backends"
LOGS = ROOT / "build" / "logs"

# How long the server waits for open sequences when it is told to end (it would be 30 s), and we after that.
EXIT_TIMEOUT = 3
KILL_AFTER = EXIT_TIMEOUT + 10

# The option of tritonserver by which there is no metrics port to wait for.
NO_METRICS = "--allow-metrics=false"

# Seconds that an answer about readiness may take; another program that has our port may never give one.
POLL_TIMEOUT = 2

# Run by a fresh interpreter, which then becomes the server: the kernel kills it when we die, even by SIGKILL.
# Not a preexec_fn, which is not safe with the threads of gRPC.
LAUNCH = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if sys.argv[2]:
    os.sched_setaffinity(0, map(int, sys.argv[2].split(",")))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[3], sys.argv[3:])
"""

_numbers = itertools.count(1)
_running: list["TritonServer"] = []  # in the order of their start


class ServerError(Exception):
    """The server cannot be started, or refuses what it was asked."""


class TritonServer:
    """A tritonserver process on free ports of the loopback interface.

    Start it from a thread that outlives it, best the main one: to the kernel, our death is that of this thread.

    repository  model repository
    backends    folder that holds stateful/libtriton_stateful.so
    options     further options of tritonserver, which win over ours
    explicit    load no model but those that load() names
    env         environment variables on top of ours
    log         file for what the server prints; None chooses one in build/logs
    timeout     seconds that it may take to become ready, and to load a model
    processors  numbers of those that it may use; none: the same as this process
    ports       of HTTP, gRPC and metrics; None chooses free ones
    """

    def __init__(
        self,
        repository: Path = MODELS,
        backends: Path = BACKENDS,
        *,
        options: Sequence[str] = (),
        explicit: bool = False,
        env: dict[str, str] | None = None,
        log: Path | None = None,
        timeout: float = 60,
        processors: Collection[int] = (),
        ports: tuple[int, int, int] | None = None,
    ):
        self.id = f"stateful-{os.getpid()}-{next(_numbers)}"
        self.repository = Path(repository)
        self.backends = Path(backends)
        self.options = [*(["--model-control-mode=explicit"] if explicit else []), *options]
        self.env = env or {}
        self.log = log or LOGS / f"{self.id}.log"
        self.timeout = timeout
        self.processors = processors
        self.exit_code: int | None = None
        self._process: subprocess.Popen | None = None
        self._chosen = ports
        self._ports = ports or (0, 0, 0)

    @property
    def has_metrics(self) -> bool:
        """Whether the server opens its metrics port."""
        return NO_METRICS not in self.options

    @property
    def http_url(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def grpc_url(self) -> str:
        return f"127.0.0.1:{self._ports[1]}"

    @property
    def metrics_url(self) -> str:
        return f"127.0.0.1:{self._ports[2]}"

    @property
    def pid(self) -> int:
        return self._started().pid

    def __enter__(self) -> "TritonServer":
        return self.start()

    def __exit__(self, *exception) -> None:
        self.stop()

    def start(self) -> "TritonServer":
        """Starts the server and returns when it is ready.

        Between our choice of free ports and the server's use of them another process can take one; then others are
        tried.
        """
        if self._process is not None:
            raise ServerError("the server was started already")
        command = self._command()
        for _ in range(5):
            self._launch(command)
            try:
                self._wait_until_ready()
                return self
            except PortTaken:
                self.stop()
            except BaseException:
                self.stop()
                raise
        raise ServerError(f"no free ports in 5 attempts; the log is {self.log}")

    def stop(self) -> int | None:
        """Stops the server, by force if need be, and returns its exit code; None if it was never started.

        A signal that arrives meanwhile does nothing: this takes only seconds, and must not be left half done.
        """
        if self._process is None:
            return self.exit_code
        with _signals_ignored():
            process = self._process
            process.terminate()
            try:
                self.exit_code = process.wait(KILL_AFTER)
            except subprocess.TimeoutExpired:
                process.kill()
                self.exit_code = process.wait()
            self._process = None
            _running.remove(self)
        return self.exit_code

    def kill(self) -> None:
        """Ends the server at once, as a crash does. It can be started again."""
        process = self._started()
        process.kill()
        self.exit_code = process.wait()
        self._process = None
        _running.remove(self)

    def signal(self, number: int) -> None:
        """Sends a signal to the server process."""
        self._started().send_signal(number)

    def wait(self) -> int:
        """Waits until the server ends by itself, and returns its exit code."""
        return self._started().wait()

    def is_running(self) -> bool:
        """Whether the process exists; False also after a crash."""
        return self._process is not None and self._process.poll() is None

    def is_ready(self) -> bool:
        """Whether the server is ready for inference. Another server that has our port does not count."""
        try:
            _get(self.http_url, "v2/health/ready", timeout=POLL_TIMEOUT)
            if self.has_metrics:  # opened last; if its port is taken, the server ends
                _get(self.metrics_url, "metrics", timeout=POLL_TIMEOUT)
            return json.loads(_get(self.http_url, "v2", timeout=POLL_TIMEOUT))["name"] == self.id
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return False

    def load(self, model: str, config: dict | None = None) -> None:
        """Loads a model, or loads it again, optionally with another configuration."""
        parameters = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        self.request(f"v2/repository/models/{model}/load", parameters)

    def unload(self, model: str) -> None:
        """Asks the server to unload a model. It ends when the model's last request has."""
        self.request(f"v2/repository/models/{model}/unload", {})

    def request(self, path: str, body: dict | None = None) -> dict:
        """Sends a GET, or a POST of the body, to the HTTP endpoint and returns the answer."""
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = _get(self.http_url, path, data, timeout=self.timeout)
        except urllib.error.HTTPError as failure:
            raise ServerError(_message(failure)) from None
        return json.loads(answer) if answer else {}

    def log_text(self) -> str:
        """Everything that the server has printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        """The end of what the server has printed."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def _log_end(self) -> str:
        """The end of the log for an error, and where the whole log is."""
        return f"The end of its log, {self.log}:\n{self.log_tail()}"

    def _command(self) -> list[str]:
        if not self.repository.is_dir():
            raise ServerError(f"there is no model repository {self.repository}: name a folder that has models")
        if not self.backends.is_dir():
            raise ServerError(f"there is no backends folder {self.backends}: run go run build.go")
        return [
            str(binary()),
            f"--model-repository={self.repository}",
            f"--backend-directory={self.backends}",
            f"--id={self.id}",
            "--http-address=127.0.0.1",
            "--grpc-address=127.0.0.1",
            *(["--metrics-address=127.0.0.1"] if _knows(binary(), "--metrics-address") else []),
            f"--exit-timeout-secs={EXIT_TIMEOUT}",
            # tritonserver 2.51 crashes now and then when it reuses the objects of gRPC streams, with any backend. A
            # pool so large keeps it from freeing them.
            "--grpc-infer-allocation-pool-size=4096",
            *self.options,
        ]

    def _launch(self, command: list[str]) -> None:
        self._ports = self._chosen or free_ports(3)
        names = ("http", "grpc", "metrics")
        ports = [f"--{name}-port={port}" for name, port in zip(names, self._ports)]
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), ",".join(map(str, self.processors))]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                launcher + command + ports,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self.env,
                start_new_session=True,  # an interrupt from the keyboard is ours: we stop the server in good order
            )
        _running.append(self)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.timeout
        while not self.is_ready():
            code = self._started().poll()
            if code is not None and "already in use" in self.log_tail():
                raise PortTaken
            if code is not None:
                raise ServerError(f"tritonserver ended with code {code} before it was ready. {self._log_end()}")
            if time.monotonic() > deadline:
                raise ServerError(f"tritonserver is not ready after {self.timeout:g} s. {self._log_end()}")
            time.sleep(0.05)

    def _started(self) -> subprocess.Popen:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process


def running() -> list[TritonServer]:
    """The servers that were started and not yet stopped."""
    return list(_running)


@atexit.register
def _stop_all() -> None:
    for server in running():
        server.stop()


class PortTaken(ServerError):
    """Another process was faster."""


# The loopback interface is not reached through a proxy.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _get(url: str, path: str, data: bytes | None = None, *, timeout: float) -> bytes:
    with _direct.open(f"http://{url}/{path}", data, timeout=timeout) as answer:
        return answer.read()


def _message(failure: urllib.error.HTTPError) -> str:
    """What the server says in the body of an error."""
    body = failure.read().decode(errors="replace")
    try:
        return json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {failure.code}: {body}"


def binary() -> Path:
    """The tritonserver of build/venv, or the one that TRITONSERVER names: scripts/matrix.py tests older ones, and smoke.py that
    of its user."""
    if other := os.environ.get("TRITONSERVER"):
        return Path(other)
    found = list(ROOT.glob("build/venv/lib/python3*/site-packages/pytriton/tritonserver/bin/tritonserver"))
    if len(found) != 1:
        raise ServerError("there is no tritonserver in build/venv: run go run build.go")
    return found[0]


@functools.cache
def _knows(program: Path, option: str) -> bool:
    """Whether a tritonserver has an option; older ones end when they are given one that they lack."""
    if "TRITONSERVER" not in os.environ:
        return True
    shown = subprocess.run([program, "--help"], capture_output=True, text=True)
    return f"{option} " in shown.stdout + shown.stderr


def free_ports(count: int) -> tuple[int, ...]:
    """That number of different ports of the loopback interface. All are open at once, so that none is chosen twice."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignores SIGINT and SIGTERM; only the main thread can, and only it gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_on_sigterm() -> None:
    """Makes SIGTERM end the program as SystemExit does, so that every with statement is left in good order."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def main() -> int:
    parser = argparse.ArgumentParser(prog="go run build.go serve", description="Serves models until it is interrupted.")
    parser.add_argument("--repository", type=Path, default=MODELS, help="model repository (default: the example models)")
    parser.add_argument("--backends", type=Path, default=BACKENDS, help="backends folder (default: the one just built)")
    parser.add_argument("options", nargs="*", metavar="OPTION",
        help="options of tritonserver, after --, such as -- --log-verbose=1")  # fmt: skip
    arguments = parser.parse_args()
    exit_on_sigterm()
    try:
        with TritonServer(arguments.repository, arguments.backends, options=arguments.options) as server:
            show(server)
            code = server.wait()
            print(f"tritonserver ended with code {code}. {server._log_end()}")
            return 1
    except ServerError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def show(server: TritonServer) -> None:
    """Prints where the server is."""
    print(f"gRPC     {server.grpc_url}")
    print(f"HTTP     http://{server.http_url}")
    if server.has_metrics:
        print(f"metrics  http://{server.metrics_url}/metrics")
    print(f"log      {server.log}")
    print("Ctrl-C stops it", flush=True)


if __name__ == "__main__":
    sys.exit(main())

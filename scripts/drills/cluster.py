"""Servers with one store, and a proxy before them, always stopped."""

import contextlib
import os
import signal
import tempfile
from pathlib import Path

from tritonserver import TritonServer, free_ports

from .model import Model
from .parts import Envoy, Part, Valkey

# Servers are killed and started again at once: they must not wait for sequences that nobody continues.
OPTIONS = ["--log-warning=false", "--exit-timeout-secs=3"]


class Cluster:
    """Servers of the same models, which name the store by the environment (state_store = env), on ports that they keep.

    apart gives the servers processors of their own, so that what the store does costs them nothing.
    Use it from the main thread: the kernel ends what a thread started when the thread ends.
    """

    def __init__(self, models: list[Model], *, servers: int = 2, proxy: type[Part] | None = Envoy,
                 options: list[str] = OPTIONS, explicit: bool = False, loaded: list[str] | None = None, valkey: list[str] = [], apart: bool = False):  # fmt: skip
        self._stack = contextlib.ExitStack()
        server_processors, other_processors = processors() if apart else ((), ())
        self.store = Valkey(*valkey)
        self.store.processors = other_processors
        self.repository = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="drill-")))
        for model in models:
            model.write(self.repository)
        names = [model.name for model in models] if loaded is None else loaded
        loads = [f"--load-model={name}" for name in names] if explicit else []
        self.servers = [
            TritonServer(
                self.repository, options=[*options, *loads], explicit=explicit, ports=free_ports(3),
                env={"STATEFUL_STORE_URL": self.store.url}, processors=server_processors,
            )
            for _ in range(servers)
        ]  # fmt: skip
        self.proxy = proxy(self.servers) if proxy else None

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return self.proxy.address if self.proxy else self.servers[0].grpc_url

    def __enter__(self) -> "Cluster":
        try:
            self._stack.enter_context(self.store)
            for server in self.servers:
                self._stack.callback(self._stop, server)
                server.start()
            if self.proxy:
                self._stack.enter_context(self.proxy)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception) -> None:
        self._stack.close()

    def restart(self, server: TritonServer) -> None:
        """Kills a server and starts it again."""
        server.kill()
        server.start()

    @staticmethod
    def _stop(server: TritonServer) -> None:
        if server.is_running():
            server.signal(signal.SIGCONT)
            server.kill()  # it would wait for the sequences that are left


def processors() -> tuple[list[int], list[int]]:
    """Those of servers, and those of all else; none if there is only one."""
    ours = sorted(os.sched_getaffinity(0))
    return (ours[: len(ours) // 2], ours[len(ours) // 2 :]) if len(ours) > 1 else ([], [])

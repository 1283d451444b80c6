"""A connection to the store through which every answer can be late."""

import contextlib
import queue
import socket
import threading
import time


class SlowConnection:
    """Forwards TCP connections from a port of its own. delay is the seconds by which all that the store sends is late.

    Answers stay in their order, and later ones do not wait for earlier ones longer than that: a slow network, not a slow store.
    """

    def __init__(self, port: int):
        self.delay = 0.0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> "SlowConnection":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception) -> None:
        for each in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    store = socket.create_connection(("127.0.0.1", self._to), 5)
                except OSError:
                    client.close()
                    continue
                store.settimeout(None)
                self._open |= {client, store}
                late: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                for target, arguments in (
                    (self._forward, (client, store)),
                    (self._receive, (store, late)),
                    (self._send_late, (client, store, late)),
                ):
                    threading.Thread(target=target, args=arguments, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                target.sendall(data)
        self._end(source, target)

    def _receive(self, source: socket.socket, late: queue.SimpleQueue) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                late.put((time.monotonic(), data))
        late.put((0.0, b""))

    def _send_late(self, client: socket.socket, store: socket.socket, late: queue.SimpleQueue) -> None:
        with contextlib.suppress(OSError):
            while True:
                came, data = late.get()
                if not data:
                    break
                time.sleep(max(0.0, came + self.delay - time.monotonic()))
                client.sendall(data)
        self._end(client, store)

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            self._open.discard(each)

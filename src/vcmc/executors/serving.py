"""The main program of a process of `Processes`: serve messages until the parent is gone."""

import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

HEARTBEAT_SECONDS = 5.0  # between signs of life


def main(descriptor: int) -> None:
    """Serve the connection of this file descriptor."""
    # the parent handles Ctrl-C, and kills this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # programs that the user's code starts would keep the connection open after this process
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    lock = threading.Lock()  # two threads must not write at once
    from .processes import REPLY, packed_steps
    from .worker import serve

    def send(message: bytes) -> None:
        with lock:
            connection.send_bytes(message)

    busy = threading.Event()
    heartbeat = threading.Thread(
        target=_send_heartbeats, args=(busy, lambda: send(packed_steps(0))), daemon=True
    )
    heartbeat.start()
    try:
        while True:
            message = connection.recv_bytes()
            busy.set()
            reply = serve(message, lambda steps: send(packed_steps(steps)))
            send(REPLY + reply)
            busy.clear()
    except (EOFError, OSError):  # the parent is gone
        os._exit(0)


def _send_heartbeats(busy: threading.Event, send: Callable[[], None]) -> None:
    """Send signs of life while the process is busy; if the parent is gone, end the process."""
    try:
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            if busy.is_set():
                send()
    except OSError:
        os._exit(0)

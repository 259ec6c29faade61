"""The main program of a process of `Processes`: serve messages until the parent is gone."""

import os
import signal
import sys
from multiprocessing.connection import Connection


def main(descriptor: int) -> None:
    """Serve the connection of this file descriptor."""
    # the parent handles Ctrl-C, and kills this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    from .processes import REPLY, packed_steps
    from .worker import serve

    try:
        while True:
            reply = serve(
                connection.recv_bytes(), lambda steps: connection.send_bytes(packed_steps(steps))
            )
            connection.send_bytes(REPLY + reply)
    except (EOFError, OSError):  # the parent is gone
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))

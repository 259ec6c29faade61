"""The main program of a process of `Processes`: do what comes, until the other side is gone."""

import os
import signal
import sys
from multiprocessing.connection import Connection


def main(number: int) -> None:
    """Serve the connection that was handed over."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for whoever started this process, and ends it
    connection = Connection(number)
    from .processes import REPLY, packed_steps
    from .slots import serve

    try:
        while True:
            reply = serve(
                connection.recv_bytes(), lambda steps: connection.send_bytes(packed_steps(steps))
            )
            connection.send_bytes(REPLY + reply)
    except (EOFError, OSError):  # nobody is there any more
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))

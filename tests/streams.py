"""Reads what a terminal or a pipe is sent, while a test runs."""

import os
import threading


def read_in_thread(handle):
    """Read a handle until the other end is closed; return what waits and gives the text."""
    sent = bytearray()

    def read():
        while True:
            try:
                more = os.read(handle, 1 << 16)
            except OSError:  # a terminal that was closed
                return
            if not more:
                return
            sent.extend(more)

    thread = threading.Thread(target=read)
    thread.start()

    def finish():
        thread.join()
        os.close(handle)
        return sent.decode()

    return finish

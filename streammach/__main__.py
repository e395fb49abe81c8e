"""The command ``streammach``, also as ``python -m streammach``.

Signals are handled before anything else is imported, so that none of them ends in a traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress

from streammach.system.processes import INTERRUPTED, Interrupts, stopping_signals


def main() -> int:
    """Run the command line of this process; return the exit code."""
    codes: list[int] = []
    atexit.register(_end, codes)  # the first to be registered, the last to be called
    interrupts = Interrupts()
    interrupts.install()
    try:
        _fill_closed()
        from streammach.cli.main import main as command  # what it needs takes its time

        codes.append(command())
        _end_sooner(codes[0])
    except (KeyboardInterrupt, Exception):
        if interrupts.came is None:
            raise
        codes[:] = [INTERRUPTED]
        _end_sooner(INTERRUPTED)
        with suppress(OSError):  # nobody may read it
            os.write(2, b"streammach: interrupted\n")
    return codes[0]


def _end_sooner(code: int) -> None:
    """Let a signal only end this process at once: all is done."""
    for number in stopping_signals():
        signal.signal(number, lambda *_: os._exit(code))


def _end(codes: list[int]) -> None:
    """End with the exit code that was decided on, whatever still comes.

    Python takes handlers away as it ends. Where it was interrupted while it evaluated a string, as
    many libraries do when they are imported, it ends by SIGINT, even if that was dealt with.
    """
    for number in stopping_signals():
        signal.signal(number, signal.SIG_IGN)
    if codes == [INTERRUPTED]:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        os._exit(INTERRUPTED)


def _fill_closed() -> None:
    """Have standard streams that are closed lead nowhere: else the next file is taken for one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    sys.exit(main())

"""The command ``streammach``, also as ``python -m streammach``.

Signals are handled before anything else is imported, so that none of them ends in a traceback.
"""

from __future__ import annotations

import os
import signal
import sys

from streammach.processes import INTERRUPTED, Interrupts, heeded


def main() -> int:
    """Run the command line of this process; return the exit code."""
    Interrupts().install()
    try:
        from streammach.cli.main import main as command  # what it needs takes its time

        code = command()
    except KeyboardInterrupt:
        os.write(2, b"streammach: interrupted\n")
        code = INTERRUPTED
    for number in heeded():  # all is done: a signal only ends it sooner
        signal.signal(number, lambda *_: os._exit(code))
    return code


if __name__ == "__main__":
    sys.exit(main())

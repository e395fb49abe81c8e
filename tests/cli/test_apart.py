"""Work in a process of its own: results, errors, warnings and signals come through."""

import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

from streammach.cli.apart import apart
from streammach.errors import DataError, StreammachError


def process_and_sum(*numbers):
    return os.getpid(), sum(numbers)


def failing(error):
    raise error


def unsendable():
    raise ValueError(lambda: None)


def ended():
    os.kill(os.getpid(), signal.SIGKILL)


def warned():
    warnings.warn("look\nhere", stacklevel=1)


def test_what_is_returned_comes_from_another_process():
    other, total = apart(process_and_sum, 1, 2, 3)
    assert total == 6
    assert other != os.getpid()


def test_errors_come_through_whole():
    with pytest.raises(DataError) as caught:
        apart(failing, DataError("a row is bad", path="x.vw", line=3, byte=7, hint="Mend it."))
    assert str(caught.value) == "a row is bad: x.vw line 3 byte 7. Mend it."
    with pytest.raises(OSError, match="gone"):
        apart(failing, OSError("gone"))
    with pytest.raises(StreammachError, match="ValueError"):
        apart(unsendable)
    with pytest.raises(StreammachError, match="ended from outside"):
        apart(ended)


def test_warnings_are_said_in_a_line(capfd):
    apart(warned)
    assert capfd.readouterr().err == "streammach: warning: look\\nhere\n"


SLEEPER = """
import sys, time
sys.path.insert(0, {root!r})
from tests.cli.test_apart import interruptible
from streammach.cli.apart import apart

if __name__ == "__main__":
    try:
        apart(interruptible, {mark!r})
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""

HEEDING = """\
    from streammach.cli import apart as module
    from streammach.cli.conduct import conduct
    module.PATIENCE_SECONDS = 0.2
    conduct()
    try:"""


def interruptible(mark):
    """Note that it began, wait, and note that it was interrupted."""
    with open(mark, "w") as file:
        print(os.getpid(), file=file, flush=True)
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            print("heeded", file=file, flush=True)
            raise


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_processes_end_when_interrupted(tmp_path, number):
    """Ctrl-C reaches both; SIGTERM only the first one, which passes it on."""
    mark, script = tmp_path / "mark", tmp_path / "sleeper.py"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    text = SLEEPER.format(root=root, mark=str(mark))
    if number == signal.SIGTERM:
        text = text.replace("    try:", HEEDING, 1)
    script.write_text(text)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    for _ in range(300):
        if mark.exists() and mark.read_text().endswith("\n"):
            break
        time.sleep(0.1)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.communicate(timeout=30)[0] == "interrupted\n"
    assert mark.read_text().endswith("heeded\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text().split()[0]), 0)

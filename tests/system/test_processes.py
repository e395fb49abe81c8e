"""Work in a process of its own: results, errors, warnings and signals come through."""

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import psutil
import pytest

from streammach.cli.console import install_handlers
from streammach.system.errors import DataError, StreammachError
from streammach.system.processes import beside, run

ROOT = Path(__file__).parents[2]
HERE = "tests.system.test_processes"
PATIENCE = 60.0


def process_and_sum(*numbers):
    return os.getpid(), sum(numbers)


def failing(error):
    raise error


def unsendable():
    raise ValueError(lambda: None)


def ended():
    os.kill(os.getpid(), signal.SIGKILL)


def warned():
    with install_handlers():
        warnings.warn("look\nhere", stacklevel=1)


def modules_found():
    import msgspec

    return msgspec.__file__, [entry for entry in sys.path if not os.path.isabs(entry)]


def interruptible(mark, heeds):
    """Note that it began, wait, and note that it was interrupted."""
    with open(mark, "w") as file:
        print(os.getpid(), file=file, flush=True)
        while True:
            try:
                time.sleep(PATIENCE)
            except KeyboardInterrupt:
                print("heeded", file=file, flush=True)
                if heeds:
                    raise


def test_what_is_returned_comes_from_another_process():
    other, total = run(f"{HERE}:process_and_sum", 1, 2, 3)
    assert total == 6
    assert other != os.getpid()


def test_errors_come_through_whole():
    error = DataError("a row is bad", path="x.vw", line=3, byte=7, hint="Mend it.")
    with pytest.raises(DataError) as caught:
        run(f"{HERE}:failing", error)
    assert str(caught.value) == "a row is bad: x.vw line 3 byte 7. Mend it."
    with pytest.raises(OSError, match="gone"):
        run(f"{HERE}:failing", OSError("gone"))
    with pytest.raises(StreammachError, match="ValueError"):
        run(f"{HERE}:unsendable")
    with pytest.raises(StreammachError, match="ended from outside"):
        run(f"{HERE}:ended")


def test_warnings_are_said_in_a_line(capfd):
    run(f"{HERE}:warned")
    assert capfd.readouterr().err == "streammach: warning: look\\nhere\n"


def test_no_code_of_the_working_folder_runs(tmp_path, monkeypatch):
    for name in ("msgspec", "pickle", "multiprocessing", "numba", "site"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(77)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    found, relative = run(f"{HERE}:modules_found")
    assert not found.startswith(str(tmp_path))
    assert relative == []


SCRIPT = """
import signal, sys
sys.path.insert(0, {root!r})
from streammach.system.processes import STOPPING, Interrupts, run

for number in STOPPING:  # whatever this process was started with
    signal.signal(number, signal.SIG_IGN if number in {ignored} else signal.SIG_DFL)
Interrupts().install()
try:
    run("tests.system.test_processes:interruptible", {mark!r}, {heeds}, patience={patience})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def parent(tmp_path):
    """Start a process that waits for a child; returns it and the file of the child's notes."""
    started = []

    def start(*, heeds=True, patience=None, ignored=()):
        mark = tmp_path / "mark"
        script = SCRIPT.format(
            root=str(ROOT), mark=str(mark), heeds=heeds, patience=patience,
            ignored=[int(number) for number in ignored],
        )  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, text=True,
        )  # fmt: skip
        started.append(process)
        until(lambda: mark.exists() and mark.read_text().endswith("\n"))
        return process, mark

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def is_gone(pid):
    """Whether a process has ended; one that nobody has waited for yet counts as ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pid_in(mark):
    return int(mark.read_text().split()[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("group", [True, False])
def test_a_signal_ends_both(number, group, parent):
    process, mark = parent()
    (os.killpg if group else os.kill)(process.pid, number)
    assert process.communicate(timeout=PATIENCE) == ("interrupted\n", "")
    assert mark.read_text().split()[1:] == ["heeded"]
    assert is_gone(pid_in(mark))


def test_the_second_signal_kills(parent):
    process, mark = parent(heeds=False)
    process.send_signal(signal.SIGTERM)
    until(lambda: mark.read_text().endswith("heeded\n"))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE) == ("interrupted\n", "")
    assert is_gone(pid_in(mark))


def test_a_child_that_does_not_heed_is_killed_when_patience_ends(parent):
    process, mark = parent(heeds=False, patience=0.1)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE) == ("interrupted\n", "")
    assert is_gone(pid_in(mark))


def test_a_child_ends_when_its_parent_is_killed(parent):
    process, mark = parent(heeds=False)
    process.kill()
    until(lambda: is_gone(pid_in(mark)))


def test_signals_that_were_ignored_from_the_start_stay_ignored(parent):
    process, mark = parent(ignored=(signal.SIGINT, signal.SIGHUP))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE) == ("interrupted\n", "")
    assert mark.read_text().split()[1:] == ["heeded"]  # once


CALLBACK = """
import ctypes, os, signal, sys, time
sys.path.insert(0, {root!r})
from streammach.system.processes import Interrupts

signal.signal(signal.SIGTERM, signal.SIG_DFL)
Interrupts().install()


def callback():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):  # here the signal is handled, and nothing can be raised
        pass


try:
    ctypes.CFUNCTYPE(None)(callback)()
    time.sleep({patience})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_a_signal_in_a_callback_from_c_is_not_lost():
    script = CALLBACK.format(root=str(ROOT), patience=PATIENCE)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


DISGUISED = """
import os, signal, sys
sys.path.insert(0, {root!r})
import click
import streammach.cli.main as command
from streammach.__main__ import main


def evaluated():
    eval("os.kill(os.getpid(), signal.SIGTERM) or [None for _ in range(1000)]")


@click.command()
def imported():
    try:
        evaluated()
    except KeyboardInterrupt:
        raise ImportError("initialization failed")


signal.signal(signal.SIGTERM, signal.SIG_DFL)
real = command.main
command.main = {work}
sys.exit(main())
"""


@pytest.mark.parametrize("work", ["evaluated", "lambda: real([], imported, '')"])
def test_an_interrupted_command_ends_with_its_code_whatever_libraries_make_of_it(work):
    script = DISGUISED.format(root=str(ROOT), work=work)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "streammach: interrupted\n")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_are_not_taken_for_files(closed, tmp_path):
    """Files that a command opens get no numbers of standard streams."""
    script = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        f"for number in {closed}: os.close(number)\n"
        "import streammach.cli.main as command\n"
        "from streammach.__main__ import main\n"
        f"command.main = lambda: open({str(tmp_path / 'file')!r}, 'w').fileno()\n"
        "os._exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode > 2


def writes_until_killed(path):
    while True:
        Path(path).write_text(str(os.getpid()))
        time.sleep(0.01)


def test_what_works_beside_ends_with_the_block(tmp_path):
    path = tmp_path / "id"
    with beside(f"{HERE}:writes_until_killed", str(path)):
        while not path.exists() or not path.read_text():
            time.sleep(0.01)
    number = int(path.read_text())
    assert number != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    with beside(f"{HERE}:unsendable"):  # what it raises is lost
        pass

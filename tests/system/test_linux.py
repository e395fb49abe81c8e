"""What Linux alone offers stands in one file, and what other systems have does the same work."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streammach.system import linux, machine

PACKAGE = Path(linux.__file__).parents[1]
ONLY_HERE = (
    "/proc", "/sys/fs", "/dev/shm", "CDLL", "renameat2", "sched_getaffinity", "register_at_fork",
    "prctl", "O_TMPFILE", "posix_fadvise", "os.fork", "os.fsync", "platform.system", "memfd",
)  # fmt: skip


@pytest.fixture
def elsewhere(monkeypatch):
    """Another system."""
    monkeypatch.setattr(linux, "LINUX", False)


def test_one_file_alone_calls_what_linux_alone_has():
    texts = {path.name: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    found = {name for name, text in texts.items() if any(word in text for word in ONLY_HERE)}
    assert found == {"linux.py"}


def test_the_environment_has_it_do_as_elsewhere():
    code = "from streammach.system import linux; print(linux.LINUX, linux.c_function('mallopt'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"STREAMMACH_PORTABLE": "1"}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False None\n"


def test_a_machine_is_known_without_linux(elsewhere, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert (linux.processors(), machine.cores()) == (7, 7)
    assert list(linux.group_limits(linux.CGROUPS, "memory", "memory.max")) == []
    assert machine.memory_limit().n_bytes > 0
    linux.give_back()
    assert linux.peak_bytes() >= linux.resident_bytes() * 0.9 > 0
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    with linux.keep_freed_memory():
        assert linux.c_function("mallopt") is None


def test_the_peak_has_one_unit_on_all_systems(elsewhere, monkeypatch):
    kilobytes = linux.peak_bytes()
    monkeypatch.setattr(linux.platform, "system", lambda: "Darwin")
    assert linux.peak_bytes() == pytest.approx(kilobytes / 1024, rel=0.1)


@pytest.mark.parametrize("number", [None, errno.ENOTSUP, errno.EIO])
def test_a_disk_is_waited_for_where_fsync_does_not(number, tmp_path, monkeypatch):
    """A system with F_FULLFSYNC, and a file system that has it, has it not, or is broken."""
    calls = []

    def control(handle, what):
        calls.append("full")
        if number is not None:
            raise OSError(number, "no")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync"))
    with open(tmp_path / "a", "wb") as file:
        if number == errno.EIO:
            with pytest.raises(OSError, match="no"):
                linux.sync(file.fileno())
        else:
            linux.sync(file.fileno())
    assert calls == (["full", "fsync"] if number == errno.ENOTSUP else ["full"])

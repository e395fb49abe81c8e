"""Where compiled kernels are kept: only folders that nobody else can write are trusted."""

import errno
import os
import shutil
import subprocess
import sys
import time
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest
from numba.core.event import Listener, install_listener

from streammach.system import jit, kernel_cache
from streammach.system.jit import kernel
from streammach.system.kernel_cache import UNUSED_DAYS, KernelFile, cache_folder, read_own_file


def test_a_folder_is_made_once(tmp_path):
    folder = cache_folder(str(tmp_path / "base"))
    assert folder == cache_folder(str(tmp_path / "base"))
    assert folder.is_dir()


def test_what_no_process_reads_goes_after_some_time(tmp_path):
    folder = cache_folder(str(tmp_path))
    for name, days in (("old", UNUSED_DAYS + 1), ("new", UNUSED_DAYS - 1)):
        (folder / name).write_bytes(b"code")
        os.utime(folder / name, times=(time.time() - 86400 * days,) * 2)
    KernelFile(str(folder), "own").write(b"code")
    assert {path.name for path in folder.iterdir()} == {"new", "own"}


def test_a_folder_that_others_can_write_is_not_used(tmp_path):
    folder = cache_folder(str(tmp_path))
    folder.chmod(0o777)
    assert cache_folder(str(tmp_path)) is None


def test_the_folder_of_another_user_is_not_used_unless_it_is_root(tmp_path, monkeypatch):
    folder = cache_folder(str(tmp_path))
    owner = folder.stat().st_uid
    monkeypatch.setattr(kernel_cache.os, "getuid", lambda: owner + 1)
    assert cache_folder(str(tmp_path)) == (folder if owner == 0 else None)


def test_a_folder_that_cannot_be_written_is_read(tmp_path, monkeypatch):
    folder = cache_folder(str(tmp_path))
    KernelFile(str(folder), "kept").write(b"code")

    def refuses(*what, **how):
        raise PermissionError(errno.EACCES, "others own it")

    monkeypatch.setattr(kernel_cache, "_open_locks", refuses)
    monkeypatch.setattr(kernel_cache.tempfile, "mkstemp", refuses)
    assert cache_folder(str(tmp_path)) == folder
    assert KernelFile(str(folder), "kept").read() == b"code"
    other = KernelFile(str(folder), "other")
    assert other.read() is None  # at once
    other.write(b"code")
    assert other.read() is None


def test_where_nothing_can_be_written_there_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    assert cache_folder(str(tmp_path / "file")) is None


def owned_by_another(path):
    if os.getuid():
        pytest.skip("only root can give files away")
    os.chown(path, 12345, 12345, follow_symlinks=False)


def linked(path):
    os.rename(path, f"{path}.there")
    os.symlink(f"{path}.there", path)


def piped(path):
    os.unlink(path) if os.path.isfile(path) else shutil.rmtree(path)
    os.mkfifo(path)


SPOILT = {
    "another's": owned_by_another, "a link": linked, "a pipe": piped,
    "written by all": lambda path: os.chmod(path, 0o666 if os.path.isfile(path) else 0o777),
    "written by a group": lambda path: os.chmod(path, 0o660 if os.path.isfile(path) else 0o770),
}  # fmt: skip


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("how", SPOILT)
def test_code_that_others_may_have_written_is_not_loaded(tmp_path, what, how):
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    KernelFile(str(folder), "f").write(b"code")
    assert KernelFile(str(folder), "f").read() == b"code"
    SPOILT[how]({"file": folder / "f", "folder": folder}[what])
    assert KernelFile(str(folder), "f").read() is None


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_all_that_is_kept_is_private_under_any_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        folder = cache_folder(str(tmp_path / "home"))
        kernel_cache.keep(folder / "code.cubin", b"code")
        KernelFile(str(folder), "f").write(b"data")
    finally:
        os.umask(before)
    assert read_own_file(folder / "code.cubin") == b"code"
    assert KernelFile(str(folder), "f").read() == b"data"
    for path in (tmp_path / "home", *(tmp_path / "home").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_what_the_disk_does_not_take_is_not_kept(tmp_path):
    folder, (soft, hard) = cache_folder(str(tmp_path)), getrlimit(RLIMIT_FSIZE)
    file = KernelFile(str(folder), "f")
    setrlimit(RLIMIT_FSIZE, (0, hard))
    try:
        file.write(b"data")
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
    assert file.read() is None
    file.write(b"data")
    assert file.read() == b"data"


@pytest.mark.parametrize("kept", [b"", b"x", b"cno_such_module\nname\n.", b"cos\nno_such\n."])
def test_what_is_damaged_or_names_what_is_gone_is_compiled_again(tmp_path, monkeypatch, kept):
    folder = cache_folder(str(tmp_path))
    monkeypatch.setattr(jit, "CACHE_DIR", str(folder))

    def doubled(x):
        return 2 * x

    assert kernel()(doubled)(3) == 6
    (file,) = folder.glob("*.nbc")
    file.write_bytes(kept)
    assert kernel()(doubled)(3) == 6
    assert len(file.read_bytes()) > 100


@pytest.fixture
def unkept(monkeypatch):
    """Let kernels that are made here be compiled, though an earlier run kept them."""
    monkeypatch.setattr(jit, "CACHE_DIR", None)


@pytest.mark.usefixtures("unkept")
def test_literals_of_callers_compile_no_kernel_again():
    @kernel(inner=True)
    def times(x, n):
        return x * n

    @kernel()
    def sums(x):
        return times(x, x) + times(x, 2) + times(2, x) + times(x, n=3)

    assert sums(5) == 25 + 10 + 10 + 15
    assert len(times.signatures) == 1


@pytest.mark.usefixtures("unkept")
def test_a_compiler_has_room_for_its_frames():
    @kernel()
    def doubled(x):
        return 2 * x

    sizes = []

    class Depth(Listener):
        def on_start(self, event):
            frame = sys._getframe()
            while frame:
                sizes.append(frame.f_code.co_stacksize)
                frame = frame.f_back

        def on_end(self, event):
            pass

    with install_listener("numba:compile", Depth()):
        assert doubled(3) == 6
    assert max(sizes) * 8 > 1 << 19  # more than half of the piece of Python's stack that it is in


COMPILES = """
import sys, time
from streammach.system.kernel_cache import KernelFile
file = KernelFile(sys.argv[1], "f")
assert file.read() is None
print("compiles", flush=True)
time.sleep(float(sys.argv[2]))
file.write(b"code") if len(sys.argv) < 4 else None
"""


@pytest.mark.parametrize("ends", [(), ("early",)])
def test_what_another_process_compiles_is_waited_for(tmp_path, ends):
    folder = str(cache_folder(str(tmp_path)))
    command = [sys.executable, "-c", COMPILES, folder, "0.5", *ends]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert KernelFile(folder, "f").read() == (None if ends else b"code")
        assert other.wait() == 0
    # one process does not wait for itself
    assert KernelFile(folder, "f").read() == (None if ends else b"code")
    assert KernelFile(folder, "other").read() is None

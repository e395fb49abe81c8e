"""Where compiled kernels are kept: only folders that nobody else can write are trusted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest
from numba.core.event import Listener, install_listener

from streammach import jit, kernel_cache
from streammach.backends.cpu.products import logits
from streammach.jit import kernel
from streammach.kernel_cache import KEPT_FOLDERS, MARKER, KernelFiles, cache_folder, read_own_file
from streammach.kernel_sources import kernel_digest, kernel_statements, package_texts

PACKAGE = Path(kernel_cache.__file__).parent


def test_a_folder_is_made_for_a_version_of_the_compiler(tmp_path):
    one = cache_folder(str(tmp_path), "1")
    assert one == cache_folder(str(tmp_path), "1")
    assert (one / MARKER).is_file()
    assert cache_folder(str(tmp_path), "2") != one


LEAVES = {
    "a docstring": ("errors", '"""The exceptions', '"""What errors are: the exceptions'),
    "a docstring of a kernel": ("backends.rowmath", '"""Return', '"""Give'),
    "a line above": ("backends.rowmath", "\n\n\n@kernel", "\n\n\n\n@kernel"),
    "a comment": ("backends.rowmath", "\n\n\n@kernel", "\n\n\n# One more.\n@kernel"),
    "a message": ("counts.pair_updates", "", "\n\ndef tell() -> str:\n    return 'done'\n"),
    "a caller": ("training.fit", "", "\nX = 1\n"),
}
CHANGES = {
    "a kernel": ("backends.rowmath", "np.float32(0.5)", "np.float32(0.25)"),
    "a number": ("simd", "YIELDS = 100", "YIELDS = 101"),
    "a flag": ("jit", '"contract", ', ""),
    "a pass": ("kernel_passes", "NOT_NEEDED = InlineClosureLikes, ", "NOT_NEEDED = "),
}


@pytest.mark.parametrize("edit", [*LEAVES, *CHANGES])
def test_an_edit_compiles_kernels_again_if_they_depend_on_it(edit):
    module, old, new = (LEAVES | CHANGES)[edit]
    texts = package_texts(PACKAGE)
    name, digest = f"streammach.{module}", kernel_digest(texts)
    assert old in texts[name]
    texts[name] = texts[name].replace(old, new, 1) if old else texts[name] + new
    assert (kernel_digest(texts) == digest) == (edit in LEAVES)


def test_a_kernel_depends_on_names_wherever_they_are_defined():
    texts = {
        "streammach.a": "from streammach.b import N\n@kernel()\ndef f(x):\n    return x * N\n",
        "streammach.b": "from streammach.c import M\nfrom streammach.c import N\n",
        "streammach.c": "K = 2\nN = K + 1\nM = 5\ndef g():\n    return M\n",
    }
    needed = kernel_statements(texts)
    assert needed.keys() == {"streammach.a", "streammach.c"}
    assert needed["streammach.c"].count("Assign(") == 2
    for old, new in (("K = 2", "K = 3"), ("N = K + 1", "if K:\n    N = K + 1")):
        other = texts | {"streammach.c": texts["streammach.c"].replace(old, new)}
        assert kernel_digest(other) != kernel_digest(texts)
    assert kernel_digest(
        texts | {"streammach.c": texts["streammach.c"] + "L = 7\n"}
    ) == kernel_digest(texts)


def test_a_folder_is_found_again_by_the_text_it_was_made_for(tmp_path, monkeypatch):
    folder = cache_folder(str(tmp_path), "1")
    monkeypatch.setattr(kernel_cache, "kernel_digest", lambda *_: pytest.fail("reckoned anew"))
    assert cache_folder(str(tmp_path), "1") == folder


def test_old_folders_go_and_those_of_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "kernel_digest", lambda texts, version: version)
    other = tmp_path / "kernels-of-somebody"
    other.mkdir()
    made = [cache_folder(str(tmp_path), str(n)) for n in range(KEPT_FOLDERS + 2)]
    assert sum(folder.is_dir() for folder in made) == KEPT_FOLDERS
    assert other.is_dir()


def test_a_folder_that_others_can_write_is_not_used(tmp_path):
    folder = cache_folder(str(tmp_path), "1")
    folder.chmod(0o777)
    assert cache_folder(str(tmp_path), "1") is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are no owners")
def test_the_folder_of_another_user_is_not_used_unless_it_is_root(tmp_path, monkeypatch):
    folder = cache_folder(str(tmp_path), "1")
    owner = folder.stat().st_uid
    monkeypatch.setattr(kernel_cache.os, "getuid", lambda: owner + 1)
    assert cache_folder(str(tmp_path), "1") == (folder if owner == 0 else None)


def test_a_folder_that_cannot_be_written_is_copied_for_the_process(tmp_path, monkeypatch):
    folder = cache_folder(str(tmp_path), "1")
    (folder / "kernel.nbc").write_bytes(b"code")
    monkeypatch.setattr(kernel_cache.os, "access", lambda *_: False)
    ends = []
    monkeypatch.setattr(
        kernel_cache.atexit, "register", lambda *work, **how: ends.append((work, how))
    )
    copy = cache_folder(str(tmp_path), "1")
    assert copy != folder
    assert (copy / "kernel.nbc").read_bytes() == b"code"
    (remove, *given), how = ends.pop()
    remove(*given, **how)
    assert not copy.exists()
    assert folder.is_dir()


def test_where_nothing_can_be_written_there_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    assert cache_folder(str(tmp_path / "file"), "1") is None


class Planted:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


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


@pytest.mark.parametrize("what", ["index", "data", "folder"])
@pytest.mark.parametrize("how", SPOILT)
def test_code_that_others_may_have_written_is_not_loaded(tmp_path, what, how):
    folder, ran = tmp_path / "kernels", tmp_path / "ran"
    folder.mkdir(mode=0o700)
    files = KernelFiles(str(folder), "f", "stamp")
    files.save("key", Planted(ran))
    files.load("key")
    ran.rmdir()  # what is ours is loaded
    SPOILT[how]({"index": folder / "f.nbi", "data": folder / "f.1.nbc", "folder": folder}[what])
    try:
        assert KernelFiles(str(folder), "f", "stamp").load("key") is None
    finally:
        assert not ran.exists()


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_all_that_is_kept_is_private_under_any_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        folder = cache_folder(str(tmp_path / "home"), "1")
        kernel_cache.keep(folder / "code.cubin", b"code")
        files = KernelFiles(str(folder), "f", "stamp")
        files.save("key", "data")
    finally:
        os.umask(before)
    assert read_own_file(folder / "code.cubin") == b"code"
    assert files.load("key") == "data"
    for path in (tmp_path / "home", *(tmp_path / "home").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_cut_index_is_none(tmp_path):
    files = KernelFiles(str(tmp_path), "f", "stamp")
    tmp_path.chmod(0o700)
    files.save("key", "data")
    (tmp_path / "f.nbi").write_bytes(b"")
    assert files.load("key") is None


def test_what_the_disk_does_not_take_is_not_kept(tmp_path):
    files, (soft, hard) = KernelFiles(str(tmp_path), "f", "s"), getrlimit(RLIMIT_FSIZE)
    tmp_path.chmod(0o700)
    setrlimit(RLIMIT_FSIZE, (0, hard))
    try:
        files.save("key", "data")
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
    assert files.load("key") is None
    assert not [*tmp_path.iterdir()]
    files.save("key", "data")
    assert files.load("key") == "data"


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


def test_kernels_are_kept_by_these_files():
    assert type(logits._cache._cache_file) is KernelFiles
    assert os.stat(logits._cache.cache_path).st_mode & 0o022 == 0


COMPILES = """
import sys, time
from streammach.kernel_cache import KernelFiles
files = KernelFiles(sys.argv[1], "f", "stamp")
assert files.load("key") is None
print("compiles", flush=True)
time.sleep(float(sys.argv[2]))
files.save("key", "code") if len(sys.argv) < 4 else None
"""


@pytest.mark.parametrize("ends", [(), ("early",)])
def test_what_another_process_compiles_is_waited_for(tmp_path, ends):
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    command = [sys.executable, "-c", COMPILES, str(folder), "0.5", *ends]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        files = KernelFiles(str(folder), "f", "stamp")
        assert files.load("key") == (None if ends else "code")
        assert other.wait() == 0
    again = KernelFiles(str(folder), "f", "stamp")
    assert again.load("key") == (None if ends else "code")  # one process does not wait for itself
    assert again.load("other") is None

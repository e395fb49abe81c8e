"""Fixtures for all tests: seeded randomness and small data made on the spot."""

import gc
import itertools
import os
import shutil
import signal
import stat
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import streammach as sm
from streammach.parts.linear import part as linear_part
from streammach.planning import speed
from streammach.system import jit, linux, threads
from tests import simulator
from tests.builders import TinyData, fit, listed_lines
from tests.selection import at_night

ROOT = Path(__file__).parent.parent
OF_TOOLS = {".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache", ".import_linter_cache"}

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    simulator.install()


# Dask's profiler can halt a worker for ever in Python 3.11 (dask/distributed, issue 8616).
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")


def synced(handle, real=os.fsync):
    """Files of tests need not outlive a loss of power; what is no file or folder is as ever."""
    mode = os.fstat(handle).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        real(handle)


MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # a file system in memory; bytes that are enough for tests


def put_files_in_memory():
    """Let tests write where no disk is waited for, if there is room and nobody named a place."""
    named = {"TMPDIR", "PYTEST_DEBUG_TEMPROOT", "PYTEST_XDIST_WORKER"} & os.environ.keys()
    if not named and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)  # here, and in other processes


def pytest_configure(config):
    put_files_in_memory()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # of hundreds of processes one compiles
    os.fsync = synced  # half of the time of a small conversion
    threads.cores = lambda: 64  # what threads have in common is shown by more than cores
    # Few classes are learnt by linear classifiers alone; tests of hashed models have few classes.
    # Tests that use the fixture `linear` show these.
    linear_part.MOST_CLASSES = 1
    # Shells have what runs behind ignore it, and all that is started from there: no test would end.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tables of tests have cells of several lines; a conversion warns of these.
    config.addinivalue_line("filterwarnings", "ignore:cells in quotes that span lines")
    # Models of few made rows are often worth nothing, and the training warns of it.
    config.addinivalue_line("filterwarnings", "ignore:held-out .* is not above")


def pytest_addoption(parser):
    parser.addoption(
        "--require-backend",
        action="append",
        default=[],
        help="fail, do not skip, where this backend cannot be opened",
    )


def pytest_collection_modifyitems(items):
    for item in at_night(items):
        item.add_marker(pytest.mark.nightly)
    if not linux.LINUX:
        for item in items:
            if item.get_closest_marker("linux"):
                item.add_marker(pytest.mark.skip(reason="of Linux alone"))


def pytest_collection_finish():
    forget_what_stays()


def forget_what_stays():
    """Let no collection of garbage walk what modules and thousands of tests hold.

    A training collects garbage once: that takes more than half of the time of a small one.
    """
    gc.collect()
    gc.freeze()


FINISHED = itertools.count(1)  # tests


def pytest_runtest_logfinish():
    if next(FINISHED) % 20 == 0:  # kernels and libraries that tests loaded
        forget_what_stays()


@pytest.fixture
def rng(request):
    """A generator seeded by the test's own name."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def linear(monkeypatch):
    """Let few classes be learnt by linear classifiers, as users have it."""
    monkeypatch.setattr(linear_part, "MOST_CLASSES", 128)


@pytest.fixture
def tiny(tmp_path, rng):
    return TinyData(tmp_path, rng)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Small data that all tests of a module read."""
    return TinyData(tmp_path_factory.mktemp("shared"), np.random.default_rng(5))


@pytest.fixture(autouse=True)
def speed_of_the_reference(monkeypatch, tmp_path_factory):
    """Plans do not depend on what this machine's cache holds, and no test writes to it."""
    folder = tmp_path_factory.getbasetemp() / "speed"
    monkeypatch.setattr("streammach.planning.speed._path", lambda: folder / "speed.json")
    monkeypatch.setattr("streammach.planning.speed.measure", lambda: speed.REFERENCE)


@pytest.fixture(autouse=True)
def kernels_of_every_kind_are_kept(monkeypatch, tmp_path_factory):
    """No budget depends on which test is the first to compile, unless a test has its own cache."""
    usual, mark, there = jit.CACHE_DIR, jit._mark, tmp_path_factory.getbasetemp()
    monkeypatch.setattr(jit, "_mark", lambda of: there if usual == jit.CACHE_DIR else mark(of))


@pytest.fixture(autouse=True)
def nothing_is_written_beside_the_code():
    """A test writes into its own folder; a relative name would put files among those of users."""
    before = set(os.listdir(ROOT))
    yield
    left = {name for name in set(os.listdir(ROOT)) - before if name not in OF_TOOLS}
    assert not left, f"a test wrote {sorted(left)} into {ROOT}"


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """Tests use small matrices: more threads would only cost."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def run_and_rows(tmp_path_factory):
    """A run with counts, and a test store with labels that training did not see."""
    tiny = TinyData(tmp_path_factory.mktemp("made"), np.random.default_rng(5))
    train = tiny.store("train.zarr", n_rows=2500, n_classes=120)
    test = tiny.store("test.zarr", n_rows=400, n_classes=130, like=train)
    with sm.Dataset.open(train) as data:
        plan = sm.plan(data, n_buckets=4, n_repetitions=6)
        run = fit(data, tiny.folder / "run", plan, epochs=2, learning_rate=0.2,
                  transform="binary", model_size="full")  # fmt: skip
    return run, test


@pytest.fixture(scope="session")
def run_and_lists(tmp_path_factory):
    """The same of rows with lists of labels."""
    rng = np.random.default_rng(9)
    tiny = TinyData(tmp_path_factory.mktemp("listed"), rng)
    train, test = tiny.folder / "train.zarr", tiny.folder / "test.zarr"
    sm.convert(tiny.text("a.vw", listed_lines(rng, 1200, 60)), train, multilabel="on")
    sm.convert(tiny.text("b.vw", listed_lines(rng, 200, 64)), test, like=train)
    with sm.Dataset.open(train) as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=4, threads=1, counts="on")
        run = fit(data, tiny.folder / "run", plan, epochs=2, learning_rate=0.5,
                  transform="binary", model_size="full")  # fmt: skip
    return run, test


@pytest.fixture(scope="session")
def paths_of_stores(tmp_path_factory):
    """Many classes that a narrow model cannot tell apart, and their features can."""
    tiny = TinyData(tmp_path_factory.mktemp("stores"), np.random.default_rng(11))
    train = tiny.store("train.zarr", n_rows=3000, n_classes=150, namespace=True)
    return train, tiny.store("test.zarr", n_rows=600, n_classes=150, namespace=True, like=train)


@pytest.fixture
def stores(paths_of_stores):
    """The same, the one to learn from opened."""
    train, test = paths_of_stores
    with sm.Dataset.open(train) as data:
        yield data, test

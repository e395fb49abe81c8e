"""A local object storage, and a store in it."""

import zlib

import pytest

from tests.remote.object_server import Proxy, environment, served, uploaded


@pytest.fixture(scope="session", autouse=True)
def cloud():
    """What these tests need; without it they are skipped."""
    how = 'pip install "streammach[cloud]"'
    pytest.importorskip("obstore", reason=f"stores at URLs need obstore: {how}")


@pytest.fixture(scope="session")
def endpoint(cloud):
    pytest.importorskip("moto.server", reason='needs moto: pip install "moto[s3,server]"')
    with served() as found:
        yield found


@pytest.fixture
def proxy(endpoint, tmp_path, monkeypatch):
    """The storage behind a proxy that may inject faults; the cache is in the test's folder."""
    with Proxy(endpoint) as found:
        for name, value in environment(found.endpoint).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("STREAMMACH_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("STREAMMACH_TIMEOUT", "2")
        monkeypatch.setattr("streammach.system.files.objects.FIRST_WAIT", 0.01)
        yield found


@pytest.fixture
def stored(tiny, endpoint, proxy, request):
    """A small store, in a folder and in the storage: (path, URL)."""
    path = tiny.store()
    return path, uploaded(path, endpoint, f"{zlib.crc32(request.node.nodeid.encode())}/train.zarr")

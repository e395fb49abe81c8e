"""A store at a URL is read as one in a folder is, through a cache of bounded size."""

import hashlib
import http.server
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

import streammach as sm
from streammach.store.dataset import Dataset
from streammach.system.errors import StoreError, UsageError
from streammach.system.files.cache import Cache
from streammach.system.files.reading import sha256
from tests.remote.object_server import uploaded


def content(place, **cache):
    with Dataset.open(place, **cache) as data:
        rows = data.rows(0, data.n_rows)
        numbers, _ = data.origins(0, data.n_rows)
        return data.digest, [
            a.tobytes() for a in (rows.indptr, rows.features, rows.values, rows.classes, numbers)
        ], data.labels.data.tobytes(), data.features.data.tobytes()  # fmt: skip


def files_in(cache):
    return sorted(p for p in (cache / "files").iterdir() if not p.name.startswith("."))


def shards(proxy):
    return [path for method, path in proxy.requests if "/c/" in path]


def test_it_holds_the_same(stored, proxy):
    path, url = stored
    assert content(url) == content(path)
    assert sm.verify(url) == sm.verify(url, deep=False) == []
    with Dataset.open(url) as data, Dataset.open(path) as local:
        assert str(data.path) == data.facts.path == url
        assert data.stored_bytes == local.stored_bytes
        assert url in repr(data)


def test_zarr_reads_it_with_the_same_library(stored, proxy):
    from obstore.store import S3Store
    from zarr.storage import ObjectStore

    _, url = stored
    theirs = S3Store.from_url(url, client_options={"allow_http": True})
    group = zarr.open_group(ObjectStore(theirs, read_only=True), mode="r")
    with Dataset.open(url) as data:
        assert np.array_equal(group["X/indices"][:], data.rows(0, data.n_rows).features)


def test_over_http_alone_and_as_a_file(tiny, tmp_path, monkeypatch):
    path = tiny.store()
    monkeypatch.setenv("STREAMMACH_CACHE", str(tmp_path / "cache"))

    class Ranges(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given):
            super().__init__(*given, directory=str(path.parent))

        def log_message(self, *given):
            pass

        def do_GET(self):
            data = (path.parent / self.path.lstrip("/")).read_bytes()
            asked = self.headers.get("Range")
            self.send_response(206 if asked else 200)
            if asked:
                start, stop = (int(x) for x in asked.removeprefix("bytes=").split("-"))
                self.send_header("Content-Range", f"bytes {start}-{stop}/{len(data)}")
                data = data[start : stop + 1]
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Last-Modified", self.date_time_string(0))
            self.end_headers()
            self.wfile.write(data)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            found = content(f"http://127.0.0.1:{server.server_address[1]}/{path.name}")
        finally:
            server.shutdown()
            thread.join()
    assert found == content(path) == content(f"file://{path}")


def test_what_was_fetched_is_not_fetched_again(stored, proxy):
    _, url = stored
    first = content(url)
    assert shards(proxy)
    proxy.reset()
    assert content(url) == first
    assert shards(proxy) == []


def test_damaged_files_of_the_cache_are_fetched_anew(stored, proxy, tmp_path):
    _, url = stored
    expected = content(url)
    kept = files_in(tmp_path / "cache")
    kept[0].write_bytes(b"")
    spoilt = bytearray(kept[1].read_bytes())
    spoilt[len(spoilt) // 3] ^= 1
    kept[1].write_bytes(spoilt)
    kept[2].unlink()
    proxy.reset()
    assert content(url) == expected
    assert len(shards(proxy)) == 3


def test_a_file_that_is_damaged_while_the_store_is_open(stored, proxy, tmp_path):
    _, url = stored
    with Dataset.open(url) as data:
        before = data.rows(0, data.n_rows).features.tobytes()
        for file in files_in(tmp_path / "cache"):
            with open(file, "r+b") as out:
                times = os.stat(file)
                out.write(b"\0" * 64)
                out.flush()
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert data.rows(0, data.n_rows).features.tobytes() == before


def test_its_size_is_bounded_and_what_is_not_ours_stays(stored, proxy, tmp_path):
    path, url = stored
    cache = tmp_path / "small"
    with Dataset.open(path) as local:
        sizes = [p.stat().st_size for p in path.rglob("c/*")]
        assert local.n_rows
    room = sum(sizes) + max(sizes) // 2
    expected = content(path)
    assert content(url, cache=cache, cache_size=room) == expected
    (cache / "files" / "notes.txt").write_text("mine")
    (cache / "files" / "f0").mkdir()
    oldest = files_in(cache)[0]
    # Another store pushes out what was read least recently, and nothing else.
    place = Cache(cache, room)
    for n in range(6):
        with place.hold_open(*_random(n, max(sizes))) as handle:
            assert os.fstat(handle).st_size == max(sizes)
        total = sum(p.stat().st_size for p in (cache / "files").iterdir() if len(p.name) == 64)
        assert total <= room
    assert (cache / "files" / "notes.txt").read_text() == "mine"
    assert (cache / "files" / "f0").is_dir()
    assert not oldest.exists() or len(files_in(cache)) < len(sizes) + 6
    assert content(url, cache=cache, cache_size=room) == expected
    with pytest.raises(UsageError, match=r"too small for files of this store.*cache_size"):
        content(url, cache=cache, cache_size=max(sizes))


def _random(n, size):
    data = np.random.default_rng(n).bytes(size)
    return sha256([data]), size, Path("here"), lambda handle: os.pwrite(handle, data, 0)


def test_a_folder_of_somebody_else_is_no_cache(stored, proxy, tmp_path):
    _, url = stored
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="holds other files"):
        content(url, cache=tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_what_a_killed_process_left_goes_and_what_another_one_fetches_stays(tmp_path):
    cache = Cache(tmp_path / "c", 1000)
    left = tmp_path / "c/files" / f".{'a' * 64}.tmp"
    left.write_bytes(b"x" * 900)
    digest, size, place, fetch = _random(1, 500)
    with cache.hold_open(digest, size, place, fetch):
        pass
    assert not left.exists()
    other = Cache(tmp_path / "c", 1000)
    found = []

    def slowly(handle):
        with pytest.raises(UsageError, match="the cache has 1,000 bytes"):
            other.hold_open(*_random(2, 1001)).__enter__()
        found.append(sorted(p.name[:3] for p in (tmp_path / "c/files").iterdir()))
        third(handle)

    digest, size, place, third = _random(3, 600)
    with cache.hold_open(digest, size, place, slowly):
        assert files_in(tmp_path / "c") == [tmp_path / "c/files" / digest]
    assert found == [[f".{digest[:2]}"]]


def test_processes_and_threads_share_it(stored, proxy, tmp_path):
    path, url = stored
    expected = content(path)
    code = (
        "import sys, hashlib; sys.path.insert(0, '.')\n"
        "from tests.remote.test_reading import content\n"
        f"print(hashlib.sha256(repr(content({url!r})).encode()).hexdigest())"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: content(url), range(8)))
    assert all(one == expected for one in found)
    answers = {process.communicate(timeout=200)[0].strip() for process in running}
    assert answers == {hashlib.sha256(repr(expected).encode()).hexdigest()}
    assert 0 < len(shards(proxy)) == len(set(shards(proxy)))  # each was fetched once


def test_another_store_under_the_same_url_is_seen(stored, proxy, tiny, endpoint):
    _, url = stored
    first = content(url)
    other = tiny.store("other", n_rows=300)
    uploaded(other, endpoint, url.removeprefix("s3://rows/"))
    assert content(url) == content(other) != first


def test_a_missing_shard_is_damage(stored, proxy):
    _, url = stored
    proxy.reset(lambda number, method, path: "404" if "/y/c/0" in path else None)
    with pytest.raises(StoreError, match="y/c/0 is missing"):
        content(url)

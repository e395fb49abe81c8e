"""A conversion to a URL: what is there is whole, goes on where it was cut off, and replaces no
more than what streammach made."""

import boto3
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.store.dataset import Dataset
from streammach.system.errors import DiskError, StreammachError, UsageError
from streammach.system.files.objects import TRIES
from tests.remote.object_server import BUCKET


@pytest.fixture
def source(tiny):
    return tiny.text("rows.vw", tiny.lines(400, 12))


@pytest.fixture
def bucket(endpoint, proxy):
    client = boto3.client("s3", endpoint_url=endpoint)
    yield client
    client.close()


def objects(bucket, name):
    found = bucket.list_objects_v2(Bucket=BUCKET, Prefix=f"{name}/").get("Contents", [])
    return {one["Key"].removeprefix(f"{name}/"): one["ETag"] for one in found}


def puts(proxy):
    return [path for method, path in proxy.requests if method == "PUT"]


def test_a_store_appears_with_the_bytes_of_one_in_a_folder(source, proxy, bucket, tmp_path):
    made = sm.convert(source, f"s3://{BUCKET}/w1/a.zarr")
    local = sm.convert(source, tmp_path / "a.zarr")
    assert (made.path, made.digest) == (f"s3://{BUCKET}/w1/a.zarr", local.digest)
    there = objects(bucket, "w1/a.zarr")
    files = {p.relative_to(tmp_path / "a.zarr").as_posix(): p
             for p in (tmp_path / "a.zarr").rglob("*") if p.is_file()}  # fmt: skip
    assert there.keys() == files.keys()
    for name, file in files.items():
        got = bucket.get_object(Bucket=BUCKET, Key=f"w1/a.zarr/{name}")["Body"].read()
        assert got == file.read_bytes(), name
    assert sm.verify(made.path) == []
    assert puts(proxy)[-1].endswith("/zarr.json")
    assert puts(proxy)[-2].endswith("/manifest.json")


def test_nothing_of_others_is_replaced(source, proxy, bucket):
    url = f"s3://{BUCKET}/w2/a.zarr"
    bucket.put_object(Bucket=BUCKET, Key="w2/a.zarr/thesis.txt", Body=b"mine")
    for force in (False, True):
        with pytest.raises(UsageError, match="and is not replaced"):
            sm.convert(source, url, force=force)
    assert objects(bucket, "w2/a.zarr").keys() == {"thesis.txt"}
    bucket.delete_object(Bucket=BUCKET, Key="w2/a.zarr/thesis.txt")
    sm.convert(source, url)
    with pytest.raises(UsageError, match="it exists already"):
        sm.convert(source, url)
    bucket.put_object(Bucket=BUCKET, Key="w2/a.zarr/X/notes.txt", Body=b"mine")
    with pytest.raises(UsageError, match=r"notes\.txt in it was not made by streammach"):
        sm.convert(source, url, force=True)
    assert sm.verify(url) == []


def test_a_store_of_ours_is_replaced_when_that_is_asked_for(source, tiny, proxy, bucket):
    url = f"s3://{BUCKET}/w3/a.zarr"
    first = sm.convert(source, url)
    other = sm.convert(tiny.text("b.vw", ["1 'tag | a b", "2 | c"]), url, force=True)
    assert first.digest != other.digest
    assert sm.verify(url) == []
    assert "tag/bytes/c/0" in objects(bucket, "w3/a.zarr")
    sm.convert(source, url, force=True)
    assert "tag/bytes/c/0" not in objects(bucket, "w3/a.zarr")
    with Dataset.open(url) as data:
        assert data.digest == first.digest


@pytest.mark.parametrize("kind", ["500", "reset", "truncated"])
def test_an_upload_that_was_cut_off_goes_on(kind, source, proxy, bucket):
    url, name = f"s3://{BUCKET}/w4-{kind}/a.zarr", f"w4-{kind}/a.zarr"

    def cut(number, method, path):
        return kind if method == "PUT" and "/features/" in path else None

    proxy.reset(cut)
    if kind == "truncated":  # the answer is cut, not what was sent
        sm.convert(source, url)
    else:
        with pytest.raises(DiskError, match=f"cannot be written .*{TRIES} tries"):
            sm.convert(source, url)
        before = objects(bucket, name)
        assert "zarr.json" not in before
        with pytest.raises(UsageError, match="no such store"):
            Dataset.open(url)
        proxy.reset()
        sm.convert(source, url)
        sent = {path.split("a.zarr/")[1] for path in puts(proxy)}
        assert not sent & {n for n in before if "/c/" in n}
        assert {"zarr.json", "manifest.json"} < sent
    proxy.reset()
    assert sm.verify(url) == []
    assert "streammach.json" not in objects(bucket, name)


def test_faults_while_it_is_uploaded(source, proxy, bucket, rng):
    url = f"s3://{BUCKET}/w5/a.zarr"
    for trial in range(8):
        kind, every = ["reset", "500", "503", "truncated"][trial % 4], int(rng.integers(3, 9))
        proxy.reset(
            lambda number, method, path, kind=kind, every=every: (
                kind if number % every == every - 1 else None
            )
        )
        made = sm.convert(source, url, force=True)
        assert proxy.injected
        proxy.reset()
        assert sm.verify(url) == []
        assert made.path == url


def test_what_cannot_be_asked_for(source, proxy):
    for out, options, match in (
        ("https://example.org/a.zarr", {}, "cannot be written over https"),
        (f"s3://{BUCKET}/w6.zarr", {"on_bad_row": "skip"}, "in a folder"),
        ("s3://no-such-bucket/a.zarr", {}, "no-such-bucket"),
    ):
        with pytest.raises(StreammachError, match=match):
            sm.convert(source, out, **options)


def test_other_results_are_written_to_folders(source, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    store = str(tiny.store())
    before = sorted(tmp_path.iterdir())
    assert main(["train", store, "--out", f"s3://{BUCKET}/run"]) == 2
    assert "where stores alone are written" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before

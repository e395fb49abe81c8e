"""What goes wrong on the way: survived, or refused in one line; never silent, never wrong rows."""

import json

import numpy as np
import pytest

from streammach.cli.main import main
from streammach.store.dataset import Dataset
from streammach.system.errors import DiskError, StreammachError, UsageError
from streammach.system.files.objects import TRIES, Objects
from streammach.system.files.urls import locate
from tests.remote.object_server import FAULTS, REFUSALS, SECRET, fault_trials, outcome
from tests.remote.test_reading import content

TRIALS = 50


@pytest.fixture
def hasty(proxy, monkeypatch):
    """A proxy whose slow answers are too slow."""
    monkeypatch.setenv("STREAMMACH_TIMEOUT", "1")
    proxy.slow = 2.0
    return proxy


def load(url, cache):
    return content(url, cache=cache)


def test_fifty_faults_at_random_places(stored, hasty, tmp_path, rng):
    path, url = stored
    met = fault_trials(hasty, load, url, content(path), tmp_path, TRIALS, rng)
    assert sum(met.values()) == TRIALS
    assert {ended for ended, _ in met} == {"survived", "refused"}
    assert {kind for ended, kind in met if ended == "survived"} == set(FAULTS)


def test_what_a_refusal_left_in_the_cache_is_sound(stored, hasty, tmp_path):
    path, url = stored
    for kind in ("truncated", "wrong bytes"):
        hasty.reset(lambda n, method, p, kind=kind: kind if "/X/data/c/" in p else None)
        found, line = outcome(load, url, tmp_path / kind)
        assert found is None
        assert url in line
        hasty.reset()
        assert content(url, cache=tmp_path / kind) == content(path)


@pytest.mark.parametrize("kind", [*FAULTS, *REFUSALS])
def test_what_lasts_is_said_in_one_line(kind, stored, hasty, capsys, monkeypatch):
    _, url = stored
    monkeypatch.setenv("STREAMMACH_TIMEOUT", "0.3")
    hasty.slow = 1.0
    hasty.reset(lambda number, method, path: kind if "/X/data/c/" in path else None)
    code = main(["verify", url, "--deep", "--json"])
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    reasons = {
        "reset": (7, "cannot be read ("), "slow": (7, "no answer in time"), "500": (7, "HTTP 500"),
        "503": (7, "HTTP 503"), "truncated": (7, "the connection broke"),
        "wrong bytes": (4, "damaged: its digest is not that of the manifest"),
        "403": (7, "may not be read (HTTP 403"), "404": (4, "X/data/c/0 is missing"),
    }  # fmt: skip
    expected, text = reasons[kind]
    assert (code, text in error["message"]) == (expected, True), error
    assert said.err.count("\n") == 1
    assert url in (error["path"] or "") + error["message"]
    assert error["hint"]


def test_nothing_there_and_nobody_there(stored, proxy, capsys, monkeypatch):
    _, url = stored
    assert main(["info", url + "x"]) == UsageError.exit_code
    assert f"there is no such store: {url}x. Make one" in capsys.readouterr().err
    assert main(["info", "s3://no-such-bucket/a.zarr"]) == UsageError.exit_code
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert main(["info", url]) == DiskError.exit_code
    assert f"({TRIES} tries): {url}/zarr.json" in capsys.readouterr().err.replace("; 5", " (5")


def test_credentials_are_shown_nowhere(stored, proxy, capsys, tmp_path):
    _, url = stored
    hidden = url.replace("s3://", "https://me:hunter2@")
    signed = f"{url}?X-Amz-Signature=hunter2"
    for bad in (hidden, signed, "https:/me:hunter/2@host/a", "s3://me:hunter2@b/c?x=hunter2"):
        run = str(tmp_path / "run")
        for command in (
            ["info"], ["verify"], ["train", "--out", run], ["plan"], ["convert", "no.vw"],
            ["train", url, "--out", run, "--validation"], ["evaluate", run], ["predict", run],
        ):  # fmt: skip
            assert main([*command, bad]) != 0
            said = capsys.readouterr()
            assert "hunter" not in said.out + said.err, command
        assert main(["convert", bad, str(tmp_path / "a.zarr")]) == 2
        with pytest.raises(StreammachError) as found:
            Dataset.open(bad)
        assert "hunter" not in repr(found.value) + str(found.value)
    assert not any(b"hunter" in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    proxy.reset(lambda number, method, path: "403")
    with pytest.raises(DiskError) as refused:
        Dataset.open(url)
    shown = repr(refused.value) + str(refused.value) + repr(Objects(locate(url)))
    assert SECRET not in shown
    assert "***" not in shown


@pytest.mark.parametrize(
    "bad", ["s3://", "s3://bucket", "gs://bucket/", "s3://b/../c", "https://h"]
)
def test_urls_that_name_no_store(bad):
    with pytest.raises(UsageError):
        locate(bad)


def test_a_full_disk_is_named(stored, proxy, monkeypatch):
    _, url = stored

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streammach.system.files.objects.os.pwrite", full)
    with pytest.raises(DiskError, match=r"No space left on device.*Free some space"):
        content(url)


def test_rows_are_never_wrong_when_every_tenth_answer_is(stored, hasty):
    path, url = stored
    kinds = [kind for kind in FAULTS if kind != "slow"]
    hasty.reset(lambda number, method, p: kinds[number % 5] if number % 10 == 3 else None)
    assert content(url) == content(path)
    assert len(hasty.injected) > 2
    assert np.all([kind in FAULTS for kind in hasty.injected])

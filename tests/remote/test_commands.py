"""Commands on stores at URLs do what they do on folders, and their files are the same."""

import json

import pytest

from streammach.cli.main import main
from tests.remote.object_server import SECRET, uploaded

SMALL = ["--buckets", "8", "--repetitions", "2", "--epochs", "2", "--threads", "1"]

OF_THE_PROCESS = dict.fromkeys(("seconds", "peak_bytes", "projected_bytes"), 0)


def documents(folder):
    return {p.name: p.read_bytes() for p in sorted((folder / "model").iterdir())}


@pytest.fixture
def told(capsys):
    def run(*command):
        capsys.readouterr()
        assert main([str(word) for word in command] + ["--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_a_model_of_a_store_at_a_url_has_the_bytes_of_one_of_the_folder(
    stored, tiny, endpoint, proxy, told, tmp_path
):
    path, url = stored
    held = tiny.store("held.zarr", n_rows=200, like=path, seed=1)
    held_url = uploaded(held, endpoint, f"{url.removeprefix('s3://rows/')}-held")
    local, remote = tmp_path / "local", tmp_path / "remote"
    told("train", path, "--out", local, "--validation", held, *SMALL)
    made = told("train", url, "--out", remote, "--validation", held_url, *SMALL)
    assert made["held_out"].endswith(f"rows of {held_url}")
    assert documents(local) == documents(remote)
    for file in remote.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes()
    here, there = told("evaluate", local, held), told("evaluate", remote, held_url)
    assert here | OF_THE_PROCESS == there | OF_THE_PROCESS
    answers = []
    for run, rows in ((local, held), (remote, held_url)):
        told("predict", run, rows, "--out", tmp_path / f"{run.name}.tsv")
        answers.append((tmp_path / f"{run.name}.tsv").read_bytes())
    assert answers[0] == answers[1]
    assert told("info", url) == told("info", path) | {
        "path": url, "lines": told("info", url)["lines"]
    }  # fmt: skip
    assert told("verify", url, "--deep")["digest"] == told("verify", path)["digest"]
    # The run knows where its store is.
    told("shrink", remote, "--out", tmp_path / "small", "--min-count", 2)


def test_parts_that_were_trained_at_a_url_make_the_run_of_the_folder(stored, proxy, told, tmp_path):
    path, url = stored
    told("train", path, "--out", tmp_path / "local", *SMALL)
    parts = [tmp_path / "one", tmp_path / "two"]
    for i, part in enumerate(parts):
        told("train", url, "--out", part, "--part", f"{i + 1}/2", *SMALL)
    told("merge", tmp_path / "run", *parts)
    assert documents(tmp_path / "run") == documents(tmp_path / "local")


def test_a_training_goes_on_from_what_is_cached_without_the_storage(
    stored, proxy, told, tmp_path, monkeypatch
):
    _, url = stored
    cache = tmp_path / "mine"
    monkeypatch.delenv("STREAMMACH_CACHE")
    monkeypatch.setenv("STREAMMACH_CACHE_SIZE", "20GB")  # which commands change for their process
    told("plan", url, "--cache", cache, "--cache-size", "10MB", *SMALL[:4])
    told("verify", url, "--deep", "--cache", cache)
    proxy.reset()
    told("verify", url, "--deep", "--cache", cache)
    assert not [path for _, path in proxy.requests if "/c/" in path]
    assert main(["verify", url, "--cache", str(cache), "--cache-size", "much"]) == 2
    assert main(["verify", url, "--cache", str(cache), "--cache-size", "1000B"]) == 2

"""Features and labels in two sparse matrices of text, as the XMC repository ships them."""

import gzip
import json

import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.conversion.explore import explore
from streammach.system.errors import DataError, UsageError
from tests.inputs.test_lists import lists_by_name

N, D, K = 300, 12, 6


def random_rows(rng, *, labelled):
    """Labels and lines of features; some rows have none of the one or of the other, or of both."""
    labels = [sorted(rng.choice(K, rng.integers(not labelled, 3), replace=False)) for _ in range(N)]
    features = [sorted(rng.choice(D, rng.integers(0, 5), replace=False)) for _ in range(N)]
    return labels, [" ".join(f"{f}:{1 + f / 4}" for f in row) for row in features]


def write(folder, labels, features, *, zipped=False, header=(N, N), ends="\n"):
    """Write ``X.txt`` and ``Y.txt``; some values of labels are 0, that is, no labels."""
    rows = [
        " ".join([*(f"{k}:1.0" for k in row), "5:0.0"][: 2 + i % 2]) for i, row in enumerate(labels)
    ]
    for name, n, d, lines in (("X.txt", header[0], D, features), ("Y.txt", header[1], K, rows)):
        text = ends.join([f"{n} {d}", *lines, ""]).encode()
        (folder / name).write_bytes(gzip.compress(text) if zipped else text)
    return folder / "X.txt", folder / "Y.txt"


@pytest.mark.parametrize("form", ["plain", "gzip", "CRLF, in small pieces"])
def test_two_files_are_read_as_one_of_xmc_text(form, rng, tmp_path, monkeypatch):
    if form.endswith("pieces"):
        monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 256)
    labels, features = random_rows(rng, labelled=False)
    x, y = write(
        tmp_path, labels, features, zipped=form == "gzip", ends="\r\n" if "CR" in form else "\n"
    )
    done = sm.convert(x, tmp_path / "two", labels=y)
    assert (done.formats, done.n_rows) == (("xmc",), N)
    lines = [
        f"{','.join(map(str, ks))} {fs}".rstrip() or "qid:0"
        for ks, fs in zip(labels, features, strict=True)
    ]
    (tmp_path / "one.txt").write_text("\n".join([f"{N} {D} {K}", *lines]) + "\n")
    sm.convert(tmp_path / "one.txt", tmp_path / "one")
    assert lists_by_name(tmp_path / "two") == lists_by_name(tmp_path / "one")
    assert {k for ks, *_ in lists_by_name(tmp_path / "two").values() for k in ks} <= {
        *map(str, range(K))
    }
    assert explore(x, labels=y).rows == N


def test_a_model_reads_them_and_predicts_without_labels(rng, tmp_path, capsys):
    x, y = write(tmp_path, *random_rows(rng, labelled=True))
    store, run, found = str(tmp_path / "a.zarr"), str(tmp_path / "run"), []
    assert main(["convert", str(x), store, "--labels", str(y)]) == 0
    assert main(["train", store, "--out", run, "--memory", "1GB", "--epochs", "1"]) == 0
    for source in ([store], [str(x), "--labels", str(y)]):
        capsys.readouterr()
        assert main(["evaluate", run, *source, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["n_rows"] == N
    for name in ("n_labels", "P@1", "N@5", "PSP@5"):
        assert found[0][name] == pytest.approx(found[1][name])  # sums of rows in other orders
    sm.predict(run, x, tmp_path / "x.tsv", k=2)
    sm.predict(run, store, tmp_path / "a.tsv", k=2)
    assert (tmp_path / "x.tsv").read_text() == (tmp_path / "a.tsv").read_text()


@pytest.mark.parametrize(
    ("header", "cut", "message"),
    [
        ((N, N + 1), 0, "its header names 301 rows, that of the features 300: .*Y.txt line 1"),
        ((N + 1, N + 1), 0, "300 rows, the header names 301: .*X.txt"),
        ((N - 1, N - 1), 0, "more rows than the 299 of its header: .*Y.txt"),
        ((N, N), 9, "the gzip stream ends before its end mark.*Y.txt"),
    ],
)
def test_files_that_disagree_are_refused_by_name(header, cut, message, rng, tmp_path):
    x, y = write(tmp_path, *random_rows(rng, labelled=True), header=header, zipped=bool(cut))
    y.write_bytes(y.read_bytes()[: -cut or None])
    with pytest.raises(DataError, match=message):
        sm.convert(x, tmp_path / "a.zarr", labels=y)


def test_what_lacks_labels_says_where_they_are(rng, tmp_path):
    x, y = write(tmp_path, *random_rows(rng, labelled=True))
    with pytest.raises(UsageError, match=r"a matrix of features, without labels.*labels, such as"):
        sm.convert(x, tmp_path / "a.zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X.txt", "Y.txt"]
    y.write_text(f"{N} {K}\n" + "9:1\n" * N)
    with pytest.raises(DataError, match="label '9' is not a number below the header's number"):
        sm.convert(x, tmp_path / "a.zarr", labels=y)
    y.write_text("a b\n")
    with pytest.raises(
        DataError, match=r"'a b' is not the numbers of rows and columns.*Y.txt line 1"
    ):
        sm.convert(x, tmp_path / "a.zarr", labels=y)

"""Conversions that several processes make: the store has the bytes of one process's."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from streammach.data.conversion import intake, ranges, spread_build
from streammach.data.conversion.spread import divided
from streammach.data.convert import convert
from streammach.data.store.dataset import Dataset
from streammach.errors import (
    BudgetError,
    DataError,
    Interrupted,
    StoreError,
    StreammachError,
    UsageError,
)
from tests.builders import listed_lines
from tests.data.test_conversion import mixed_lines
from tests.data.test_convert import names_in


class Here:
    """Does the work of processes in this one, task by task; `stop_at` is interrupted."""

    def __init__(self, n_workers=2, threads=1, stop_at=None):
        self.n_workers, self.shares, self.threads = n_workers, 1, threads
        self.stop_at, self.done = stop_at, []

    def run(self, work, tasks, told):
        found = []
        for k, task in enumerate(tasks):
            if len(self.done) == self.stop_at:
                raise KeyboardInterrupt
            try:
                found.append(work(task, self.threads, lambda *how_far: None))
            except StreammachError as error:
                return [*found, error]
            self.done.append(work.__name__)
            told(k)
        return found


def files_in(folder):
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in paths}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Many pieces, ranges and chunks of little data."""
    monkeypatch.setattr("streammach.data.text.BLOCK_BYTES", 4096)
    monkeypatch.setattr(spread_build, "RANGE_VALUES", 700)
    for module in ("arrays", "opening", "segments", "writer"):
        monkeypatch.setattr(f"streammach.data.store.{module}.CHUNK", 256)


def vw(tiny):
    lines = [line.replace(" |", f" tag{i % 9}|", 1) if i > 700 else line
             for i, line in enumerate(mixed_lines(tiny, 1000))]  # fmt: skip
    return [tiny.text(f"{k}.vw.gz", lines[k::4], zipped=True) for k in range(4)], {}


def floats(tiny):
    lines = mixed_lines(tiny, 900)
    lines[600:] = [line.replace("noise1:2", "noise1:0.125") for line in lines[600:]]
    return [tiny.text(f"{k}.vw", lines[200 * k :][:200]) for k in range(5)], {}


def lists(tiny):
    several = [line for line in listed_lines(np.random.default_rng(1), 800) if line[0] != " "]
    single = tiny.lines(300, 40)
    parts = [single, several[:300], [], several[300:]]
    return [tiny.text(f"{k}.vw", part) for k, part in enumerate(parts) if part], {}


def always_lists(tiny):
    lines = listed_lines(np.random.default_rng(2), 600)
    lines[:150] = [
        f" {line[line.index('|') :]}" for line in lines[:150]
    ]  # no label in a whole file
    return [tiny.text(f"{k}.vw", lines[150 * k :][:150]) for k in range(4)], {"multilabel": "on"}


def svmlight(tiny):
    rng = np.random.default_rng(3)
    lines = [f"{rng.integers(30)} " + " ".join(f"{j}:{j % 5 + 1}" for j in sorted(
        rng.choice(60, 5, replace=False) + 1)) for _ in range(600)]  # fmt: skip
    return [tiny.text(f"{k}.svm", lines[k::3]) for k in range(3)], {}


def tables(tiny):
    rows = [f"c{i % 17},w{i % 17} all w{i % 5},{i % 7}" for i in range(600)]
    rows[40] = "c3,,"
    return [
        tiny.text(f"{k}.csv", ["label,words,n", *rows[200 * k :][:200]]) for k in range(3)
    ], {"label": "label", "text": "words", "number": "n"}  # fmt: skip


def matrices(tiny):
    sources = []
    for k in range(3):
        rows = scipy.sparse.random(150, 40, 0.2, "csr", np.float32, np.random.default_rng(k))
        sources.append(tiny.folder / f"{k}.npz")
        scipy.sparse.save_npz(sources[-1], rows)
        labels = tiny.text(f"{k}.txt", [str(i % 11) for i in range(150)])
    return sources, {"labels": [labels] * 3}


KINDS = [vw, floats, lists, always_lists, svmlight, tables, matrices]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_bytes_are_those_of_one_process(kind, tiny, monkeypatch):
    sources, options = kind(tiny)
    one = convert(sources, tiny.folder / "one", threads=1, **options)
    two = convert(sources, tiny.folder / "two", spread=Here(), **options)
    monkeypatch.setattr("streammach.data.conversion.job.Memory.room", lambda *_: 60_000)
    monkeypatch.setattr(spread_build, "LEAST_BINS", 512)
    three = convert(sources, tiny.folder / "three", spread=Here(1, threads=3), **options)
    wanted = files_in(tiny.folder / "one")
    assert len(wanted) > 20
    for done, name in ((two, "two"), (three, "three")):
        assert files_in(tiny.folder / name) == wanted
        same = ("digest", "skipped", "duplicates", "nnz", "formats", "notes", "rejects")
        assert [getattr(done, key) for key in same] == [getattr(one, key) for key in same]
    with Dataset.open(tiny.folder / "two") as data:
        assert data.verify() == []
    made = {os.path.basename(path) for path in sources} | {"one", "two", "three"}
    assert set(names_in(tiny.folder)) - made <= {f"{k}.txt" for k in range(3)}


def test_test_rows_take_the_ids_of_a_store(tiny):
    train = tiny.store(n_rows=300)
    lines = [*tiny.lines(600, 35), *(f"new{i % 5} |w only{i}" for i in range(300))]
    sources = [tiny.text(f"{k}.vw", lines[k::3]) for k in range(3)]
    one = convert(sources, tiny.folder / "one", like=train, threads=1)
    two = convert(sources, tiny.folder / "two", like=train, spread=Here())
    assert files_in(tiny.folder / "two") == files_in(tiny.folder / "one")
    assert two.unknown_values == one.unknown_values >= 300
    assert two.unseen_label_rows == one.unseen_label_rows >= 300


def spoilt(tiny):
    """Four files; the last three hold bad rows."""
    lines = tiny.lines(400, 30)
    for i in (150, 160, 230, 390):
        lines[i] = "c1 1 2 3 4 |w x" if i % 20 else "c1 |w x:nan"
    return [tiny.text(f"{k}.vw", lines[100 * k :][:100]) for k in range(4)]


def test_bad_rows_are_left_out_and_listed_as_by_one_process(tiny, monkeypatch):
    sources = spoilt(tiny)
    monkeypatch.chdir(tiny.folder)
    sources = [os.path.relpath(source) for source in sources]
    one = convert(sources, "one", threads=1, on_bad_row="skip")
    two = convert(sources, "two", spread=Here(), on_bad_row="skip")
    assert two.skipped == one.skipped
    assert sum(two.skipped.values()) == 4
    listed = [tiny.folder / f"{name}.rejects.tsv" for name in ("one", "two")]
    assert listed[1].read_bytes() == listed[0].read_bytes()
    assert files_in("two") == files_in("one")


@pytest.mark.parametrize("options", [{}, {"on_bad_row": "skip", "max_bad": 2}])
def test_bad_rows_are_refused_as_by_one_process(options, tiny, monkeypatch):
    sources = spoilt(tiny)
    monkeypatch.chdir(tiny.folder)
    sources = [os.path.relpath(source) for source in sources]
    with pytest.raises(DataError) as one:
        convert(sources, "one", threads=1, **options)
    with pytest.raises(DataError) as two:
        convert(sources, "two", spread=Here(4), **options)
    assert str(two.value) == str(one.value)
    before = names_in(tiny.folder)
    assert not [name for name in before if name in ("one", "two") or "rejects" in name]


@pytest.mark.parametrize("stop_at", [1, 3, 5, 7])
def test_what_was_interrupted_is_gone_on_with(stop_at, tiny):
    sources, options = vw(tiny)
    convert(sources, tiny.folder / "one", threads=1)
    first, second = Here(4, stop_at=stop_at), Here(n_workers=1)
    with pytest.raises(Interrupted, match="Give the same command again"):
        convert(sources, tiny.folder / "two", spread=first, **options)
    assert not (tiny.folder / "two").exists()
    read = []
    with pytest.MonkeyPatch.context() as patch:
        take = intake.Intake._take
        patch.setattr(intake.Intake, "_take", lambda self, source, *rest: (
            read.append(source.path.name), take(self, source, *rest)))  # fmt: skip
        done = convert(sources, tiny.folder / "two", spread=second)
    assert done.resumed
    assert files_in(tiny.folder / "two") == files_in(tiny.folder / "one")
    kept = first.done.count("read_partition")
    assert sorted({*read}) == [f"{k}.vw.gz" for k in range(kept, 4)]
    assert second.done.count("read_partition") == 4  # as it was divided before
    assert ".two.partial" not in names_in(tiny.folder)


def test_nothing_is_left_of_what_was_interrupted_before_a_row_was_put_aside(tiny):
    sources, _ = vw(tiny)
    with pytest.raises(KeyboardInterrupt):
        convert(sources, tiny.folder / "two", spread=Here(stop_at=0))
    assert names_in(tiny.folder) == [f"{k}.vw.gz" for k in range(4)]


def test_a_source_that_was_changed_is_read_again(tiny):
    sources, _ = floats(tiny)
    with pytest.raises(Interrupted):
        convert(sources, tiny.folder / "two", spread=Here(stop_at=4))
    facts = sources[0].stat()
    text = sources[0].read_bytes()
    sources[0].write_bytes(text.replace(b"noise2", b"noise3"))
    os.utime(sources[0], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.warns(UserWarning, match="is read again"):
        done = convert(sources, tiny.folder / "two", spread=Here())
    assert not done.resumed
    assert convert(sources, tiny.folder / "one", threads=1).digest == done.digest


def test_damaged_ranges_are_written_again(tiny):
    sources, _ = floats(tiny)
    with pytest.raises(Interrupted):
        convert(sources, tiny.folder / "two", spread=Here(stop_at=8))
    found = sorted((tiny.folder / ".two.partial/ranges").glob("range-*"))
    assert len(found) >= 2
    found[0].write_bytes(found[0].read_bytes()[:-20])
    done = convert(sources, tiny.folder / "two", spread=Here())
    assert done.resumed
    assert convert(sources, tiny.folder / "one", threads=1).digest == done.digest


def test_ranges_that_are_cut_in_another_way_are_written_again(tiny, monkeypatch):
    """As by a release that cuts them in another way."""
    sources, _ = floats(tiny)
    with pytest.raises(Interrupted):
        convert(sources, tiny.folder / "two", spread=Here(stop_at=8))
    monkeypatch.setattr(spread_build, "RANGE_VALUES", 2800)
    done = convert(sources, tiny.folder / "two", spread=Here())
    assert done.resumed
    assert convert(sources, tiny.folder / "one", threads=1).digest == done.digest


def test_a_range_whose_chunks_are_damaged_is_refused(tiny, monkeypatch):
    sources, _ = floats(tiny)
    write = ranges.write_range

    def damaging(task, *rest):
        write(task, *rest)
        with open(task.path, "r+b") as file:
            file.seek(40)
            file.write(b"damaged!")

    damaging.__name__ = "write_range"
    monkeypatch.setattr(spread_build, "write_range", damaging)
    with pytest.raises(StoreError, match="a file of the conversion is damaged"):
        convert(sources, tiny.folder / "two", spread=Here())
    assert "two" not in names_in(tiny.folder)


def test_what_others_cannot_read_is_refused(tiny):
    rows = [{"label": "a", "x": 1.0}, {"label": "b", "x": 2.0}]
    with pytest.raises(UsageError, match="cannot read a table in memory"):
        convert(rows, tiny.folder / "out", label="label", spread=Here())
    for path in ("-", "/dev/stdin"):
        with pytest.raises(UsageError, match="other processes cannot read a pipe"):
            convert([path], tiny.folder / "out", format="vw", spread=Here())
    assert names_in(tiny.folder) == []


def test_too_little_memory_is_said_of_all_processes(tiny):
    sources, _ = svmlight(tiny)
    spread = Here()
    spread.shares = 3
    with pytest.raises(BudgetError, match=r"are needed by 3 processes, .* are too little"):
        convert(sources, tiny.folder / "out", memory="200MB", spread=spread)
    assert "out" not in names_in(tiny.folder)


def test_partitions_are_of_about_the_same_size():
    assert divided([1] * 16, 4) == [(0, 4), (4, 8), (8, 12), (12, 16)]
    assert divided([100, 1, 1, 1], 2) == [(0, 1), (1, 4)]
    assert divided([0, 0, 0], 3) == [(0, 1), (1, 2), (2, 3)]
    assert divided([5], 8) == [(0, 1)]


def test_an_identity_says_how_rows_are_put_aside(tiny):
    sources, _ = floats(tiny)
    with pytest.raises(Interrupted):
        convert(sources, tiny.folder / "two", spread=Here(stop_at=2))
    known = json.loads((tiny.folder / ".two.partial/conversion.json").read_bytes())
    assert known["spread"] is True
    done = convert(sources, tiny.folder / "two", threads=1)  # another way, which begins anew
    assert not done.resumed

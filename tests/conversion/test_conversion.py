"""Conversions that do not fit the memory, or are cut off: the store is the same."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from streammach.cli.main import main
from streammach.conversion import build, folder, intake, spills
from streammach.conversion.convert import convert
from streammach.inputs.bad_rows import LIST
from streammach.store.dataset import Dataset
from streammach.store.opening import not_a_store
from streammach.system.errors import (
    BudgetError,
    DataError,
    DiskError,
    Interrupted,
    StoreError,
    UsageError,
)
from streammach.system.files.destinations import Destination
from streammach.system.files.folders import SCRATCH
from tests.builders import names_in
from tests.conversion.test_convert import rows_by_name


@pytest.fixture
def room(monkeypatch):
    """Sets the bytes that rows may take."""

    def use(n_bytes):
        monkeypatch.setattr(folder.ConversionMemory, "room", lambda self, *others: n_bytes)

    return use


def mixed_lines(tiny, n_rows, *, floats=False):
    """Rows with namespaces, importances, repeated features, none at all, and long ones."""
    lines = tiny.lines(n_rows, 40, namespace=True)
    for i in range(0, n_rows, 7):
        lines[i] += " |w again:2 again pair3 pair3"
    for i in range(3, n_rows, 50):
        lines[i] = lines[i].replace(" |", " 2.5 |", 1)
    for i in range(5, n_rows, 90):
        lines[i] = lines[i].split(" ")[0] + " |"
    for i in range(9, n_rows, 200):
        lines[i] += " |long " + " ".join(f"f{(i * j) % 997}" for j in range(400))
    if floats:
        lines = [line.replace("noise1:2", "noise1:0.125") for line in lines]
    return lines


@pytest.mark.parametrize("floats", [False, True])
def test_the_store_depends_neither_on_memory_nor_on_threads(floats, tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 8192)
    lines = mixed_lines(tiny, 1800, floats=floats)
    sources = [tiny.text("1.vw", lines[:600]), tiny.text("2.vw.gz", lines[600:], zipped=True)]
    digests = set()
    for n_bytes, threads in ((1 << 30, 1), (1 << 30, 3), (150_000, 2), (90_000, 1), (90_000, 3)):
        room(n_bytes)
        done = convert(sources, tiny.folder / "out", threads=threads, force=True)
        digests.add(done.digest)
        assert not done.resumed
    assert len(digests) == 1
    assert done.duplicates >= 2 * 1800 // 7
    with Dataset.open(tiny.folder / "out") as data:
        assert data.verify() == []
        assert data.weighted
        assert (data.value_type == np.float32) == floats
        assert np.all(np.diff(data.feature_counts) <= 0)
    assert names_in(tiny.folder) == ["1.vw", "2.vw.gz", "out"]


def test_rows_are_those_of_the_text_when_they_were_put_aside(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    lines = mixed_lines(tiny, 400)
    source = tiny.text("r.vw", lines)
    convert(source, tiny.folder / "whole", threads=1)
    room(12_000)
    convert(source, tiny.folder / "parts", threads=2)
    wanted = rows_by_name(tiny.folder / "whole")
    assert rows_by_name(tiny.folder / "parts") == wanted
    assert len(wanted) == 400


def test_test_rows_put_aside_take_the_ids_of_the_training_store(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    train = tiny.store(n_rows=300)
    lines = [*tiny.lines(900, 35), *(f"new{i % 5} |w only{i}" for i in range(300))]
    source = tiny.text("t.vw", lines)
    whole = convert(source, tiny.folder / "whole", like=train, threads=1)
    room(30_000)
    parts = convert(source, tiny.folder / "parts", like=train, threads=2)
    assert parts.digest == whole.digest
    assert (parts.unknown_values, parts.unseen_label_rows) == (
        whole.unknown_values, whole.unseen_label_rows
    )  # fmt: skip
    assert parts.unknown_values >= 300


class Cut(Exception):
    """Ends a conversion."""


def cut_at(monkeypatch, owner, name, number):
    """Let the call with this number fail, once."""
    calls, real = [0], getattr(owner, name)

    def failing(*arguments, **options):
        calls[0] += 1
        if calls[0] == number:
            raise Cut
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, failing)
    return calls


def cut_off(monkeypatch, number, source, out, **options):
    """Start a conversion that ends when it puts rows aside for the time with this number."""
    with monkeypatch.context() as patch:
        cut_at(patch, intake, "write_spill", number)
        with pytest.raises(Cut):
            convert(source, out, **options)


CUTS = [
    (intake, "write_spill", 3), (intake.Intake, "_take", 20), (build.StoreWriter, "append_rows", 4),
    (build.StoreWriter, "finish", 1), (build.StoreWriter, "add_names", 2),
    (spills.Spill, "decode", 9),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "name", "number"), CUTS)
def test_a_conversion_that_is_cut_off_goes_on_to_the_same_bytes(
    owner, name, number, tiny, room, monkeypatch
):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    lines = mixed_lines(tiny, 1500)
    lines[700] = "bad line"
    source, other = tiny.text("r.vw", lines), tiny.text("s.vw.gz", lines[:300], zipped=True)
    options = {"on_bad_row": "skip", "threads": 2}
    wanted = convert([source, other], tiny.folder / "whole", **options)
    listed = (tiny.folder / "whole.rejects.tsv").read_text()
    room(50_000)
    with monkeypatch.context() as patch:
        cut_at(patch, owner, name, number)
        with pytest.raises(Cut):
            convert([source, other], tiny.folder / "out", **options)
    assert (tiny.folder / ".out.partial").is_dir()
    assert not (tiny.folder / "out").exists()
    done = convert([source, other], tiny.folder / "out", **options)
    assert done.resumed
    assert (done.digest, done.skipped) == (wanted.digest, wanted.skipped)
    assert (tiny.folder / "out.rejects.tsv").read_text() == listed
    assert not (tiny.folder / ".out.partial").exists()
    with Dataset.open(tiny.folder / "out") as data:
        assert data.verify() == []


def test_an_interrupt_says_that_the_same_command_goes_on(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    source = tiny.text("r.vw", tiny.lines(900, 20))

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build.StoreWriter, "append_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(source, tiny.folder / "out")
        assert names_in(tiny.folder) == ["r.vw"]
        room(12_000)
        with pytest.raises(Interrupted, match="same command again"):
            convert(source, tiny.folder / "out")
    assert convert(source, tiny.folder / "out").resumed


COMMITS = [(LIST, False), (not_a_store, False), (not_a_store, True)]


@pytest.mark.parametrize(("foreign", "done_before"), COMMITS)
@pytest.mark.parametrize("force", [False, True])
def test_a_conversion_cut_off_while_it_gives_names_is_finished_by_the_next(
    foreign, done_before, force, tiny, room, monkeypatch
):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    lines = mixed_lines(tiny, 900)
    lines[700] = "bad line"
    source, out = tiny.text("r.vw", lines), tiny.folder / "out"
    options = {"on_bad_row": "skip", "threads": 1, "force": force}
    wanted = convert(source, tiny.folder / "whole", **options)
    if force:
        convert(tiny.text("old.vw", tiny.lines(90, 9)), out)
    room(30_000)
    real = Destination.take

    def failing(self, made):
        if done_before or self.foreign is not foreign:
            real(self, made)
        if self.foreign is foreign:
            raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Destination, "take", failing)
        with pytest.raises(Cut):
            convert(source, out, **options)
    (tiny.folder / ".out.partial/runs/.run-000009.0123abcd.tmp").touch()
    left = (
        tiny.folder / "..out.partial.0123abcd.scratch"
    )  # of a process that was killed removing it
    left.mkdir()
    (left / "streammach.json").write_bytes(SCRATCH)
    if done_before and not force:
        with pytest.raises(UsageError, match="it exists already"):
            convert(source, out, **options)
    else:
        assert convert(source, out, **options).digest == wanted.digest
    listed = (tiny.folder / "out.rejects.tsv").read_text()
    assert listed == (tiny.folder / "whole.rejects.tsv").read_text()
    with Dataset.open(out) as data:
        assert (data.verify(), data.digest) == ([], wanted.digest)
    assert [name for name in names_in(tiny.folder) if name.startswith(".")] == []


def test_an_interrupted_replacement_is_not_tidied_away(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    out = tiny.store(n_rows=90)
    source = tiny.text("new.vw", tiny.lines(900, 20))
    room(12_000)
    with monkeypatch.context() as patch:
        cut_at(patch, build.StoreWriter, "append_rows", 2)
        with pytest.raises(Cut):
            convert(source, out, force=True)
    with pytest.raises(UsageError, match="it exists already"):
        convert(source, out)
    assert convert(source, out, force=True).resumed


def test_temporary_files_of_a_killed_process_do_not_get_into_the_store(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    source = tiny.text("r.vw", tiny.lines(900, 20))
    room(12_000)
    with monkeypatch.context() as patch:
        cut_at(patch, build.StoreWriter, "finish", 1)
        with pytest.raises(Cut):
            convert(source, tiny.folder / "out")
    (tiny.folder / ".out.partial/store/X/.zarr.json.0123abcd.tmp").touch()
    assert convert(source, tiny.folder / "out").resumed
    with Dataset.open(tiny.folder / "out") as data:
        assert data.verify() == []


@pytest.mark.parametrize("stricter", [{}, {"on_bad_row": "skip", "max_bad": 1}])
def test_rows_that_were_skipped_are_not_when_it_goes_on_more_strictly(
    stricter, tiny, room, monkeypatch
):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    lines = tiny.lines(900, 20)
    lines[100] = lines[200] = "bad line"
    source = tiny.text("r.vw", lines)
    room(12_000)
    with monkeypatch.context() as patch:
        cut_at(patch, build.StoreWriter, "finish", 1)
        with pytest.raises(Cut):
            convert(source, tiny.folder / "out", on_bad_row="skip")
    with pytest.raises(DataError, match=f"line {201 if stricter else 101}"):
        convert(source, tiny.folder / "out", **stricter)
    assert convert(source, tiny.folder / "out", on_bad_row="skip", max_bad=2).n_rows == 898


def test_another_source_or_option_starts_anew(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    source = tiny.text("r.vw", tiny.lines(900, 20))
    room(12_000)

    def cut(**options):
        cut_off(monkeypatch, 3, source, tiny.folder / "out", **options)

    cut()
    assert not convert(source, tiny.folder / "out", seed=1).resumed
    cut(force=True)
    tiny.text("r.vw", tiny.lines(901, 20))
    done = convert(source, tiny.folder / "out", force=True)
    assert (done.resumed, done.n_rows) == (False, 901)


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_run_is_read_again(damage, tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    source = tiny.text("r.vw", tiny.lines(900, 20))
    wanted = convert(source, tiny.folder / "whole").digest
    room(12_000)
    cut_off(monkeypatch, 4, source, tiny.folder / "out")
    victim = tiny.folder / ".out.partial/runs/run-000001"
    content = bytearray(victim.read_bytes())
    if damage == "flip":
        content[-30] ^= 4
    victim.write_bytes(content[:-5] if damage == "cut" else content)
    assert convert(source, tiny.folder / "out").digest == wanted


def test_a_row_damaged_in_a_run_is_never_written(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    source = tiny.text("r.vw", tiny.lines(900, 20))
    room(12_000)
    cut_off(monkeypatch, 4, source, tiny.folder / "out")
    victim = tiny.folder / ".out.partial/runs/run-000001"
    content = bytearray(victim.read_bytes())
    content[40] ^= 4
    victim.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        convert(source, tiny.folder / "out")
    assert not (tiny.folder / "out").exists()


def test_a_full_disk_is_one_line_and_the_conversion_goes_on(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    source = tiny.text("r.vw", tiny.lines(900, 20))
    wanted = convert(source, tiny.folder / "whole").digest
    room(12_000)
    with monkeypatch.context() as patch:
        patch.setattr(
            "streammach.system.files.reading.shutil.disk_usage", lambda _: SimpleNamespace(free=10)
        )
        with pytest.raises(DiskError, match=r"the conversion needs .* are free"):
            convert(source, tiny.folder / "out")
    assert convert(source, tiny.folder / "out").digest == wanted


def test_too_little_memory_is_refused_before_anything_is_made(tiny):
    source = tiny.text("r.vw", ["a |w x"])
    with pytest.raises(BudgetError, match="too little"):
        convert(source, tiny.folder / "out", memory="10MB")
    with pytest.raises(BudgetError, match="may be used"):
        convert(source, tiny.folder / "out", memory="1000TB")
    assert names_in(tiny.folder) == ["r.vw"]


def test_names_that_are_known_are_not_reckoned_as_growing(tiny, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    known = [f"label{i} |w name{i}" for i in range(20_000)]
    train, asked, real = tiny.folder / "train", [], folder.ConversionMemory.room
    convert(tiny.text("known.vw", known), train)

    def noted(self, others, in_the_end, piece=0):
        asked.append((others, in_the_end))
        return real(self, others, in_the_end, piece)

    monkeypatch.setattr(folder.ConversionMemory, "room", noted)
    convert(tiny.text("r.vw", known[:3000]), tiny.folder / "out", like=train)
    foreseen = [(others, in_the_end) for others, in_the_end in asked if in_the_end]
    assert len(foreseen) > 10
    assert all(in_the_end < 1.5 * others for others, in_the_end in foreseen)


def test_text_is_read_from_standard_input(tiny):
    lines = tiny.lines(200, 10)
    wanted = convert(tiny.text("r.vw", lines), tiny.folder / "a").digest
    reader, writer = os.pipe()
    os.write(writer, "\n".join(lines).encode())
    os.close(writer)
    kept = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert main(["convert", "-", str(tiny.folder / "b")]) == 0
    finally:
        os.dup2(kept, 0)
        os.close(reader)
        os.close(kept)
    with Dataset.open(tiny.folder / "a") as a, Dataset.open(tiny.folder / "b") as b:
        assert a.root.source[0].crc32c != b.root.source[0].crc32c  # no last newline
        assert a.root.nnz == b.root.nnz
    assert wanted
    assert rows_by_name(tiny.folder / "a") == rows_by_name(tiny.folder / "b")


def test_names_of_labels_are_put_aside_with_rows(tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    lines = [f"l{i * 7 % 90},Name {i * 7 % 90},w{i % 50} x{i % 31}" for i in range(3000)]
    lines[2999] = "l1,Another name,w1"
    source = tiny.text("r.csv", ["label,called,text", *lines])
    options = {"label": "label", "label_names": "called", "text": "text"}
    wanted = convert(source, tiny.folder / "whole", **options)
    room(20_000)
    cut_off(monkeypatch, 3, source, tiny.folder / "out", **options)
    runs = sorted((tiny.folder / ".out.partial/runs").glob("run-*"))
    first, second = (spills.read_spill(path)[1].tally.named_labels for path in runs)
    assert first
    assert not first.keys() & second.keys()  # each one has what is new
    done = convert(source, tiny.folder / "out", **options)
    assert done.resumed
    assert done.digest == wanted.digest
    with Dataset.open(tiny.folder / "out") as data:
        assert data.verify() == []
        names = data.stored_names
        pairs = [*zip(data.labels.values(names.classes), names.texts, strict=True)]
    assert len(pairs) == 91
    assert {f"Name {label[1:]}" for label, _ in pairs} | {"Another name"} == {n for _, n in pairs}
    assert [name for label, name in pairs if label == "l1"] == ["Name 1", "Another name"]


def test_a_column_of_texts_is_no_column_of_names(tiny, monkeypatch):
    monkeypatch.setattr(spills, "MOST_NAMES", 50)
    source = tiny.text("r.csv", ["y,text,of", *(f"a,word {i},x" for i in range(60)), "b,one,y"])
    with pytest.raises(DataError, match="labels have over 50 names: label_names"):
        convert(source, tiny.folder / "out", label="y", label_names="text", text="of")

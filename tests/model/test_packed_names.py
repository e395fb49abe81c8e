"""Names of many labels stay compressed in memory: each is what it was, and damage is found."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from streammach.errors import ModelError
from streammach.model import packed_names
from streammach.model.document import read_document
from streammach.model.model import Model
from streammach.model.packed_names import PackedNames
from streammach.model.size import size_in_file, size_in_memory
from streammach.rows.names import MAX_NAME, Names
from tests.model.models import counts_of, model_of

LISTS = {
    "integer": [0, 7, -12, 999_999_999_999_999_999, *range(20, 60)],
    "utf8": [
        "",
        "a",
        "année",
        "日本",
        "x" * MAX_NAME,
        "7",
        "^",
        "a^b",
        "tab\tline\n",
        *"bcdefghij",
    ],
    "late utf8": [*range(30), "z"],
    "bytes": [b"\xff", b"", b"ok", b"\x00", b"\xc3", b"a\x00", *(b"%d" % i for i in range(15))],
    "late bytes": [*(f"n{i}" for i in range(29)), b"\xfe"],
    "a piece": ["a", "b", "c", "d"],
    "a name more": ["a", "b", "c", "d", "e"],
    "less than a piece": ["only", "a", "few"],
}


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    """Names of any model are packed, four together."""
    monkeypatch.setattr("streammach.model.model.MANY", 1)
    monkeypatch.setattr(packed_names, "EACH", 4)


def small(rng, labels, **changes):
    """A small model with such labels."""
    n = len(labels)
    weights = rng.integers(-7, 8, (12, 6)).astype(np.int8)
    fields = {"weights": weights, "scale": rng.random(12).astype(np.float32), "stored": "int4"}
    return model_of(rng, k=n, n_buckets=2, labels=labels, majority=0, **{**fields, **changes})


@pytest.fixture
def saved(rng, tmp_path):
    """The folder of a model of 19 labels, among them one that is no text."""
    names = Names.of([*(f"label {i}" for i in range(18)), b"\xff\x00"])
    small(rng, names, counts=counts_of(rng, k=19)).save(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("name", LISTS)
def test_each_name_is_what_it_was(rng, name, tmp_path):
    names = Names.of(LISTS[name])
    small(rng, names).save(tmp_path / "m")
    found = Model.load(tmp_path / "m").labels
    assert isinstance(found, PackedNames)
    assert (found.kind, len(found), found.text_bytes) == (names.kind, len(names), names.text_bytes)
    for i in range(len(names)):
        assert found.raw(i) == names.raw(i)
        assert found.label(i) == names.label(i)
        assert type(found.label(i)) is type(names.label(i))
    for ids in (np.arange(len(names)), rng.integers(0, len(names), 50), np.arange(0)):
        assert found.raws(ids) == names.raws(ids) == [names.raw(i) for i in ids.tolist()]
        assert found.values(ids) == names.values(ids) == [names.label(i) for i in ids.tolist()]
    assert found.plain().same_as(names)
    assert found.plain().kind == names.kind


def test_a_model_is_the_same_when_it_is_saved_again(saved, tmp_path):
    model = Model.load(saved)
    model.save(tmp_path / "again")
    plain = dataclasses.replace(model, labels=model.labels.plain())
    plain.save(tmp_path / "plain", spare=np.zeros(200, np.uint8))
    for name in ("model.json", "model.safetensors"):
        content = (saved / name).read_bytes()
        assert (tmp_path / "again" / name).read_bytes() == content
        assert (tmp_path / "plain" / name).read_bytes() == content
    assert read_document(saved, saved).packs_names
    files = sum(file.stat().st_size for file in saved.iterdir())
    assert files <= model.file_bytes() < files + 16
    assert sorted(model.arrays()) == sorted(plain.arrays())


def test_few_labels_and_wide_weights_lie_as_before(rng, saved, tmp_path, monkeypatch):
    model = Model.load(saved)
    labels, weights = model.labels.plain(), rng.random((12, 6)).astype(np.float32)
    whole = dataclasses.replace(model, stored=None, weights=weights, scale=None, labels=labels)
    monkeypatch.setattr("streammach.model.model.MANY", 20)
    for name, one in (("coded", model), ("whole", whole)):
        one.save(tmp_path / name)
        assert not read_document(tmp_path / name, "m").packs_names
        found = Model.load(tmp_path / name).labels
        assert isinstance(found, Names)
        assert found.same_as(labels)


@pytest.mark.parametrize(
    "change",
    [
        {"label_counts": np.arange(19), "n_rows": 40},
        {"line": ((0.0, 0.5, 1.0), (0.0, 0.25, 1.0))},
        {"added": 1},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_what_older_formats_may_have_is_kept(change, saved, tmp_path):
    model = Model.load(saved)
    if "line" in change:
        stated, right = change["line"]
        line = dataclasses.replace(model.calibration, stated=stated, right=right)
        model = dataclasses.replace(model, calibration=line)
    elif "added" in change:
        codes = np.zeros((1, model.spec.n_repetitions), np.uint8)
        spec = dataclasses.replace(model.spec, n_classes=18).with_added(codes)
        model = dataclasses.replace(model, spec=spec)
    else:
        training = dataclasses.replace(model.training, label_share="each")
        model = dataclasses.replace(model, training=training, **change)
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    assert again.spec == model.spec
    assert again.calibration == model.calibration
    assert (again.listed, again.n_rows) == (model.listed, model.n_rows)
    for name, array in model.arrays().items():
        assert np.array_equal(again.arrays()[name], array), name


def test_memory_is_what_was_said_of_it(saved):
    model, held = Model.load(saved), size_in_file(saved)
    names = model.labels.plain()
    assert held.n_bytes == model.n_bytes == size_in_memory(model).n_bytes
    assert held.names == size_in_memory(model).names
    assert held.labels == size_in_memory(model).labels == names.n_bytes
    assert model.n_bytes == dataclasses.replace(model, labels=names).n_bytes - (
        names.n_bytes - model.labels.n_bytes
    )


def test_many_names_take_less_than_a_plain_list(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_names, "EACH", 1 << 10)
    names = Names.of(f"c{i}" for i in rng.permutation(20_000).tolist())
    small(rng, names).save(tmp_path / "m")
    found = Model.load(tmp_path / "m").labels
    assert found.n_bytes < 5 * len(names) < names.n_bytes / 2


def test_names_are_read_from_the_file_that_was_opened(rng, saved, tmp_path):
    model = Model.load(saved)
    expected = model.labels.raws(np.arange(19))
    others = Names.of(f"other {i}" for i in range(19))
    small(rng, others).save(saved, force=True)
    assert model.labels.raws(np.arange(19)) == expected
    shutil.rmtree(saved)
    assert model.labels.raws(np.arange(19)) == expected


def test_they_are_held_in_memory_of_their_own(saved):
    model = Model.load(saved)
    file = saved / "model.safetensors"
    file.write_bytes(b"\0" * file.stat().st_size)
    assert model.labels.label(3) == b"label 3"


def outcome(names):
    """What reading all names gives: the names, or the error."""
    try:
        return repr(names.raws(np.arange(len(names))))
    except ModelError as error:
        return str(error)


def test_every_damaged_byte_is_found_when_it_is_read(saved):
    names = Model.load(saved).labels
    right, wrong = outcome(names), "damaged: the labels' names are wrong: "
    assert right == repr(names.raws(np.arange(19)))
    for at in range(len(names.data)):
        for bit in (0, 3, 7):
            data = np.array(names.data)
            data[at] ^= 1 << bit
            changed = dataclasses.replace(names, data=data)
            found = outcome(changed)
            assert found == right or found.startswith(wrong)  # some bits say nothing


def test_a_file_that_was_damaged_is_refused_when_it_is_opened(saved):
    file = saved / "model.safetensors"
    content = bytearray(file.read_bytes())
    at = content.index(b"\x1f\x8b")
    content[at + 20] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelError, match="size or checksum is wrong"):
        Model.load(saved)


WRONG = {  # row, column, and how much more
    "a piece of too few bytes": (0, 1, -1),
    "pieces that fall": (0, 1, 999),
    "a start that is none": (0, 0, 1),
    "ends beyond the bytes": (0, -1, 1),
    "texts that are longer": (1, -1, 1),
    "a text in another piece": (1, 2, 1),
    "a text that starts late": (1, 0, 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_pieces_that_lead_elsewhere_are_refused(name, saved, tmp_path):
    """With right checksums: what is said of them must be sound itself."""
    model = Model.load(saved)
    row, column, more = WRONG[name]
    pieces = model.labels.pieces.copy()
    pieces[row, column] += more
    labels = dataclasses.replace(model.labels, pieces=pieces)
    dataclasses.replace(model, labels=labels).save(tmp_path / "m")
    with pytest.raises(ModelError, match="damaged") as error:
        Model.load(tmp_path / "m")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["integer", "utf8"])
def test_names_of_another_kind_are_refused(kind, saved, tmp_path):
    model = Model.load(saved)
    labels = dataclasses.replace(model.labels, kind=kind)
    dataclasses.replace(model, labels=labels).save(tmp_path / "m")
    with pytest.raises(ModelError, match="the labels' names are wrong"):
        Model.load(tmp_path / "m")


def test_a_name_that_is_too_long_is_refused(rng, tmp_path):
    small(rng, Names.of(["a", "b" * (MAX_NAME + 1), *"cdefgh"])).save(tmp_path / "m")
    with pytest.raises(ModelError, match="the labels' names are wrong"):
        Model.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"how": "names"', '"how": "planes"'),
        ('"unit": 4', '"unit": 5'),
        ('"unit": 4', '"unit": 0'),
        ('"unit": 4', '"unit": 40000'),
        ('"how": "nibbles"', '"how": "names"'),
        ('"n_classes": 19', '"n_classes": 21'),
    ],
)
def test_a_document_that_says_something_else_is_refused(old, new, saved):
    file = Path(saved / "model.json")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(ModelError, match="damaged"):
        Model.load(saved)


def test_a_piece_is_never_unpacked_beyond_what_was_said_of_it(rng, saved):
    """A piece of a hundred bytes may hold a hundred thousand: no more than expected is made."""
    import zlib

    names = Model.load(saved).labels
    packing = zlib.compressobj(9, wbits=31)
    bomb = np.frombuffer(packing.compress(bytes(10_000_000)) + packing.flush(), np.uint8)
    pieces = names.pieces.copy()
    pieces[0, 1:] = len(bomb)
    with pytest.raises(ModelError, match="wrong length"):
        dataclasses.replace(names, data=bomb, pieces=pieces).raw(0)

"""Arrays coded for a file come back bit for bit; what is damaged is refused."""

import dataclasses
from typing import get_args

import msgspec
import numpy as np
import pytest

from streammach.model import coding
from streammach.model.coding import CodeBuffer, decode, encode
from streammach.model.model import Model
from streammach.system.errors import ModelError
from tests.model.models import counts_of, model_of

SIZES = [0, 1, 2, 1000, 1001]

STARTS = coding.COUNTS + "starts"


def numbers(rng, dtype, n):
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return rng.normal(size=n).astype(kind)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return rng.integers(low, high, n, kind, endpoint=True)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """Several pieces of little data."""
    monkeypatch.setattr(coding, "PIECE_WORDS", 300)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", get_args(coding.DType))
def test_planes_and_steps_come_back(rng, dtype, n):
    values = numbers(rng, dtype, n)
    arrays = [values, values.reshape(20, 50)] if n == 1000 else [values]
    for array in arrays:
        assert same(decode(*encode("x", array, {})), array)
    if dtype in ("int64", "int32"):
        data, coded = encode("feature_offsets", values, {})
        assert coded.how == "steps"
        assert same(decode(data, coded), values)


@pytest.mark.parametrize("unit", [1, 3, 32])
@pytest.mark.parametrize("n", SIZES)
def test_units_come_back(rng, n, unit):
    most = 32767 // unit
    gains = (rng.integers(-most, most, n, endpoint=True) * unit).astype(np.int16)
    if n == 1000:
        gains[:2] = -most * unit, most * unit
    data, coded = encode("count_gains", gains, {})
    assert coded.unit % unit == 0 or n < 3
    assert same(decode(data, coded), gains)
    for values in ([-32768], [-32768, 32767], [-32768, 0, -32768], [0, 0]):
        gains = np.array(values, np.int16)
        assert same(decode(*encode("count_gains", gains, {})), gains)


@pytest.mark.parametrize("n", SIZES)
def test_nibbles_come_back_in_half_a_byte_each(rng, n):
    values = rng.integers(-8, 8, n).astype(np.int8)
    data, coded = encode("weights", values, {}, "nibbles")
    assert same(decode(data, coded), values)
    packed = [(int(a) & 15) | (int(b) & 15) << 4 for a, b in
              zip(values[::2], [*values[1::2], 0], strict=False)]  # fmt: skip
    assert coding._words(values, 0, len(values), "nibbles", 1).tolist() == packed


def test_halves_come_back_as_the_nearest_float16(rng):
    values = rng.normal(size=777).astype(np.float32)
    back = decode(*encode("weights", values, {}, "halves"))
    assert same(back, values.astype(np.float16).astype(np.float32))
    assert same(decode(*encode("weights", back, {}, "halves")), back)


@pytest.mark.parametrize("piece", [1, 7, coding.PIECE_WORDS])
@pytest.mark.parametrize("n_lists", [0, 1, 7, 400])
def test_lists_come_back(rng, n_lists, piece, monkeypatch):
    monkeypatch.setattr(coding, "PIECE_WORDS", piece)
    lengths = rng.integers(0, 9, n_lists)
    lists = [np.sort(rng.choice(10**9, k, replace=False)) for k in lengths]
    classes = np.concatenate([*lists, []]).astype(np.int32)
    arrays = {STARTS: np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)}
    data, coded = encode("count_classes", classes, arrays)
    assert same(decode(data, coded, arrays[STARTS]), classes)
    steps = np.concatenate([*(np.diff(x, prepend=0) for x in lists), []]).astype(np.int32)
    words = [words() for words in coding._pieces(classes, "lists", 1, arrays[STARTS])]
    assert max(map(len, words), default=0) <= piece
    assert same(np.concatenate([*words, classes[:0]]), steps)


def test_lists_with_wrong_starts_are_refused(rng):
    arrays = {STARTS: np.array([0, 2, 5])}
    data, coded = encode("count_classes", np.arange(5, dtype=np.int32), arrays)
    for wrong in ([0, 2, 4], [1, 2, 5], [0, 7, 5], [0, 2, -5], []):
        with pytest.raises(ValueError, match="the starts of the lists are wrong"):
            decode(data, coded, np.array(wrong, np.int64))
    with pytest.raises(ValueError, match="the starts"):
        decode(data, coded)


def test_pieces_that_do_not_fit_are_refused(rng):
    data, coded = encode("x", numbers(rng, "int32", 1000), {})
    sizes = coded.sizes
    wrong = [
        {"shape": (999,)}, {"shape": (1 << 40,)}, {"shape": (-1,)}, {"dtype": "int64"},
        {"dtype": "object"}, {"sizes": sizes[:-1]}, {"sizes": (sizes[0] + 1, *sizes[1:])},
        {"sizes": (sizes[0] + 1, sizes[1] - 1, *sizes[2:])}, {"how": "halves"},
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(ValueError, match=r".+"):
            decode(data, msgspec.structs.replace(coded, **change))
    for at in range(0, len(data), 97):
        with pytest.raises(ValueError, match=r".+"):
            decode(np.delete(data, at), coded)


@pytest.fixture
def model(rng):
    return model_of(
        rng, weights=rng.integers(-7, 8, (12, 24)).astype(np.int8), counts=counts_of(rng),
        scale=rng.random(12).astype(np.float32), stored="int4",
    )  # fmt: skip


@pytest.mark.parametrize("stored", ["float32", "float16", "int8", "int4", None])
def test_a_coded_model_comes_back(model, stored, tmp_path):
    if stored in ("float32", "float16", None):
        model = dataclasses.replace(model, weights=model.weights.astype(np.float32), scale=None)
    model = dataclasses.replace(model, stored=stored)
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    assert again.stored == stored
    for name, array in model.arrays().items():
        assert same(np.asarray(again.arrays()[name]), array), name
    files = sum(file.stat().st_size for file in (tmp_path / "m").iterdir())
    assert files <= model.file_bytes() < files + 16
    text = (tmp_path / "m/model.json").read_text()
    assert ('"coded"' not in text) == (stored is None)


def test_a_document_that_codes_otherwise_is_refused(model, tmp_path):
    model.save(tmp_path / "m")
    file = tmp_path / "m/model.json"
    text = file.read_text()
    for old, new in (
        ('"how": "nibbles"', '"how": "planes"'),
        ('"how": "lists"', '"how": "steps"'),
        ('"stored": "int4"', '"stored": "int2"'),
        ('"dtype": "int16"', '"dtype": "int64"'),
        ('"count_starts": {', '"other": {'),
    ):
        assert old in text
        file.write_text(text.replace(old, new, 1))
        with pytest.raises(ModelError, match="damaged"):
            Model.load(tmp_path / "m")


def test_bytes_are_the_same_wherever_they_lie(rng, monkeypatch):
    monkeypatch.setattr(coding, "PIECE_WORDS", 64)
    table = rng.integers(-7, 8, (50, 24)).astype(np.int8)
    for how in ("planes", "nibbles"):
        for array in (table, table[:, :17], table[:, :0]):
            expected, facts = encode("weights", np.ascontiguousarray(array), {}, how)
            for n in (0, 100, 10_000):
                spare = np.zeros(n, np.uint8)
                room = CodeBuffer(spare, threads=len(spare) % 3 + 1)
                for _ in range(2):  # one array after another
                    data, coded = encode("weights", array, {}, how, room)
                    assert same(data, expected)
                    assert coded == facts
                    assert np.array_equal(decode(data, coded), array)
            assert np.shares_memory(data, spare) or not array.size


def test_a_model_is_saved_into_spare_memory(model, tmp_path):
    model.save(tmp_path / "a")
    model.save(tmp_path / "b", spare=np.zeros(1000, np.uint8))
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

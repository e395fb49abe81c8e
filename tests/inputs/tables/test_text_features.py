import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammach.inputs.tables.cells import MAX_CELL, PythonRows
from streammach.inputs.tables.frame import ALONE, BREAK, IDEOGRAPHS, PART, kinds_of_characters
from streammach.inputs.tables.table_reader import USUAL, TableReader
from streammach.options.recipe import Column, Recipe
from streammach.rows.vocabulary import Vocabulary
from tests.reference.words import features_of, normalised

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.text("abcAB 12-_'\n", max_size=40),
        st.text("aéß ŉﬁ日本語กำहिंدİ½№\u0301\U0001f600\U00020000", max_size=20),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


def read(rows, recipe, **given):
    words = Vocabulary()
    asked = {"multilabel": "off", "label_needed": False} | given
    part = TableReader(recipe, words, **asked).rows(PythonRows(rows), 0)
    return part, words


def features(part, words):
    """Return the features of each row with their values, added up."""
    names = words.feature_names()
    block, out = part.block, []
    for i in range(block.n_rows):
        found = Counter()
        for p in range(block.indptr[i], block.indptr[i + 1]):
            found[names.raw(block.features[p]).decode()] += float(block.values[p])
        out.append(found)
    return out


def text_recipe(**given):
    return Recipe(columns=(Column(name="t", role="text"),), **given)


@settings(deadline=None, derandomize=True)
@given(TEXTS, st.integers(1, 3), st.sampled_from([None, (3, 3), (1, 4), (2, 2)]))
def test_compiled_features_are_those_of_plain_python(texts, ngrams, chars):
    part, words = read([{"t": t} for t in texts], text_recipe(ngrams=ngrams, chars=chars))
    expected = []
    for text in texts:
        runs, pieces = features_of(text, ngrams, chars)
        expected.append(Counter([f"t^{r}" for r in runs] + [f"t:chars^{p}" for p in pieces]))
    assert features(part, words) == expected


def kind_of_character(code):
    """Return what a character is in normalised text."""
    if any(a <= code < b for a, b in IDEOGRAPHS) and chr(code).isalnum():
        return ALONE
    return PART if chr(code).isalnum() or unicodedata.category(chr(code))[0] == "M" else BREAK


def test_kinds_of_characters_are_the_same_one_by_one():
    kinds = kinds_of_characters()
    codes = [*range(0x3000), *range(0x3000, 0x110000, 97)]
    assert [kind_of_character(c) for c in codes] == kinds[codes].tolist()


@pytest.mark.parametrize("text", ["Straße", "İstanbul", "ŉ", "ﬁne", "Ⅷ", "ΑΣ", "K", "e\u0301"])
def test_normalised_text_stays_as_it_is(text):
    assert normalised(normalised(text)) == normalised(text)


@pytest.mark.parametrize("word", ["a" * 5000, "é" * 3000, "日" * 3000, "a" + "é" * 2047])
def test_words_that_are_too_long_are_cut_to_whole_characters(word):
    part, words = read([{"t": f"x {word} y"}], text_recipe(ngrams=2, chars=(3, 3)))
    runs, pieces = features_of(f"x {word} y", 2, (3, 3))
    expected = Counter([f"t^{r}" for r in runs] + [f"t:chars^{p}" for p in pieces])
    assert features(part, words) == [expected]


def test_a_long_text_gets_room():
    text = " ".join(f"w{i}" for i in range(200_000))
    part, words = read([{"t": "a"}, {"t": text}, {"t": "b"}], text_recipe(ngrams=2))
    assert np.diff(part.block.indptr).tolist() == [1, 399_999, 1]
    assert words.n_features == 400_001


def test_a_cell_that_is_too_large_is_refused():
    part, _ = read([{"t": "a b"}, {"t": "ab " * (MAX_CELL // 3 + 1)}], text_recipe())
    assert part.block.n_rows == 1
    assert [(row.line, row.reason) for row in part.bad] == [
        (1, "column t: '{}' has more than 8 MiB")
    ]


def test_numbers_bins_and_names():
    recipe = Recipe(
        columns=(
            Column(name="price", role="number", edges=(1.0, 5.0)), Column(name="x", role="number"),
            Column(name="brand", role="category"), Column(name="tags", role="names"),
            Column(name="bag", role="pairs"), Column(name="v", role="vector", width=3),
        ),
    )  # fmt: skip
    rows = [
        {"price": 1, "x": 2.5, "brand": 7, "tags": ["a", "b", "a"], "bag": {"k": 2},
         "v": [1, 0, 3]},
        {"price": 0.5, "x": 0, "brand": "é^x", "tags": "one", "bag": [["k", 1.5], ["l", -1]]},
        {"price": float("nan"), "x": None, "brand": None, "tags": [], "bag": None, "v": None},
    ]  # fmt: skip
    part, words = read(rows, recipe)
    assert features(part, words) == [
        {"price^1": 1, "x": 2.5, "brand^7": 1, "tags^a": 2, "tags^b": 1, "bag^k": 2, "v^0": 1,
         "v^2": 3},
        {"price^0": 1, "brand^é^x": 1, "tags^one": 1, "bag^k": 1.5, "bag^l": -1},
        {},
    ]  # fmt: skip


def test_lists_of_numbers_beside_text_are_brought_to_a_scale():
    column = Column(name="v", role="vector", width=3, center=1.0, scale=0.5)
    recipe = Recipe(columns=(Column(name="t", role="text"), column))
    rows = [{"t": "a", "v": [1, 2, 0]}, {"t": "b", "v": [1e30, -1e30, float("nan")]}, {"t": "c"}]
    part, words = read(rows, recipe)
    found = [dict(row) for row in features(part, words)]
    usual = float(np.float32(USUAL))  # what is missing: a value of 0 would be left out
    values = [[usual, 0.5, -0.5], [30, -30, usual], [usual, usual, usual]]
    assert found == [
        {f"t^{t}": 1} | {f"v^{i}": x for i, x in enumerate(row)}
        for t, row in zip("abc", values, strict=True)
    ]


def test_labels_are_one_or_lists():
    rows = [{"t": "a", "y": "p"}, {"t": "b", "y": ["p", "q"]}, {"t": "c", "y": []}, {"t": "d"}]
    recipe = text_recipe(label="y")
    part, _ = read(rows, recipe, multilabel="auto", label_needed=True)
    assert part.block.labels.starts.tolist() == [0, 1, 3, 3]
    assert [row.line for row in part.bad] == [3]
    part, _ = read(rows, recipe, multilabel="off", label_needed=True)
    assert part.block.classes.tolist() == [0]
    assert [row.line for row in part.bad] == [1, 2, 3]
    part, _ = read(rows, recipe, multilabel="on", label_needed=True)
    assert part.block.labels.starts.tolist() == [0, 1, 3, 3, 3]


def test_labels_may_stand_in_one_cell():
    rows = [{"t": "a", "y": "p; q"}, {"t": "b", "y": "q"}, {"t": "c", "y": ""}]
    part, words = read(
        rows, text_recipe(label="y", separator=";"), multilabel="auto", label_needed=True
    )
    assert part.block.labels.starts.tolist() == [0, 2, 3, 3]
    assert words.label_names().raw(1) == b"q"


def test_weights_and_tags():
    recipe = text_recipe(weight="w", tag="id")
    rows = [{"t": "a", "w": 2, "id": "r0"}, {"t": "b", "id": 5}, {"t": "c", "w": -1, "id": "r2"}]
    part, _ = read(rows, text_recipe(weight="w", tag="id", label="t2"), label_needed=False)
    assert part.block.tags.raws() == [b"r0", b"5", b"r2"]
    assert part.block.importance.tolist() == [1, 1, 1]  # nothing hangs on them in a prediction
    rows = [row | {"y": "k"} for row in rows]
    recipe = text_recipe(weight="w", tag="id", label="y")
    part, _ = read(rows, recipe, label_needed=True)
    assert part.block.importance.tolist() == [2, 1]
    assert part.block.tags.raws() == [b"r0", b"5"]
    assert part.bad[0].reason.format(part.bad[0].text) == (
        "column w: importance '-1.0' is not a number of 0 or more"
    )

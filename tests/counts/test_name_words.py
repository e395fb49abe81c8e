"""Words of names of labels as pairs: against a plain reference, and words within words."""

import math

import numpy as np
import pytest

from streammach.counts.name_words import CountedFeatures, NameWords, pair_names
from streammach.inputs.label_names import splitter
from streammach.options.recipe import Column, Recipe
from streammach.rows.names import ClassNames, Names
from streammach.rows.pairs import MOST_GAIN, CountWeights, NamePairs
from streammach.rows.pairs import places as places_of

N_ROWS = 1000


def recipe_of(language=None):
    column = Column(name="title", role="text")
    return Recipe(columns=(column,), label="subject", language=language)


def class_names(*names):
    classes = np.array([c for c, _ in names], np.int32)
    return ClassNames(classes, Names.of([name for _, name in names]))


def pairs_as_dict(pairs):
    every = zip(pairs.features.tolist(), pairs.classes.tolist(), pairs.gains.tolist(), strict=True)
    return {(f, c): gain for f, c, gain in every}


def found(names, features, *, recipe=None, most=1000):
    rows = np.arange(len(features), 0, -1) * 10
    counted = CountedFeatures(Names.of(features), rows, N_ROWS, recipe)
    n_classes = int(names.classes.max()) + 1
    return pairs_as_dict(pair_names(counted, names, n_classes, most)), rows


def gain(n_rows, length):
    return round(math.log(N_ROWS / n_rows) / math.sqrt(length) * 1024)


def test_a_word_of_a_name_adds_what_its_rows_and_the_length_of_the_name_say():
    features = ["title^the", "title^author", "title^the author", "title^rights", "title^ship"]
    names = class_names((0, "Author"), (1, "Rights of the author"), (2, "Author's copy"))
    pairs, rows = found(names, features, recipe=recipe_of())
    assert pairs == {
        (0, 1): gain(rows[0], 4), (1, 0): gain(rows[1], 1), (1, 1): gain(rows[1], 4),
        (1, 2): gain(rows[1], 3), (3, 1): gain(rows[3], 4),
    }  # fmt: skip


def test_of_several_names_of_a_label_the_shortest_one_with_the_word_counts():
    names = class_names((0, "Motor of a car"), (0, "Motor"), (0, "Small motor"))
    pairs, rows = found(names, ["title^motor"], recipe=recipe_of())
    assert pairs == {(0, 0): gain(rows[0], 1)}


def test_stems_are_compared_where_rows_have_stems():
    pairs, rows = found(class_names((0, "Libraries")), ["x^librari"], recipe=recipe_of("english"))
    assert pairs == {(0, 0): gain(rows[0], 1)}


@pytest.mark.parametrize(
    ("feature", "name"),
    [
        ("fn^kmalloc_array", "kmalloc"), ("DataFrame", "data frame"), ("fn^readLines", "lines"),
        ("HTTP2", "http2"), ("w^Straße", "strasse"), ("w^ﬁle", "FILE"),
    ],
)  # fmt: skip
def test_identifiers_are_taken_apart(feature, name):
    assert list(found(class_names((0, name)), [feature])[0]) == [(0, 0)]


def test_runs_of_words_have_no_pairs():
    assert not found(class_names((0, "New York")), ["t^new york"], recipe=recipe_of())[0]


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("industrieanlagen", ["industrie", "anlage"]), ("anlage", []), ("anlagen", []),
        ("donaudampfschiffe", ["dampfschiff", "donau"]), ("schifffahrt", []),
        ("dampfschiff", []), ("unanlagebar", ["anlage"]), ("xxxxanlage", []),
        ("rettungsdampf", ["dampf", "rettung"]), ("unrelated", []), ("dampf" * 30, []),
    ],
)  # fmt: skip
def test_compounds_are_made_of_words_of_names(word, parts):
    words = ["industrie", "anlage", "dampf", "schiff", "dampfschiff", "donau", "rettung", "ab"]
    names = NameWords(class_names(*enumerate(words)), splitter(None))
    known = list(names.ids)
    assert sorted(known[i] for i in names.within(word)) == sorted(parts)


def test_frequent_features_come_first_where_there_is_no_room():
    names = class_names((0, "alpha"), (1, "alpha beta"), (2, "beta"))
    features = ["t^alpha", "t^beta"]
    every, _ = found(names, features, recipe=recipe_of())
    some, _ = found(names, features, recipe=recipe_of(), most=3)
    assert some == {pair: n for pair, n in every.items() if pair[0] == 0}


def dense(counts):
    out = np.zeros((counts.n_features, counts.n_classes), np.int64)
    for f in range(counts.n_features):
        own = slice(counts.starts[f], counts.starts[f + 1])
        out[f, counts.classes[own]] = counts.gains[own]
        if counts.wide_of[f] >= 0:
            out[f] = counts.wide[counts.wide_of[f]]
    return out


def random_counts(rng, d, k):
    table = rng.integers(-3000, 3000, (d, k)) * (rng.random((d, k)) < 0.3)
    wide = np.flatnonzero(rng.random(d) < 0.3)
    listed = table.copy()
    listed[wide] = 0
    f, c = np.nonzero(listed)
    return table, CountWeights(
        starts=np.concatenate([[0], np.cumsum(np.bincount(f, minlength=d))]),
        classes=c.astype(np.int32), gains=listed[f, c].astype(np.int16),
        wide_of=places_of(wide, d), wide=table[wide].astype(np.int16),
        penalty=np.zeros(d, np.float32), base=np.zeros(k, np.float32),
        log_values=np.zeros(k, np.float32), hashed=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_pairs_are_added_to_those_of_counts(rng, share):
    d, k = 12, 40
    table, counts = random_counts(rng, d, k)
    f, c = np.nonzero(rng.random((d, k)) < share)
    gains = rng.integers(-MOST_GAIN, MOST_GAIN, len(f))
    pairs = NamePairs(
        features=f.astype(np.int32), classes=c.astype(np.int32), gains=gains.astype(np.int16),
        words=np.arange(d, dtype=np.int16),
    )  # fmt: skip
    before = counts.classes.copy(), counts.gains.copy(), counts.wide.copy()
    both = counts.with_pairs(pairs)
    table[f, c] += gains
    assert np.array_equal(dense(both), np.clip(table, -MOST_GAIN, MOST_GAIN))
    for f in range(d):
        assert (np.diff(both.classes[both.starts[f] : both.starts[f + 1]]) > 0).all()
    after = counts.classes, counts.gains, counts.wide
    assert all(np.array_equal(*one) for one in zip(before, after, strict=True))
    kept = rng.random(d) < 0.6
    ids, features = np.arange(k), np.arange(int(kept.sum()))
    some = pairs.of_features(kept).gains_of(features, ids)
    assert np.array_equal(some, pairs.gains_of(np.flatnonzero(kept), ids))
    own = np.zeros((d, k), np.int64)
    own[pairs.features, pairs.classes] = pairs.gains
    assert np.array_equal(pairs.gains_of(np.arange(d), ids[::-1]), own[:, ::-1])

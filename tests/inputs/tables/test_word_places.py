"""Where features stand in a text: what stands there becomes the feature again."""

import pytest

from streammach.inputs.tables.word_places import MOST_CHARACTERS, MOST_PLACES, add_places, words_in
from streammach.options.recipe import Column, Recipe
from tests.reference.words import features_of, words_of

TEXTS = [
    "A map of the sea, a MAP.", "", " ?! ", "don't re-use x2 Straße, naïve", "日本語 text です",
    "e\u0301te\u0301 \ufb01ne", "a" * 50,
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("chars", [None, (2, 4)])
def test_places_hold_their_features(text, chars):
    recipe = Recipe(columns=(Column(name="t", role="text"),), ngrams=3, chars=chars)
    runs, pieces = features_of(text, 3, chars)
    names = {*(f"t^{run}" for run in runs), *(f"t:chars^{piece}" for piece in pieces)}
    assert [word for word, _, _ in words_in(text)] == words_of(text)
    for rows in ([text], [{"t": text}], [{"t": None}], [{}]):
        found = {name: [] for name in [*names, "t^other"]}
        add_places(rows, recipe, [found])
        there = rows[0] in (text, {"t": text})
        for name, places in found.items():
            same_length = all(len(word) == stop - start for word, start, stop in words_in(text))
            assert bool(places) == (there and name != "t^other") or not same_length
            assert len(places) <= MOST_PLACES
            space, _, run = name.partition("^")
            for start, stop in places:
                own = " ".join(words_of(text[start:stop]))
                assert own == run or (space == "t:chars" and own == run.strip())


def test_a_very_long_text_has_no_places():
    recipe = Recipe(columns=(Column(name="t", role="text"),))
    found = [{"t^a": []}, {"t^a": []}]
    add_places(["a " * (MOST_CHARACTERS // 2), "a " * MOST_CHARACTERS], recipe, found)
    assert [len(places["t^a"]) for places in found] == [MOST_PLACES, 0]

"""Words by a function of the user: in every door, and only where the user registered it."""

import pickle

import numpy as np
import pytest

import streammach as sm
from streammach.inputs import tokenizers
from streammach.system.errors import DataError, UsageError

TEXTS = ["Cats_and dogs", "図書館 の 本", "ça-va bien", "dogs and cats"] * 20
LABELS = ["a", "b", "c", "d"] * 20


def by_blanks(text):
    return text.replace("-", "").split(" ")


def broken(text):
    return [len(text)]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """What another process knows: nothing."""
    monkeypatch.setattr(tokenizers, "_registered", {})


def names_of(model):
    return {raw.decode() for raw in model.features.raws(np.arange(len(model.features)))}


def test_words_are_those_of_the_function_in_every_door(tmp_path):
    lines = [f"{label}\t{text}" for label, text in zip(LABELS, TEXTS, strict=True)]
    (tmp_path / "a.tsv").write_text("label\ttext\n" + "\n".join(lines) + "\n", "utf-8")
    how = {"ngrams": 1, "tokenizer": by_blanks}
    sm.convert(tmp_path / "a.tsv", tmp_path / "a.zarr", label="label", text="text", **how)
    with sm.Dataset.open(tmp_path / "a.zarr") as data:
        stored = {raw.decode() for raw in data.features.raws(np.arange(len(data.features)))}
    words = ["cats", "and", "dogs", "図書館", "の", "本", "çava", "bien"]
    assert stored == {f"text^{word}" for word in words}
    run = sm.train(TEXTS, LABELS, memory="1GB", epochs=2, **how)
    assert names_of(run.model) == stored
    assert run.model.recipe.tokenizer == f"{__name__}:by_blanks"
    [[why]] = run.model.explain(["本 の図書館 の"], n=3)
    places = {one.feature: one.places for one in why.contributions}
    assert places["text^本"] == ((0, 1),)
    clf = sm.MACHClassifier(epochs=2, tokenizer=by_blanks).fit(TEXTS, LABELS)
    assert clf.predict(TEXTS[:4]).tolist() == LABELS[:4]
    dumped = pickle.dumps(clf)
    tokenizers._registered.clear()
    assert pickle.loads(dumped).predict(TEXTS[:4]).tolist() == LABELS[:4]


def test_a_model_from_outside_runs_nothing(tmp_path, monkeypatch):
    sm.train(TEXTS, LABELS, memory="1GB", epochs=1, tokenizer=by_blanks, out=tmp_path / "run")
    tokenizers._registered.clear()
    name, model = f"{__name__}:by_blanks", sm.Model.load(tmp_path / "run")
    with pytest.raises(UsageError, match=f"'{name}', which is not registered: tokenizer"):
        model.predict(TEXTS[:2])
    for value in ("", "os:system", f"{name}2"):
        monkeypatch.setenv(tokenizers.ALLOWED, value)
        with pytest.raises(UsageError, match="not registered"):
            model.predict(TEXTS[:2])
    monkeypatch.setenv(tokenizers.ALLOWED, f"os:system,{name}")
    wanted = model.predict(TEXTS[:2]).tolist()
    monkeypatch.delenv(tokenizers.ALLOWED)
    assert sm.tokenizer(by_blanks) is by_blanks
    assert model.predict(TEXTS[:2]).tolist() == wanted


def test_functions_that_cannot_be_are_refused(monkeypatch):
    def inner(text):
        return text.split()

    for function in (inner, lambda text: text.split(), str.split.__get__("a")):
        with pytest.raises(UsageError, match="no function that a module names"):
            sm.train(TEXTS, LABELS, memory="1GB", tokenizer=function)
    with pytest.raises(DataError, match=r"the tokenizer '.*:broken' failed: TypeError: "):
        sm.train(TEXTS, LABELS, memory="1GB", tokenizer=broken)
    for name in ("streammach.absent:words", f"{__name__}:absent", "no name"):
        monkeypatch.setenv(tokenizers.ALLOWED, name)
        with pytest.raises(UsageError, match="cannot be imported"):
            tokenizers.words_by(name)

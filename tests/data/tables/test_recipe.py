import json
import re
import warnings

import msgspec
import pytest

from streammach.data.source_options import TableOptions
from streammach.data.tables.guess import recipe_of
from streammach.errors import StoreError
from streammach.spec.documents import encoded, from_json
from streammach.spec.recipe import Column, Recipe
from tests.data.tables.builders import ROLES, rows_of, write


def recipe(**given):
    return {"columns": [{"name": "a", "role": "text"}], **given}


def test_a_recipe_comes_back_from_its_document():
    whole = Recipe(
        columns=(
            Column(name="t", role="text"), Column(name="n", role="number", edges=(0.1, 1e300)),
            Column(name="v", role="vector", width=3, center=-0.5, scale=1e-3),
        ),
        label="y", separator=";", weight="w", tag="id", ngrams=1, chars=(2, 4), ignored=("x",),
    )  # fmt: skip
    assert from_json(encoded(whole), Recipe) == whole
    small = Recipe(columns=(Column(name="t", role="text"),))
    assert encoded(small) == b'{"columns":[{"name":"t","role":"text"}]}'


@pytest.mark.parametrize(
    "document",
    [
        {}, {"columns": []}, recipe(columns=[{"name": "", "role": "text"}]),
        recipe(columns=[{"name": "a" * 1001, "role": "text"}]),
        recipe(columns=[{"name": "a", "role": "magic"}]), recipe(label="a"), recipe(ngrams=6),
        recipe(ngrams=-1), recipe(ngrams=0), recipe(chars=[0, 3]), recipe(chars=[4, 3]),
        recipe(chars=[1, 17]), recipe(separator=""), recipe(ignored=["a"]), recipe(other=1),
        recipe(columns=[{"name": "a", "role": "number", "edges": [2, 1]}]),
        recipe(columns=[{"name": "a", "role": "number", "edges": [float("1e999")]}]),
        recipe(columns=[{"name": "a", "role": "category", "edges": [1]}]),
        recipe(columns=[{"name": "a", "role": "vector"}]),
        recipe(columns=[{"name": "a", "role": "vector", "width": 2**40}]),
        recipe(columns=[{"name": "a", "role": "vector", "width": 2, "scale": -1}]),
        recipe(columns=[{"name": "a", "role": "vector", "width": 2, "scale": float("1e999")}]),
        recipe(columns=[{"name": "a", "role": "number", "scale": 1}]),
        recipe(columns=[{"name": "x^y", "role": "text"}, {"name": "x_y", "role": "text"}]),
        recipe(columns=[{"name": "a", "role": "text"}, {"name": "a:chars", "role": "text"}],
               chars=[2, 3]),
        recipe(label="\ud800"),
    ],
)  # fmt: skip
def test_what_is_no_recipe_is_refused(document):
    with pytest.raises((msgspec.ValidationError, UnicodeEncodeError)):
        msgspec.convert(document, Recipe)


def test_a_recipe_that_was_changed_in_a_store_is_damage(tmp_path):
    from streammach.data.convert import convert
    from streammach.data.store.dataset import Dataset

    convert(write(rows_of(20), tmp_path, "csv"), tmp_path / "s.zarr", **ROLES)
    path = tmp_path / "s.zarr" / "zarr.json"
    whole = json.loads(path.read_text())
    whole["attributes"]["streammach"]["recipe"]["ngrams"] = 99
    path.write_text(json.dumps(whole))
    with pytest.raises(StoreError, match="not a store"):
        Dataset.open(tmp_path / "s.zarr")


@pytest.mark.parametrize("sign", [";", "|"])
def test_labels_that_look_like_lists_are_warned_of(sign):
    lists = [f"a{sign} b", "a", "b", f"b{sign}c", "c"] * 4
    single = [f"c{sign}{i}" for i in range(20)]  # no part but the first comes again
    head = {"text": ["one two"] * 20, "subjects": lists}
    with pytest.warns(UserWarning, match=rf"'a{re.escape(sign)} b' are one .*--label-separator"):
        assert recipe_of(head, TableOptions()).label == "subjects"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recipe_of(head, TableOptions(label_separator=sign))
        recipe_of(head | {"subjects": single}, TableOptions())

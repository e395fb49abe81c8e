import json
import re
import warnings

import msgspec
import numpy as np
import pandas as pd
import pytest

import streammach as sm
from streammach.conversion.convert import convert
from streammach.conversion.memory_rows import collect_rows
from streammach.inputs.source_options import TableOptions
from streammach.inputs.tables.guess import recipe_of
from streammach.options.documents import encode_json, from_json
from streammach.options.recipe import DATE_PARTS, Column, Recipe
from streammach.store.dataset import Dataset
from streammach.system.errors import StoreError, UsageError
from tests.inputs.tables.builders import ROLES, features, rows_of, write


def recipe(**given):
    return {"columns": [{"name": "a", "role": "text"}], **given}


def test_a_recipe_comes_back_from_its_document():
    whole = Recipe(
        columns=(
            Column(name="t", role="text"), Column(name="n", role="number", edges=(0.1, 1e300)),
            Column(name="v", role="vector", width=3, center=-0.5, scale=1e-3),
            Column(name="g", role="number", gaps=True),
        ),
        label="y", separator=";", weight="w", tag="id", ngrams=1, chars=(2, 4), ignored=("x",),
    )  # fmt: skip
    assert from_json(encode_json(whole), Recipe) == whole
    small = Recipe(columns=(Column(name="t", role="text"),))
    assert encode_json(small) == b'{"columns":[{"name":"t","role":"text"}]}'


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
        recipe(columns=[{"name": "a", "role": "text", "parts": ["year"]}]),
        recipe(columns=[{"name": "a", "role": "date", "parts": ["minute"]}]),
    ],
)  # fmt: skip
def test_what_is_no_recipe_is_refused(document):
    with pytest.raises((msgspec.ValidationError, UnicodeEncodeError)):
        msgspec.convert(document, Recipe)


def test_a_recipe_that_was_changed_in_a_store_is_damage(tmp_path):
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


ALIKE = {  # cells that say nothing where all rows have them
    "text": "some words of text", "category": "x", "number": 3.5, "none": 0, "truth": True,
    "date": "2024-01-31", "moment": "2024-01-31 13:45:00", "names": ["a", "b"],
    "pairs": {"a": 1.5}, "vector": [0.5, 1.5],
}  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "memory"])
@pytest.mark.parametrize("kind", ALIKE)
def test_what_has_one_value_in_all_rows_is_no_feature(kind, form, tmp_path):
    rows = [
        {"label": f"L{i % 3}", "t": f"w{i % 3} x{i % 5}", "alike": ALIKE[kind], "n": float(i)}
        for i in range(60)
    ]

    def columns_of(rows, **roles):
        source = rows if form == "memory" else write(rows, tmp_path, form)
        convert(source, tmp_path / "s.zarr", force=True, **roles)
        with Dataset.open(tmp_path / "s.zarr") as store:
            recipe = store.root.recipe
            return {column.name for column in recipe.columns}, recipe.ignored

    assert columns_of(rows) == ({"t", "n"}, ("alike",))
    if kind in ("text", "category", "date"):  # nobody guesses what the user says
        found, _ = columns_of(rows, label="label", number="n", **{kind: ["alike"]})
        assert found == {"alike", "n"}


def test_what_differs_from_missing_cells_is_a_feature():
    head = {"t": ["a b", "c d", "e f"], "b": ["x", None, "x"], "y": list("abc")}
    assert {c.name for c in recipe_of(head, TableOptions()).columns} == {"t", "b"}


def test_what_has_one_value_is_kept_where_nothing_else_is_there():
    head = {"t": ["a b"] * 3, "b": ["x"] * 3, "y": list("abc")}
    assert {c.name for c in recipe_of(head, TableOptions()).columns} == {"t", "b"}


def test_a_number_of_0_stays_where_it_is_no_feature():
    numbers = {"a": [0, 0, 0], "b": [0.5, 1, 2], "c": [7, 7, 7], "y": list("abc")}
    assert {c.name for c in recipe_of(numbers, TableOptions()).columns} == {"a", "b"}


DAYS = [f"20{20 + i % 3}-0{1 + i % 5}-1{i % 7}" for i in range(60)]


@pytest.mark.parametrize(
    ("cells", "guessed", "named"),
    [
        (DAYS, ("year", "month", "weekday"), ("year", "month", "weekday")),
        ([f"{day}T00:00:00" for day in DAYS], ("year", "month", "weekday"),
         ("year", "month", "weekday")),
        ([f"{day} 0{i % 4}:30:00" for i, day in enumerate(DAYS)], DATE_PARTS, DATE_PARTS),
        ([f"{day} 00:0{i % 4}:00" for i, day in enumerate(DAYS)], ("year", "month", "weekday"),
         DATE_PARTS),
        ([f"2024-0{1 + i % 5}-1{i % 7}" for i in range(60)], ("month", "weekday"),
         ("year", "month", "weekday")),
    ],
)  # fmt: skip
def test_parts_of_dates_that_say_nothing_are_no_features(cells, guessed, named):
    head = {"when": cells, "t": [f"a b{i}" for i in range(60)], "y": list(range(60))}
    for options, wanted in (
        (TableOptions(), guessed),
        (TableOptions(date=("when",), label="y"), named),
    ):
        column = recipe_of(head, options).columns[0]
        assert (column.name, column.parts) == ("when", wanted)


def test_dates_without_times_have_no_hour(tmp_path):
    rows = [{"when": day, "label": f"L{i % 3}"} for i, day in enumerate(DAYS)]
    convert(rows, tmp_path / "s.zarr", label="label", date="when")
    found = features(tmp_path / "s.zarr")
    assert not {name for name in found if "hour" in name}
    assert {"when^year=2020", "when^month=3", "when^weekday=Mon"} <= found


GAPS = {"a": [1.5, None, 2.0, None], "b": [None, None, None, 3.0], "c": [0.0, 1.0, -2.5, 4.0]}


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "frame", "frame, y"])
def test_a_number_that_is_missing_is_a_feature(form, tmp_path):
    """By any door; of `b` too many are: tables with such columns are sparse."""
    frame = pd.DataFrame(GAPS)
    whole = frame.assign(label=["x", "y", "x", "y"])
    path = tmp_path / f"rows.{form}"
    if form == "frame, y":
        data = collect_rows(frame, [*whole.label]).to_dataset()
    elif form == "frame":
        data = collect_rows(whole, "label").to_dataset()
    else:
        if form == "csv":
            whole.to_csv(path, index=False)
        elif form == "parquet":
            whole.to_parquet(path, index=False)
        else:
            whole.to_json(path, orient="records", lines=True)
        convert(path, tmp_path / "store")
        data = Dataset.open(tmp_path / "store")
    rows = data.rows(0, 4)
    names = [data.features.raw(i).decode() for i in rows.features]
    ends = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
    found = [sorted(zip(names[a:b], rows.values[a:b].tolist(), strict=True)) for a, b in ends]
    assert sorted(found) == [
        [("a", 1.5)], [("a", 2), ("c", -2.5)], [("b", 3), ("c", 4), ("missing^a", 1)],
        [("c", 1), ("missing^a", 1)],
    ]  # fmt: skip


def test_an_estimator_takes_frames_that_lack_numbers(rng):
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    y = np.where(frame.a > 0, "up", "down")
    frame.loc[::5, "b"] = np.nan
    model = sm.MACHClassifier(random_state=0).fit(frame, y)
    assert (model.predict(frame) == y).mean() > 0.8
    assert model.predict(frame.fillna(0)).shape == (200,)


def test_gaps_are_those_of_values_and_their_namespace_is_no_columns():
    head = {"label": ["x", "y"], "a": [1.0, None], "missing": [[1.0, 2.0], [3.0, 4.0]]}
    with pytest.raises(UsageError, match="two columns would share the namespace 'missing'"):
        recipe_of(head, TableOptions(label="label"))
    with pytest.raises(ValueError, match="gaps are those of numbers"):
        Column(name="a", role="number", edges=(1.0,), gaps=True)

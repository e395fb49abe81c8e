"""One name a value, whatever type, unit, file or library brought it: all types by all doors."""

import csv
import json
import warnings
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammach.conversion.convert import convert
from streammach.inputs.source_options import SourceOptions, TableOptions
from streammach.inputs.sources import open_table
from streammach.inputs.tables.memory_tables import MemorySource
from streammach.inputs.tables.values import canonical, number_of
from streammach.options.recipe import Column, Recipe
from streammach.rows.vocabulary import Vocabulary
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError
from tests.inputs.tables.builders import features
from tests.inputs.tables.test_text_features import features as features_of
from tests.inputs.tables.types_of_cells import extremes, intervals, kinds, pd, periods, pl

ROLES = ("category", "text", "label", "number", "date")
KINDS = {kind.types: kind for kind in kinds()}
PAGE = Path(__file__).parents[3] / "docs/tables.md"


def recipe_of(roles, edges):
    """Return a recipe that reads the columns that are called as some roles."""
    columns = [Column(name=r, role=r, edges=edges.get(r, ())) for r in roles if r != "label"]
    columns = columns or [Column(name="t", role="text")]
    label = "label" if "label" in roles else None
    used = (label, *(column.name for column in columns))
    rest = tuple(name for name in ("t", *ROLES) if name not in used)
    return Recipe(columns=tuple(columns), label=label, ignored=rest)


def read(source, recipe):
    """Return the label and the features of each row of a source, and why rows are bad."""
    words, labelled, found, bad = Vocabulary(), recipe.label is not None, [], []
    reader = source.reader(words, label_needed=labelled, strict=True)
    for piece in source.pieces():
        part = reader.read(piece)
        own = [dict(row) for row in features_of(part, words)]
        if labelled:
            for row, i in zip(own, part.block.classes, strict=True):
                row["label"] = words.label_names().raw(i).decode()
        found += own
        bad += [row.reason for row in part.bad]
    return found, bad


def in_memory(table):
    """Return what makes a source of a table in memory."""
    return lambda recipe: MemorySource(table, SourceOptions(recipe=recipe))


def in_file(path, form):
    """Return what makes a source of a file."""
    return lambda recipe: open_table(path, form, SourceOptions(recipe=recipe))


def arrow_doors(column, folder, name):
    """Yield ways in of an array of Arrow: memory, Parquet, Arrow files."""
    table = pa.table({"t": ["a"] * len(column)} | dict.fromkeys(ROLES, column))
    yield f"{name} in memory", in_memory(table)
    path = folder / f"{name}.parquet"
    try:
        pq.write_table(table, path)
        yield f"{name} in Parquet", in_file(path, "parquet")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        pass
    path = folder / f"{name}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    yield f"{name} in a file of Arrow", in_file(path, "arrow")


def csv_of(cells, path):
    """Return a way in of a CSV file of texts."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["t", *ROLES], *(["a", *[cell] * 5] for cell in cells)])
    return in_file(path, "csv")


def is_rounded(column):
    """Return whether pandas, perhaps 3, writes a column as float64, though it is one of float32."""
    of_categories = column.dtype == "category" and column.cat.categories.dtype == "float32"
    return of_categories or str(column.dtype) == "float[pyarrow]"


def doors(kind, folder):
    """Yield each way in of the values of a kind, with its name."""
    for i, column in enumerate(kind.arrow):
        yield from arrow_doors(column, folder, f"{column.type} {i}".replace("/", "-")[:80])
    for i, column in enumerate(kind.pandas):
        name = f"pandas {column.dtype} {i}".replace("/", "-")[:80]
        frame = pd.DataFrame({"t": ["a"] * len(column)} | dict.fromkeys(ROLES, column))
        yield name, in_memory(frame)
        if str(column.dtype) != "float[pyarrow]":  # pandas makes them float64
            cells = [column.array[j] for j in range(len(column))]
            yield f"{name}, dicts", in_memory(records(cells))
        try:
            array = pa.Array.from_pandas(column)
            if not str(array.type).startswith("dictionary<values=extension"):  # pyarrow's fault
                yield from arrow_doors(array, folder, name)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass  # objects that Arrow has no type for
        if isinstance(kind.names, list) and not is_rounded(column):
            frame.to_csv(folder / f"{name}.csv", index=False)
            yield f"{name}, its CSV", in_file(folder / f"{name}.csv", "csv")
    for i, column in enumerate(kind.polars):
        name = f"polars {column.dtype} {i}".replace("/", "-")[:80]
        frame = pl.DataFrame({"t": ["a"] * len(column)} | dict.fromkeys(ROLES, column))
        yield name, in_memory(frame)
        if column.dtype != pl.Float32:  # polars makes them float64
            yield f"{name}, dicts", in_memory(frame.to_dicts())
        if isinstance(kind.names, list) and column.dtype != pl.Object:
            frame.write_csv(folder / f"{name}.csv")
            yield f"{name}, its CSV", in_file(folder / f"{name}.csv", "csv")
    for i, cells in enumerate(kind.texts):
        yield f"CSV {i}", csv_of(cells, folder / f"{i}.csv")
    for i, cells in enumerate(kind.json):
        path = folder / f"{i}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in records([*cells, None])))
        yield f"JSON {i}", in_file(path, "jsonl")
    for i, cells in enumerate(kind.dicts):
        yield f"dicts {i}", in_memory(records([*cells, None]))


def records(cells):
    """Return dictionaries with a cell in the columns of all roles."""
    return [{"t": "a"} | dict.fromkeys(ROLES, cell) for cell in cells]


def expected(kind):
    """Return what rows of a kind are, what is said of it by the roles that refuse it, and edges."""
    rows, refused, edges = [{} for _ in kind.values], {}, {}
    for role, wanted in (("number", kind.numbers), ("date", kind.days)):
        if isinstance(wanted, str):
            refused[role] = wanted
            continue
        edges[role] = tuple(sorted({float(x) for x in wanted}))
        for row, value, x in zip(rows, kind.values, wanted, strict=True):
            row[f"{role}^{1 + edges[role].index(x)}"] = 1
            if role == "date":
                names = f"year={value.year}", f"month={value.month}", f"hour={value.hour}"
                row.update({f"date^{n}": 1 for n in (*names, f"weekday={value:%a}")})
    if isinstance(kind.names, str):
        return rows, refused | dict.fromkeys(("category", "text", "label"), kind.names), edges
    for row, name in zip(rows, kind.names, strict=True):
        row.update({f"category^{name}": 1, "label": name})
        words = "".join(c.lower() if c.isalnum() else " " for c in name).split()
        for run in (*words, *(f"{a} {b}" for a, b in pairwise(words))):
            row[f"text^{run}"] = row.get(f"text^{run}", 0) + 1
    return rows, refused, edges


@pytest.mark.parametrize("types", KINDS)
def test_a_value_has_one_name_through_every_door(types, tmp_path):
    kind, wrong, n_doors = KINDS[types], [], 0
    rows, refused, edges = expected(kind)
    taken = [role for role in ROLES if role not in refused]
    for name, door in doors(kind, tmp_path):
        n_doors += 1
        for role, said in refused.items():
            _, bad = read(door(recipe := recipe_of([role], edges)), recipe)
            if len(bad) < 3 or not all(said in reason for reason in bad[:3]):
                wrong.append((name, role, bad))
        if taken:
            found, _ = read(door(recipe := recipe_of(taken, edges)), recipe)
            if found[:3] != rows or any(found[3:]):
                wrong.append((name, [f for f, row in zip(found, rows, strict=False) if f != row]))
    assert not wrong
    assert n_doors > 2


def columns_of_arrow():
    """Return all columns of Arrow of four cells, and those of pandas that it has a type for."""
    found = {f"{kind.types} {i}": c for kind in KINDS.values() for i, c in enumerate(kind.arrow)}
    return {name: column for name, column in found.items() if len(column) == 4}


def frames():
    """Return tables in memory that hold a column of each type, beside a text and a label."""
    plain = {"words": ["a b c", "b c d", "c d e", "a d f"], "y": ["k", "l", "k", "l"]}
    yield pa.table(plain | columns_of_arrow())
    if pd is not None:
        found = {f"{k.types} {i}": c for k in KINDS.values() for i, c in enumerate(k.pandas)}
        odd = {
            "mixed": [object(), "a", 1, None],
            "thing": [object()] * 4,
            "set": [{1}, {2}, {3}, {4}],
        }
        yield pd.DataFrame(plain | {n: c for n, c in found.items() if len(c) == 4} | odd)
    if pl is not None:
        found = {f"{k.types} {i}": c for k in KINDS.values() for i, c in enumerate(k.polars)}
        yield pl.DataFrame(plain | found | {"thing": pl.Series([object()] * 4, dtype=pl.Object)})


@pytest.mark.parametrize("roles", [{"text": ("words",)}, {}], ids=["text alone", "guessed"])
def test_a_column_of_any_type_in_no_role_ends_nothing(roles):
    for table in frames():
        source = MemorySource(table, SourceOptions(table=TableOptions(label="y", **roles)))
        found, bad = read(source, source.recipe)
        assert len(found) == 4
        assert not bad


@pytest.mark.parametrize("role", ["unused", *ROLES])
@pytest.mark.parametrize("types", extremes())
def test_extremes_are_named_alike_or_refused(types, role, tmp_path):
    column = extremes()[types]
    table = pa.table({"t": ["a", "b"], "y": ["k", "l"], role: column})
    found = []
    for form in ("memory", "parquet", "arrow"):
        options = TableOptions(label="y", text=("t",)) if role == "unused" else TableOptions()
        recipe = None if role == "unused" else recipe_of([role], {})
        asked = SourceOptions(table=options, recipe=recipe)
        if form == "memory":
            source = MemorySource(table, asked)
        else:
            path = tmp_path / f"x.{form}"
            try:
                pq.write_table(table, path) if form == "parquet" else pa.feather.write_feather(
                    table, path
                )
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                continue
            source = open_table(path, form, asked)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns that are not used
            found.append(read(source, source.recipe))
    assert all(one == found[0] for one in found)
    if role == "unused":
        assert len(found[0][0]) == 2
    if role == "category" and not found[0][1]:
        names = [name.partition("^")[2] for row in found[0][0] for name in row]
        assert [canonical(name.encode()).decode() for name in names] == names


TEXTS = st.one_of(
    st.text("0123456789.eE+-:TZ ()[],", max_size=30),
    st.floats().map(str), st.datetimes().map(str), st.times().map(str), st.integers().map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.0{1,6}[0-9]{0,2})?(e[+-]?[0-9]{1,2})?", fullmatch=True),
    st.sampled_from(["true", "false", "trua", "fals", "True", "trues", "-0.0", "(1.0, 2.0]"]),
)  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_the_kernel_leaves_to_canonical_what_has_another_name(texts):
    recipe = recipe_of(["category"], {})
    source = MemorySource(records(texts), SourceOptions(recipe=recipe))
    names = [canonical(text.encode()).decode() for text in texts]
    assert [[*row] for row in read(source, recipe)[0]] == [
        [f"category^{name}"] if name else [] for name in names
    ]
    assert [canonical(name.encode()).decode() for name in names] == names


@pytest.mark.parametrize("text", ["\uff11\uff12", "\u0663", "\xa03", "1_0", "0x1"])
def test_texts_are_the_same_numbers_from_every_door(text):
    for cell in (text, text.encode()):
        with pytest.raises(ValueError):  # noqa: PT011
            number_of(cell)
    assert number_of(" 3.5\t") == number_of(b" 3.5\t") == 3.5


def test_periods_and_intervals_of_a_file_are_read_where_pandas_was_not_loaded(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"t": ["a"] * 3})
    frame["category"] = pandas.period_range("2024-01", periods=3, freq="M")
    frame["text"] = pandas.interval_range(0.5, 3.5)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "x.parquet")
    known = pandas_types()
    for kind in known:
        pa.unregister_extension_type(kind.extension_name)
    try:
        recipe = recipe_of(["category", "text"], {})
        found, _ = read(in_file(tmp_path / "x.parquet", "parquet")(recipe), recipe)
    finally:
        for kind in known:
            pa.register_extension_type(kind)
    assert [name for name in found[2] if "category" in name] == ["category^2024-03"]
    assert "text^2 5" in found[2]


def pandas_types():
    """Return the types that pandas has registered."""
    if pd is None:
        return []
    made = pd.Series(periods()), pd.Series(intervals())
    return [pa.Array.from_pandas(column).type for column in made]


@pytest.mark.parametrize("facts", ["", "{}", '{"freq": "bad"}', '{"closed": 3}', '{"freq": "M"}'])
@pytest.mark.parametrize("name", ["pandas.period", "pandas.interval", "arrow.uuid"])
def test_types_that_lie_are_refused_where_they_are_read(name, facts, tmp_path):
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": facts}
    path = tmp_path / "x.parquet"
    schema = pa.schema([pa.field("x", pa.string(), metadata=metadata), ("t", pa.string()),
                        ("y", pa.string())])  # fmt: skip
    known = next((kind for kind in pandas_types() if kind.extension_name == name), None)
    if known is not None:  # as where pandas was not loaded
        pa.unregister_extension_type(name)
    try:
        pq.write_table(pa.table([["a", "b"], ["a", "b"], ["k", "l"]], schema=schema), path)
        if name != "arrow.uuid":  # pyarrow refuses the file
            assert convert(path, tmp_path / "s.zarr", label="y", text="t").n_rows == 2
        with pytest.raises(DataError, match=r"is not what its type says|cannot be read"):
            convert(path, tmp_path / "t.zarr", label="y", category="x")
    finally:
        if known is not None:
            pa.register_extension_type(known)


def test_dates_are_names_and_days(tmp_path):
    path = tmp_path / "x.csv"
    days = [f"2024-{1 + i % 12:02}-{1 + i % 28:02} {i % 24:02}:30:00" for i in range(200)]
    path.write_text("when,y\n" + "".join(f"{day},k\n" for day in days))
    convert(path, tmp_path / "s.zarr", label="y", date="when")
    with Dataset.open(tmp_path / "s.zarr") as store:
        (column,) = store.root.recipe.columns
    assert {
        "when^year=2024",
        "when^month=12",
        "when^weekday=Sun",
        "when^hour=23",
        "when^0",
    } < features(tmp_path / "s.zarr")
    assert len(column.edges) == 15
    path.write_text("when,y\n2024-02-30,k\n")
    with pytest.raises(DataError, match="'2024-02-30' is no date such as 2024-01-31"):
        convert(path, tmp_path / "t.zarr", label="y", date="when")


def written_table():
    """Return the table of types as it stands in the docs."""
    lines = ["| type | its name | as a number | as a date |", "|---|---|---|---|"]
    for kind in KINDS.values():
        numbers = "refused" if isinstance(kind.numbers, str) else "its value"
        numbers = "seconds" if kind.types == "durations" else numbers
        numbers = "1, 0" if kind.types == "truth values" else numbers
        dates = "refused" if isinstance(kind.days, str) else "its parts"
        lines.append(f"| {kind.types} | {kind.called} | {numbers} | {dates} |")
    return "\n".join(lines)


def test_the_docs_have_the_table_of_types():
    assert written_table() in PAGE.read_text("utf-8")

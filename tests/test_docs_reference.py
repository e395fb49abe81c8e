"""The reference pages say what the program does: exit codes and what --json prints."""

import contextlib
import inspect
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import streammach
from streammach.cli.main import COMMANDS, find_frontends, main
from streammach.demo import DemoFigures
from streammach.system import errors

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
LISTED = "evaluate, lists of labels"


def rows_of(text):
    """The cells of the tables of a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not set(row[0]) <= set("-") or row[0] == ""]


def sections():
    """The keys that the page of JSON documents, by section: what each item has before a colon."""
    parts = re.split(r"^## (.+)$", (REFERENCE / "json.md").read_text(), flags=re.M)
    found = {
        name: [key for item in re.split(r"^- ", text, flags=re.M)[1:]
               for key in re.findall(r"`([^`]+)`", item.partition(":")[0])]
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }  # fmt: skip
    return {**found, "merge": found["train"]}


def test_every_error_stands_in_the_table_of_exit_codes():
    table = {row[3].strip("`"): row for row in rows_of((REFERENCE / "exit-codes.md").read_text())}
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)
             if issubclass(kind, errors.StreammachError)]  # fmt: skip
    assert {kind.__name__ for kind in kinds} == table.keys() - {"exception in Python", ""}
    for kind in kinds:
        code, name, meaning, _, also = table[kind.__name__]
        assert (int(code), name) == (kind.exit_code, f"`{kind.kind}`")
        bases = {base.__name__ for base in kind.__mro__}
        assert not also or also.strip("`") in bases
        if kind is not errors.StreammachError:
            assert f"{meaning}." == (kind.__doc__ or "").splitlines()[0]


def test_every_public_name_stands_in_the_reference():
    page = (REFERENCE / "python.md").read_text()
    names = [*re.findall(r":: streammach\.(\w+)$", page, flags=re.M), "callbacks", "distributed"]
    assert sorted({*names} - {"errors"}) == sorted(streammach.__all__)


def test_every_command_has_its_json():
    names = {name.split(",")[0] for name in sections()} | {"fit"}  # annif prints what Annif does
    assert names == {*COMMANDS, *find_frontends().names, "errors"} - {"annif"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each command prints with --json, by section of the page."""
    folder = tmp_path_factory.mktemp("json")
    for name, second in (("rows.vw", ""), ("lists.vw", ",c1")):
        lines = [f"c{i % 7}{second} |w w{i % 7} x{i % 11}\n" for i in range(300)]
        (folder / name).write_text("".join(lines))
    wide = [f"c{i % 7} |w w{i % 7} x{i % 83}\n" for i in range(300)]
    (folder / "wide.vw").write_text("".join(wide))
    (folder / "new.vw").write_text("new |w w1 x9\n")
    (folder / "changes.tsv").write_text("c1\tc2\n")
    small = "--buckets 4 --repetitions 3 --epochs 1 --memory 1GB"
    fixed = f"{small} --learning-rate 0.5 --transform binary"  # of others nothing is searched
    jobs = {
        "explore": "explore rows.vw",
        "convert": "convert rows.vw rows.zarr",
        "": "convert lists.vw lists.zarr",
        "verify": "verify rows.zarr",
        "plan": "plan rows.zarr",
        "train": f"train rows.zarr --out run {small}",
        "wide": "convert wide.vw wide.zarr",
        "train, a part": f"train wide.zarr --out part {small} --part 1/1",
        "merge": "merge merged part",
        "lists": f"train lists.zarr --out lists {fixed} --label-loss logistic",
        "evaluate": "evaluate run rows.zarr --estimators --by w",
        LISTED: "evaluate lists lists.zarr",
        "predict": "predict run rows.vw --out best.tsv",
        "shrink": "shrink run --out small --on rows.zarr",
        "add": "add run new.vw --out more --on rows.zarr",
        "labels": "labels run --rename changes.tsv --out labels",
        "info, a store": "info rows.zarr",
        "info, a run": "info run",
        "info, a run that is not finished": "info begun",
        "info, a part": "info part",
        "info, a model": "info small",
        "export": "export run --out model.npz",
        "report": "report run --on rows.zarr",
        "suspects": f"suspects rows.zarr --out found.csv --folds 2 {fixed}",
        "serve": "serve run --port 0",
        "compile": "compile run",
        "errors": "info nothing",
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        found = {}
        for name, command in jobs.items():
            if command == "info begun":
                shutil.copytree("run", "begun")
                Path("begun/result.json").unlink()
            found[name] = _printed(command)
        return found


def _printed(command):
    if command.startswith("serve"):  # prints when it is ready, and goes on until it is stopped
        given = [sys.executable, "-m", "streammach", *command.split(), "--json"]
        with subprocess.Popen(given, stdout=subprocess.PIPE, text=True) as service:
            document = json.loads(service.stdout.readline())
            service.terminate()
        assert service.returncode == 0
        return document
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main([*command.split(), "--json"])
    return json.loads(out.getvalue())


def values_at(document, path):
    """All values of a dotted path; those of every object of a list."""
    found = [document]
    for key in path.split("."):
        found = [one for many in found for one in (many if isinstance(many, list) else [many])]
        found = [one[key] for one in found]  # a KeyError is a key that is not printed
    return found


@pytest.mark.parametrize("section", [name for name in sections() if name != "demo"])
def test_json_has_the_keys_of_the_page(section, printed):
    document, keys = printed[section], sections()[section]
    assert {key for key in keys if "." not in key} == document.keys()
    for key in keys:
        assert values_at(document, key), key


def test_the_demo_has_the_keys_of_the_page():
    assert {*sections()["demo"]} == {*DemoFigures.__annotations__}

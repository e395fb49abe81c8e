"""Stores, models and runs that older versions wrote: every later version must read them."""

import json
import shutil

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.formats import MODEL_FORMATS, STORE_FORMATS
from tests.golden import make

FOLDERS = sorted(make.HERE.glob("formats-*"))
STORES = [path for folder in FOLDERS for name in ("store", "lists")
          if (path := folder / name).exists()]  # fmt: skip
MODELS = sorted(path.parent for path in make.HERE.glob("formats-*/*/model.json"))


def expected(folder):
    return json.loads((folder / "expected.json").read_text())


def named(path):
    return str(path.relative_to(make.HERE))


def test_all_formats_that_are_read_are_here():
    roots = [json.loads((store / "zarr.json").read_text()) for store in STORES]
    assert {root["attributes"]["streammach"]["format"] for root in roots} == set(STORE_FORMATS)
    documents = [json.loads((path / "model.json").read_text()) for path in MODELS]
    assert {document["format"] for document in documents} == set(MODEL_FORMATS)


@pytest.mark.parametrize("path", STORES, ids=named)
def test_a_store_of_an_older_version_holds_what_it_held(path):
    assert make.content(path) == expected(path.parent)[path.name]
    with sm.Dataset.open(path) as store:
        assert store.verify(deep=True) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_store_of_an_older_version_holds_the_rows_of_its_text(folder):
    """Not only what was found in it once: the text itself."""
    found = sorted([*row[:2], len(row[2])] for row in expected(folder)["store"]["rows"])
    wanted = []
    for line in (make.HERE / "rows.vw").read_text().splitlines():
        head, _, rest = line.partition("|")
        words = head.split()
        names = {word for word in rest.split() if word not in ("w", "|x")}
        wanted.append([words[0], 2.0 if words[1] == "2" else 1.0, len(names)])
    assert found == sorted(wanted)


@pytest.mark.parametrize("path", MODELS, ids=named)
def test_a_model_of_an_older_version_answers_as_it_did(path):
    wanted, found = expected(path.parent)[path.name], make.answers(path)
    assert np.allclose(found["scores"], wanted["scores"], atol=2e-5)
    apart = np.diff(wanted["scores"], axis=1) < -1e-4  # equal scores may change their places
    clear = np.hstack([apart, np.ones((len(apart), 1), bool)])
    clear[:, 1:] &= apart
    clear[:, -1] = apart[:, -1]
    assert (np.array(found["labels"]) == np.array(wanted["labels"]))[clear].all()
    assert clear.mean() > 0.5


def test_an_interrupted_run_of_an_older_version_goes_on(tmp_path):
    folder = make.HERE / "formats-3"
    found = make.resumed(folder, tmp_path / "run").arrays()
    wanted = sm.Model.load(folder / "model").arrays()
    assert sorted(found) == sorted(wanted)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_commands_take_what_older_versions_wrote(folder, tmp_path, capsys):
    store, model = tmp_path / "store", tmp_path / "model"
    shutil.copytree(folder / "store", store)
    shutil.copytree(folder / "model", model)
    for command in (
        ["info", store], ["info", model], ["verify", "--deep", store],
        ["evaluate", model, store, "--device", "cpu"],
        ["predict", model, make.HERE / "rows.vw", "--device", "cpu"],
        ["convert", make.HERE / "rows.vw", tmp_path / "more", "--like", store],
    ):  # fmt: skip
        assert main([str(word) for word in command]) == 0, command
    assert capsys.readouterr().out

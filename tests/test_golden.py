"""Stores, models and runs of format 1, as they were written once: each release must read them."""

import json
import shutil

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.options.types import MODEL_FORMAT, STORE_FORMAT
from tests.golden import make
from tests.golden.make import FOLDER

STORES = ["store", "lists"]
MODELS = sorted(path.parent.name for path in FOLDER.glob("*/model.json"))
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def test_all_kinds_are_of_the_format_that_is_written():
    roots = [json.loads((FOLDER / name / "zarr.json").read_text()) for name in STORES]
    assert {root["attributes"]["streammach"]["format"] for root in roots} == {STORE_FORMAT}
    documents = [json.loads((FOLDER / name / "model.json").read_text()) for name in MODELS]
    assert {document["format"] for document in documents} == {MODEL_FORMAT}
    assert {*MODELS, *STORES} == EXPECTED.keys()


@pytest.mark.parametrize("name", STORES)
def test_a_store_holds_what_it_held(name):
    assert make.content(FOLDER / name) == EXPECTED[name]
    with sm.Dataset.open(FOLDER / name) as store:
        assert store.verify(deep=True) == []


def test_a_store_holds_the_rows_of_its_text():
    """Not only what was found in it once: the text itself."""
    found = sorted([*row[:2], len(row[2])] for row in EXPECTED["store"]["rows"])
    wanted = []
    for line in (make.HERE / "rows.vw").read_text().splitlines():
        head, _, rest = line.partition("|")
        words = head.split()
        names = {word for word in rest.split() if word not in ("w", "|x")}
        wanted.append([words[0], 2.0 if words[1] == "2" else 1.0, len(names)])
    assert found == sorted(wanted)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_as_it_did(name):
    wanted, found = EXPECTED[name], make.answers(FOLDER / name)
    assert np.allclose(found["scores"], wanted["scores"], atol=2e-5)
    apart = np.diff(wanted["scores"], axis=1) < -1e-4  # equal scores may change their places
    clear = np.hstack([apart, np.ones((len(apart), 1), bool)])
    clear[:, 1:] &= apart
    clear[:, -1] = apart[:, -1]
    assert (np.array(found["labels"]) == np.array(wanted["labels"]))[clear].all()
    assert clear.mean() > 0.5


def test_an_interrupted_run_goes_on(tmp_path):
    found = make.resumed(FOLDER, tmp_path / "run").arrays()
    wanted = sm.Model.load(FOLDER / "model").arrays()
    assert sorted(found) == sorted(wanted)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_commands_take_what_was_written(tmp_path, capsys):
    store, model = tmp_path / "store", tmp_path / "model"
    shutil.copytree(FOLDER / "store", store)
    shutil.copytree(FOLDER / "model", model)
    for command in (
        ["info", store], ["info", model], ["verify", "--deep", store],
        ["evaluate", model, store, "--device", "cpu"],
        ["predict", model, make.HERE / "rows.vw", "--device", "cpu"],
        ["convert", make.HERE / "rows.vw", tmp_path / "more", "--like", store],
    ):  # fmt: skip
        assert main([str(word) for word in command]) == 0, command
    assert capsys.readouterr().out

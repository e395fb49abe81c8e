"""A service answers what a program gets that opens the model itself."""

import json

import msgspec
import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.frontends.serve.options import ServeOptions
from streammach.frontends.serve.service import Service
from tests.frontends.serve.conftest import Client

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

ROWS = {
    "words": [
        {"features": {"w^own3_1": 1, "w^pair1": 1, "x^noise5": 3, "x^nothing": 2}},
        {"features": ["w^own7_0", "w^pair3", "w^own7_0", "unheard", "unheard"]},
        {"features": {}},
        {"features": {"color": "red", "w^own1_1": 2.5}},
    ],
    "table": [
        {"title": "a map of the sea", "publisher": "Mill", "pages": 120, "cover": "hard"},
        {"title": None, "pages": "17"},
        {},
        "salt and dinner",
    ],
    "text": ["love story", {"title": "the oven"}, ""],
    "matrix": [
        {"features": [0.5, -1.0, 3.0, 0.0, 0.25]},
        {"features": {"3": 1.5, "0": -1}},
        {"features": [0, 0, 0, 0, 0]},
    ],
}
# By hand: "a", "a map", "the sea", the field "cover"; "and", "salt and", "and dinner"; "the oven".
UNKNOWN = {"words": [1, 1, 0, 1], "table": [4, 0, 0, 3], "text": [0, 1, 0], "matrix": [0, 0, 0]}


def as_given(name, row):
    """A row of a request as a program gives it."""
    if name in ("words", "matrix"):
        found = row["features"]
        if isinstance(found, dict):
            return found
        if name == "matrix":
            return {str(i): x for i, x in enumerate(found)}
        return {feature: found.count(feature) for feature in found}
    columns = ("title",) if name == "text" else ("title", "publisher", "pages")
    row = {"title": row} if isinstance(row, str) else row
    return {column: row.get(column) for column in columns}


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_answers_are_those_of_the_predictor(name, probabilities, client, predictor):
    body = {"rows": ROWS[name], "k": 3, "probabilities": probabilities}
    answer = client.post(f"/models/{name}/predict", json=body)
    assert answer.status_code == 200, answer.text
    rows = [as_given(name, row) for row in ROWS[name]]
    labels, scores = predictor(name).topk(rows, 3, probabilities=probabilities)
    found = answer.json()
    assert found["model"] == name
    assert found["version"] == answer.headers["x-model-version"]
    assert [row["labels"] for row in found["predictions"]] == labels.tolist()
    mine = np.array([row["scores"] for row in found["predictions"]], np.float32)
    assert np.array_equal(mine, scores)
    if probabilities:
        assert ((mine >= 0) & (mine <= 1)).all()


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_answers_say_why(name, probabilities, client, predictor):
    body = {"rows": ROWS[name], "k": 2, "probabilities": probabilities, "explain": 3}
    answer = client.post(f"/models/{name}/predict", json=body)
    assert answer.status_code == 200, answer.text
    found = [row["explanations"] for row in answer.json()["predictions"]]
    rows = [as_given(name, row) for row in ROWS[name]]
    assert found == json.loads(msgspec.json.encode(predictor(name).explain(rows, 2, 3)))
    places = [c["places"] for row in found for one in row for c in one["contributions"]
              if c.get("places")]  # fmt: skip
    assert bool(places) == (name in ("table", "text"))
    without = client.post(f"/models/{name}/predict", json=body | {"explain": 0}).json()
    assert all("explanations" not in row for row in without["predictions"])


def test_what_takes_long_to_explain_is_refused(client):
    row = {"features": [f"w^own{i}_{j}" for i in range(20) for j in range(9)] + ["w^pair1"] * 9}
    body = {"rows": [row] * 1000, "k": 20, "explain": 1}
    refused = client.post("/models/words/predict", json=body)
    assert (refused.status_code, refused.json()["limit"]) == (413, "explained")


@pytest.mark.parametrize("name", ROWS)
def test_only_some_labels_are_answered(name, client, predictor):
    opened, rows = predictor(name), [as_given(name, row) for row in ROWS[name]]
    known = [opened.model.labels[i] for i in range(3)]
    own = [known[: i % 3] for i in range(len(rows))]
    for limits in (
        {"only": known[:2]}, {"never": known[:1]}, {"only": own}, {"never": own, "k": 2},
        {"threshold": 0.4}, {"threshold": 0.2, "only": known[1:], "k": 1},
    ):  # fmt: skip
        answer = client.post(f"/models/{name}/predict", json={"rows": ROWS[name], **limits})
        assert answer.status_code == 200, answer.text
        found = [[*zip(row["labels"], row["scores"], strict=True)]
                 for row in answer.json()["predictions"]]  # fmt: skip
        wanted = opened.topk(rows, **limits)
        pairs = [
            [*zip(*row, strict=True)] for row in zip(*map(np.ndarray.tolist, wanted), strict=True)
        ]
        assert found == [[pair for pair in row if pair[0] != ""] for row in pairs], limits


@pytest.mark.parametrize(
    "limits", [{"only": ["nothing"]}, {"never": [["a"], "b"]}, {"only": [[]] * 9}, {"threshold": 2}]
)
def test_limits_that_cannot_be_are_refused(limits, client):
    answer = client.post("/models/words/predict", json={"rows": ROWS["words"], **limits})
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("name", ROWS)
def test_unknown_features_are_counted_and_no_error(name, client):
    found = client.post(f"/models/{name}/predict", json={"rows": ROWS[name]}).json()
    assert [row["unknown"] for row in found["predictions"]] == UNKNOWN[name]


def test_rows_together_get_what_each_gets_alone(client):
    rows = ROWS["words"] * 30
    together = client.post("/models/words/predict", json={"rows": rows}).json()["predictions"]
    alone = [
        client.post("/models/words/predict", json={"rows": [row], "k": 5}).json()["predictions"][0]
        for row in ROWS["words"]
    ]
    assert together == alone * 30


def test_there_are_five_labels_if_nothing_is_said_and_all_if_there_are_fewer(client):
    one = client.post("/models/words/predict", json={"rows": ROWS["words"][:1]}).json()
    assert len(one["predictions"][0]["labels"]) == 5
    all_of_it = client.post("/models/table/predict", json={"rows": [{}], "k": 200}).json()
    assert sorted(all_of_it["predictions"][0]["labels"]) == ["atlas", "cookbook", "novel"]


def test_no_rows_have_no_predictions(client):
    assert client.post("/models/text/predict", json={"rows": []}).json()["predictions"] == []


@pytest.mark.parametrize(
    ("name", "row", "status"),
    [
        ("matrix", {"features": {"Age": 1.0, "x": 2}}, 422),
        ("matrix", {"features": ["x", "y"]}, 422),
        ("matrix", {"features": {"0": 1.0, "x": 2}}, 200),
        ("matrix", {"features": {"0": "a"}}, 200),  # a column that is known, a cell that is not
        ("matrix", {"features": {}}, 200),
        ("table", {"Title": "love", "id": 3}, 422),
        ("table", {"title": "love", "id": 3}, 200),
        ("text", {"Title": "love"}, 422),
        ("words", {"features": {"nothing known": 1}}, 200),  # words that are new are no columns
    ],
)
def test_a_row_none_of_whose_columns_is_known_is_refused(name, row, status, client):
    answer = client.post(f"/models/{name}/predict", json={"rows": [row]})
    assert answer.status_code == status, answer.text
    assert status == 200 or "row 0 has no column of the model, but" in answer.text


CELLS = {
    "text": "red shoe", "category": "x", "number": 3.5, "date": "2024-02-29", "names": ["a", "b"],
    "pairs": {"a": 2.5}, "vector": [0.5, -1.0, 2.0],
}  # fmt: skip


@pytest.mark.parametrize("role", CELLS)
def test_models_of_every_role_are_served(role, tmp_path):
    rows = [{"x": CELLS[role], "y": "ab"[i % 2]} for i in range(60)]
    option = {"pairs": "names", "vector": "number"}.get(role, role)
    model = sm.train(rows, "y", epochs=1, out=tmp_path / "run", **{option: "x"}).model
    assert [column.role for column in model.recipe.columns] == [role]
    service = Service({"run": tmp_path / "run"}, ServeOptions(threads=1))
    try:
        answer = Client(service).post("/predict", json={"rows": [{"x": CELLS[role]}], "k": 2})
        labels, scores = model.predict_topk([{"x": CELLS[role]}], 2)
        (found,) = answer.json()["predictions"]
        assert (found["labels"], found["scores"]) == (labels[0].tolist(), scores[0].tolist())
    finally:
        service.close()


def test_one_model_needs_no_name(runs, client):
    service = Service({"text": runs["text"]}, ServeOptions(threads=1))
    try:
        only = Client(service)
        body = {"rows": ["love story"]}
        found = only.post("/predict", json=body)
        assert found.status_code == 200
        assert found.json() == client.post("/models/text/predict", json=body).json()
    finally:
        service.close()
    several = client.post("/predict", json=body)
    assert several.status_code == 404
    assert "/models/NAME/predict, of words, table, text, matrix" in several.json()["error"]


def test_labels_that_were_changed_are_answered_with_their_titles(runs, client, tmp_path):
    (tmp_path / "c.tsv").write_text("novel\tatlas\n")
    (tmp_path / "v.tsv").write_text("atlas\tbooks of maps and stories\n")
    files = ["--rename", tmp_path / "c.tsv", "--vocabulary", tmp_path / "v.tsv"]
    asked = ["labels", runs["text"], *files, "--out", tmp_path / "model"]
    assert main([str(word) for word in asked]) == 0
    service = Service({"text": tmp_path / "model"}, ServeOptions(threads=1))
    try:
        own = Client(service)
        body = {"rows": ["map of the sea", "salt"], "k": 3}
        found = own.post("/predict", json=body).json()["predictions"]
        before = client.post("/models/text/predict", json=body).json()["predictions"]
        titles = {"atlas": "books of maps and stories", "cookbook": ""}
        for row, whole in zip(found, before, strict=True):
            assert sorted(row["labels"]) == ["atlas", "cookbook"]
            assert row["titles"] == [titles[label] for label in row["labels"]]
            first = "cookbook" if whole["labels"][0] == "cookbook" else "atlas"
            assert (row["labels"][0], row["scores"][0]) == (first, whole["scores"][0])
        assert own.get("/models").json()["models"][0]["classes"] == 2
    finally:
        service.close()


def test_any_type_of_content_is_read_as_json(client):
    body = json.dumps({"rows": ["love story"]})
    kind = {"content-type": "application/x-www-form-urlencoded"}  # what curl says
    assert client.post("/models/text/predict", content=body, headers=kind).status_code == 200

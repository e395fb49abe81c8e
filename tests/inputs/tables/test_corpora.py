"""Corpora for subject indexing, as other programs have them."""

import gzip
import json

import numpy as np
import pytest

import streammach as sm
from streammach.inputs.source_options import Layout, SourceOptions, TableOptions
from streammach.inputs.sources import open_source
from streammach.system.errors import StreammachError, UsageError
from tests.builders import fit
from tests.inputs.test_lists import lists_by_name

TEXTS = ['the "quoted title of a book', "maps, and seas", "salt\tno", "nothing"]
URIS = [["http://e.org/a", "http://e.org/b"], ["http://e.org/b"], [], []]
LINES = [f"{TEXTS[0]}\t<{URIS[0][0]}>  <{URIS[0][1]}>", f"{TEXTS[1]}\t<{URIS[1][0]}>", "nothing\t"]


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.txt"])
def test_a_corpus_of_annif_is_told_by_its_first_line(name, tmp_path):
    text = ("\n".join(LINES) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    done = sm.convert(tmp_path / name, tmp_path / "a.zarr")
    assert done.notes == (f"{name}: label subjects; text text",)
    rows = lists_by_name(tmp_path / "a.zarr")
    found = [sorted(labels) for labels, *_ in (rows[i] for i in range(3))]
    assert found == [["<http://e.org/a>", "<http://e.org/b>"], ["<http://e.org/b>"], []]
    with sm.Dataset.open(tmp_path / "a.zarr") as data:
        assert data.listed
        assert b"text^quoted" in data.features.raws(np.arange(len(data.features)))
    again = tmp_path / "b.zarr"
    sm.convert(tmp_path / name, again, like=tmp_path / "a.zarr")
    assert lists_by_name(again) == rows


def test_a_corpus_of_pecos_is_told_by_its_first_line(tmp_path):
    path = tmp_path / "trn.txt"
    path.write_text('3,1\t"salt, and bread\n1\tmaps, 2 seas\n0,2\tlaw\n')
    done = sm.convert(path, tmp_path / "a.zarr")
    assert done.notes == ("trn.txt: label labels; text text",)
    rows = lists_by_name(tmp_path / "a.zarr")
    assert [sorted(rows[i][0]) for i in range(3)] == [["1", "3"], ["1"], ["0", "2"]]
    for line in ("3\t0.5", "3\t1,2", "a\tb c", "3\tx y\tz"):  # numbers, a header, three columns
        path.write_text(f"{line}\n{line}\n")
        assert open_source(path, SourceOptions(table=TableOptions())).recipe.label != "labels"


def test_a_model_of_texts_predicts_lines_of_text(tmp_path):
    lines = [f"word{i % 5}, and more{i % 3}\t<http://e.org/{i % 5}>" for i in range(200)]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    sm.convert(tmp_path / "a.tsv", tmp_path / "a.zarr")
    with sm.Dataset.open(tmp_path / "a.zarr") as data:
        plan = sm.plan(data, memory="1GB", n_buckets=4, n_repetitions=2)
        fit(data, tmp_path / "run", plan, epochs=1)
    texts = [line.split("\t")[0] for line in lines[:7]]
    said = {}
    for name, rows in {
        "bare.txt": texts, "one.txt": ['word0 "of all"', *texts[1:]], "corpus.tsv": lines[:7],
        "header.csv": ["text", *(f'"{text}"' for text in texts)],
    }.items():  # fmt: skip
        (tmp_path / name).write_text("\n".join(rows) + "\n")
        sm.predict(tmp_path / "run", tmp_path / name, tmp_path / "out.tsv", force=True)
        said[name] = (tmp_path / "out.tsv").read_text().splitlines()
        assert len(said[name]) == 8
    assert said["bare.txt"] == said["corpus.tsv"] == said["header.csv"]
    assert said["one.txt"][2:] == said["bare.txt"][2:]


def test_raw_text_of_the_xmc_repository_needs_no_options(tmp_path):
    lines = [
        json.dumps({"uid": f"u{i}", "title": f"title of {i}", "content": f"c d e{i % 2}",
                    "target_ind": [i % 3, 3], "target_rel": [1.0, 0.5]})
        for i in range(60)
    ]  # fmt: skip
    (tmp_path / "trn.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (note,) = sm.convert(tmp_path / "trn.json.gz", tmp_path / "a.zarr").notes
    assert note.endswith("label target_ind; text title, content; not used uid, target_rel")
    assert sorted(lists_by_name(tmp_path / "a.zarr")[4][0]) == ["1", "3"]


@pytest.mark.parametrize(
    "options",
    [
        SourceOptions(layout=Layout(header=False)),
        SourceOptions(table=TableOptions(label="2", text=("1",))),
        SourceOptions(table=TableOptions(text=("x",))),
    ],
)
def test_what_a_user_says_of_a_table_holds(options, tmp_path):
    (tmp_path / "a.tsv").write_text("x y\t<http://e.org/a>\nz w\t<http://e.org/b>\n")
    try:
        recipe = open_source(tmp_path / "a.tsv", options).recipe
    except StreammachError:
        return
    assert recipe.label != "subjects"


@pytest.fixture
def documents(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for i in range(40):
        (folder / f"d{i:02}.txt").write_text(f"word{i % 5}\ntopic ä\n" * (1 + i), "utf-8")
        if i % 4:
            name, line = [("tsv", "{}\ttitle"), ("key", "{}")][i % 2]
            lines = [line.format(f"subject {j}") for j in (i % 5, 7)]
            (folder / f"d{i:02}.{name}").write_text("\n".join(lines) + "\n\n")
    (folder / "notes.md").write_text("no text of the corpus")
    return folder


def test_a_folder_of_documents_is_a_row_for_each_text(documents, tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.inputs.tables.document_folder.PIECE_BYTES", 300)
    done = sm.convert(documents, tmp_path / "a.zarr")
    assert done.notes == ("docs: label subjects; text text",)
    rows = lists_by_name(tmp_path / "a.zarr")
    for i in range(40):
        wanted = [f"subject {i % 5}", "subject 7"] if i % 4 else []
        assert sorted(rows[i][0]) == sorted(wanted)
    table = [
        {"text": (documents / f"d{i:02}.txt").read_text("utf-8"), "subjects": sorted(rows[i][0])}
        for i in range(40)
    ]
    sm.convert(table, tmp_path / "b.zarr", label="subjects", text="text", multilabel="on")
    assert lists_by_name(tmp_path / "b.zarr") == rows
    with sm.Dataset.open(tmp_path / "a.zarr") as data:
        numbers, tags = data.origins(0, 40)
        assert [tag.decode() for tag in tags.raws()] == [f"d{i:02}" for i in numbers.tolist()]
    sm.convert(documents, tmp_path / "c.zarr", like=tmp_path / "a.zarr", format="documents")
    assert lists_by_name(tmp_path / "c.zarr") == rows


def test_documents_that_are_no_text_are_bad_rows(documents, tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.inputs.tables.document_folder.MAX_CELL", 100)
    (documents / "d00.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(StreammachError, match=r"d00\.txt"):
        sm.convert(documents, tmp_path / "a.zarr")
    done = sm.convert(documents, tmp_path / "a.zarr", on_bad_row="skip")
    long = sum((documents / f"d{i:02}.txt").stat().st_size > 100 for i in range(40))
    assert sum(done.skipped.values()) == 1 + long


def test_words_become_stems_in_every_door(tmp_path):
    texts = ["Running runners, RUN!", "talossa talosta", "running_dogs dog", "Ærlige dogs"] * 3
    stems = [{"run", "runner"}, {"talossa", "talosta"}, {"run", "dog"}, {"ærlig", "dog"}]
    labels = ["a", "b", "c", "d"] * 3
    lines = [f"{label}\t{text}" for label, text in zip(labels, texts, strict=True)]
    (tmp_path / "a.tsv").write_text("label\ttext\n" + "\n".join(lines) + "\n", "utf-8")
    how = {"label": "label", "text": "text", "ngrams": 1, "language": "english"}
    sm.convert(tmp_path / "a.tsv", tmp_path / "a.zarr", **how)
    with sm.Dataset.open(tmp_path / "a.zarr") as data:
        names = {raw.decode() for raw in data.features.raws(np.arange(len(data.features)))}
    assert {f"text^{stem}" for own in stems[:3] for stem in own} | {"text^dog"} <= names
    assert names.isdisjoint({"text^running", "text^dogs", "text^runners"})
    model = sm.train(texts, labels, ngrams=1, language="english", epochs=1).model
    assert model.recipe.language == "english"
    assert (
        model.predict_topk(["DOGS running"])[1].tolist()
        == model.predict_topk(["dog run"])[1].tolist()
    )
    model.save(tmp_path / "model")
    assert sm.Model.load(tmp_path / "model").recipe == model.recipe
    with pytest.raises(UsageError, match=r"'klingon' is not one of arabic, .*: language"):
        sm.convert(tmp_path / "a.tsv", tmp_path / "b.zarr", **{**how, "language": "klingon"})

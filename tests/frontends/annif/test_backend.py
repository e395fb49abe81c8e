"""Annif's own commands train streammach, ask it and measure it; what it says is one line."""

import json
import re
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

import streammach as sm
from streammach.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore")  # of Annif and what it needs

COMMAND = "streammach.frontends.annif.command:annif"
URI = "http://example.org/"
SUBJECTS = {  # words of documents by the id of their subject, which the first one names
    "ship": "ships sails harbour captain", "tree": "trees forest leaves roots",
    "oven": "ovens bread baker flour", "star": "stars night planet comet",
}  # fmt: skip
PROJECTS = """
[ours]
name=streammach
language=en
backend=streammach
vocab=things
memory=1GB
allow_learn=true

[plain]
name=without names and one subject less
language=xx
backend=streammach
vocab=things(en,exclude={uri}star)
memory=1GB
names=no
"""


@pytest.fixture(autouse=True)
def entry_point(monkeypatch):
    """The command, whatever the installed metadata say."""
    point = EntryPoint("annif", COMMAND, "streammach.commands")
    monkeypatch.setattr("streammach.cli.main.find_frontends", lambda: EntryPoints([point]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with projects, their vocabulary, and rows to train on and to measure with."""
    pytest.importorskip("annif")
    for name in ("ANNIF_DATADIR", "ANNIF_PROJECTS", "ANNIF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLASK_RUN_FROM_CLI", "true")  # Annif sets it and leaves it
    monkeypatch.chdir(tmp_path)
    Path("projects.cfg").write_text(PROJECTS.replace("{uri}", URI))
    write_vocabulary(SUBJECTS)
    Path("train.tsv").write_text("".join(documents(200)))
    Path("dev.tsv").write_text("".join(documents(40)))
    assert annif("load-vocab", "things", "things.tsv", "-L", "en") == 0
    return tmp_path


def write_vocabulary(subjects):
    """The first word of each subject is its name."""
    lines = (f"<{URI}{one}>\t{words.split()[0]}\n" for one, words in subjects.items())
    Path("things.tsv").write_text("".join(lines))


def documents(n):
    """Lines of a corpus: a text, a tab, the URIs of its subjects."""
    kinds = list(SUBJECTS)
    for i in range(n):
        own = {kinds[i % 4], kinds[i // 4 % 4]}
        words = [word for kind in sorted(own) for word in SUBJECTS[kind].split()]
        text = " ".join(words[(i * 7 + j) % len(words)] for j in range(5))
        yield f"{text}\t{' '.join(f'<{URI}{kind}>' for kind in sorted(own))}\n"


def annif(*arguments):
    return main(["annif", *map(str, arguments)])


def model_of(project):
    return Path("data/projects", project, "streammach-model")


def test_a_project_is_trained_asked_and_measured(folder, capsys):
    texts = ["the captain sails at night", "leaves of a forest", "unheard of"]
    for i, text in enumerate(texts):
        Path(f"{i}.txt").write_text(text)
    assert annif("train", "ours", "train.tsv") == 0
    capsys.readouterr()
    assert annif("suggest", "ours", "0.txt", "1.txt", "2.txt", "--limit", 3) == 0
    shown = capsys.readouterr().out.split("Suggestions for ")[1:]
    labels, scores = sm.Model.load(model_of("ours")).predict_topk(
        [{"text": text} for text in texts], 3, probabilities=True
    )
    for said, uris, values in zip(shown, labels, scores, strict=True):
        found = re.findall(r"<(\S+)>\t\w+\t(\S+)", said)
        wanted = [(u, f"{v:.4f}") for u, v in zip(uris, values, strict=True) if v > 0]
        assert sorted(found) == sorted(wanted)
    assert labels[0][0] == f"{URI}ship"
    assert annif("eval", "ours", "dev.tsv", "--metrics-file", "found.json") == 0
    assert json.loads(Path("found.json").read_text())["F1@5"] > 0.5
    assert json.loads(Path("found.json").read_text())["NDCG"] > 0.9


def test_a_project_is_trained_again(folder, capsys):
    assert annif("train", "ours", "train.tsv", "-j", 1) == 0
    model = model_of("ours") / "model.safetensors"
    first = model.read_bytes()
    assert annif("train", "ours", "--cached", "-j", 1) == 0  # of the rows that were kept
    assert model.read_bytes() == first
    assert (
        annif("train", "ours", "train.tsv", "--docs-limit", 120, "-b", "streammach.ngrams=1") == 0
    )
    assert model.read_bytes() != first
    before = model.read_bytes()
    assert annif("train", "ours", "train.tsv", "-b", "streammach.memory=1MB") == 1
    assert "Operation failed backend 'streammach'" in capsys.readouterr().err
    assert model.read_bytes() == before
    assert sorted(path.name for path in model_of("ours").parent.iterdir()) == [
        "streammach-model", "streammach-train.jsonl",
    ]  # fmt: skip


def test_a_project_learns_from_more_documents(folder, capsys):
    """It is then as one that was trained on all of them at once, also after a failure."""
    moon = f"moon crater\t<{URI}moon>\n" * 30
    write_vocabulary({**SUBJECTS, "moon": "moon"})
    assert annif("load-vocab", "things", "things.tsv", "-L", "en") == 0
    Path("more.tsv").write_text(moon)
    Path("all.tsv").write_text("".join(documents(200)) + moon)
    assert annif("learn", "ours", "more.tsv") == 1
    assert "no rows are kept: train first" in capsys.readouterr().err
    assert annif("train", "ours", "train.tsv", "-j", 1) == 0
    rows = model_of("ours").parent / "streammach-train.jsonl"
    before, model = rows.read_bytes(), model_of("ours") / "model.safetensors"
    assert annif("learn", "ours", "more.tsv", "-b", "streammach.memory=1MB") == 1
    assert (rows.read_bytes(), len([*rows.parent.iterdir()])) == (before, 2)
    assert annif("learn", "ours", "more.tsv") == 0
    learnt = rows.read_bytes(), model.read_bytes()
    assert annif("train", "ours", "all.tsv") == 0
    assert (rows.read_bytes(), model.read_bytes()) == learnt


def test_subjects_are_those_of_the_project(folder):
    """Names make labels of subjects without documents; what is excluded is no label."""
    write_vocabulary({**SUBJECTS, "moon": "moon"})
    assert annif("load-vocab", "things", "things.tsv", "-L", "en") == 0
    assert annif("train", "ours", "train.tsv") == 0
    assert annif("train", "plain", "train.tsv") == 0
    every = {f"{URI}{kind}" for kind in (*SUBJECTS, "moon")}
    assert {*sm.Model.load(model_of("ours")).labels} == every
    assert {*sm.Model.load(model_of("plain")).labels} == every - {f"{URI}moon", f"{URI}star"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "ours", "train.tsv", "-b", "streammach.memory=lots"], "lots"),
        (["train", "ours", "train.tsv", "-b", "streammach.ngrams=x"], "'x' is no whole number"),
        (["train", "ours", "train.tsv", "-b", "streammach.time=never"], "never"),
        (["train", "ours", "--cached"], "no rows are kept: train first"),
        (["train", "ours", "none.tsv"], "no document has a known subject"),
        (["suggest", "ours", "train.tsv"], "Project is not trained"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(folder, capsys, arguments, said):
    Path("none.tsv").write_text(f"a text\t<{URI}unknown>\n")
    assert annif(*arguments) == 1
    error = capsys.readouterr().err
    assert said in error.splitlines()[-1]
    assert "Traceback" not in error
    assert not model_of("ours").exists()


def test_what_others_made_is_kept(folder, capsys):
    model_of("ours").mkdir(parents=True)
    (model_of("ours") / "mine").write_text("mine")
    rows = model_of("ours").parent / "streammach-train.jsonl"
    rows.write_text("mine")
    assert annif("train", "ours", "train.tsv") == 1
    assert "it has no rows of a project, and is not replaced" in capsys.readouterr().err
    assert rows.read_text() == "mine"
    rows.unlink()
    assert annif("train", "ours", "train.tsv") == 1
    assert "not replaced" in capsys.readouterr().err
    assert (model_of("ours") / "mine").read_text() == "mine"


def test_halves_of_characters_and_empty_texts_are_rows(folder, capsys):
    row = {"text": "", "subjects": [{"uri": f"{URI}ship"}]}
    rows = [row, {**row, "text": "ships \ud800 sails"}] * 20
    rows += [{"text": "trees", "subjects": [{"uri": f"{URI}tree"}]}] * 20
    Path("odd.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    assert annif("train", "plain", "odd.jsonl") == 0
    assert annif("eval", "plain", "odd.jsonl", "-m", "NDCG") == 0
    assert float(capsys.readouterr().out.split()[1]) > 0.8


def test_a_model_that_is_damaged_is_said(folder, capsys):
    assert annif("train", "ours", "train.tsv") == 0
    (model_of("ours") / "model.json").write_text("{}")
    assert annif("suggest", "ours", "dev.tsv") == 1
    assert "Operation failed backend 'streammach'" in capsys.readouterr().err


def test_a_server_registers_the_backend():
    registry = pytest.importorskip("annif.backend")
    from streammach.frontends.annif.backend import StreammachBackend, register

    register()
    assert registry.get_backend("streammach") is StreammachBackend


def test_stems_are_those_of_snowball():
    pytest.importorskip("annif")
    from streammach.frontends.annif.backend import STEMS

    names = {pair.split(":")[1] for pair in STEMS.split()}
    assert names <= {*pytest.importorskip("snowballstemmer").algorithms()}


def test_without_annif_the_command_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "annif.cli", None)
    monkeypatch.setitem(sys.modules, "annif", None)
    assert annif("list-projects") == 2
    error = capsys.readouterr().err
    assert error.startswith("streammach: error: Annif is not installed")
    assert error.endswith("Run: pip install 'streammach[annif]'\n")
    assert main(["annif", "--help"]) == 0
    assert "Example:" in capsys.readouterr().out

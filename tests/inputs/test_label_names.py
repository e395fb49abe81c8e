"""Names of labels: every form of a file, mappings, vocabularies, and what cannot be read."""

import gzip

import pytest

from streammach.inputs import label_names
from streammach.inputs.label_names import find_labels, read_label_names
from streammach.rows.names import Names
from streammach.system.errors import BudgetError, DataError, UsageError

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<http://x/1> a skos:Concept ; skos:prefLabel "Schiff"@de, "Ship"@en ; skos:altLabel "Boot"@de .
<http://x/2> skos:prefLabel "Turm"@de ; skos:hiddenLabel "Turmbau"@de .
<http://x/3> skos:altLabel "two\\nlines" .
"""
XML = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="http://x/1"><skos:prefLabel xml:lang="de">Schiff</skos:prefLabel>
</skos:Concept></rdf:RDF>"""


def as_dict(names):
    found = {}
    for label, name in zip(names.labels, names.texts, strict=True):
        found.setdefault(label.decode(), []).append(name.decode())
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tShip\nb\tTower\tspire\n\n", {"a": ["Ship"], "b": ["Tower", "spire"]}),
        ("<http://x/1>\tShip\t12.3\n<x>\t\n", {"<http://x/1>": ["Ship"]}),
        ("Ship\n\nTower\n", {"0": ["Ship"], "2": ["Tower"]}),
        ('{"title": "A\\tship"}\n{"title": ""}\n', {"0": ["A ship"]}),
    ],
)
def test_every_form_of_a_file(text, expected, packed, tmp_path):
    path = tmp_path / "names.tsv"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert as_dict(read_label_names(path)) == expected


def test_mappings_have_a_name_or_several():
    names = {7: "Ship", "b": ["Tower", "  two\nwords "], 2.0: [], "ü": ("x",)}
    assert as_dict(read_label_names(names)) == {
        "7": ["Ship"], "b": ["Tower", "two words"], "ü": ["x"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", {"http://x/1": ["Schiff", "Boot"], "http://x/2": ["Turm"]}),
        ("en", {"http://x/1": ["Ship"]}),
        ("en, de", {"http://x/1": ["Ship", "Schiff", "Boot"], "http://x/2": ["Turm"]}),
        (None, {"http://x/1": ["Schiff", "Ship", "Boot"], "http://x/2": ["Turm"],
                "http://x/3": ["two lines"]}),
    ],
)  # fmt: skip
def test_vocabularies_in_skos(language, expected, tmp_path):
    pytest.importorskip("rdflib")
    (tmp_path / "v.ttl").write_text(TURTLE)
    found = as_dict(read_label_names(tmp_path / "v.ttl", language))
    assert {label: sorted(names) for label, names in found.items()} == {
        label: sorted(names) for label, names in expected.items()
    }
    assert all(found[label][0] in ("Schiff", "Ship", "Turm", "two lines") for label in found)
    assert language is None or "en" not in language or found["http://x/1"][0] == "Ship"
    (tmp_path / "v.rdf").write_text(XML)
    if language != "en":
        assert as_dict(read_label_names(tmp_path / "v.rdf", language)) == {"http://x/1": ["Schiff"]}


@pytest.mark.parametrize(
    ("name", "text", "language", "error", "message"),
    [
        ("v.ttl", "no turtle", None, DataError, "it is no SKOS"),
        ("v.ttl", TURTLE, "fr", DataError, "no concept has a name in the language 'fr'"),
        ("v.xml", "<a>", None, DataError, "it is no SKOS"),
        ("n.tsv", "a\tShip\n", "de", UsageError, "a language is chosen of names in SKOS"),
        ("n.tsv", "a\tShip\nb\n", None, DataError, "not a label, a tab and a name.*line 2"),
        ("n.tsv", "a\tb\n" + "x" * 5000 + "\ty\n", None, DataError, "not a label, a tab and"),
        ("n.tsv", '{"name": 3}\n', None, DataError, "no object with a title.*line 1"),
    ],
)
def test_what_cannot_be_read_gets_one_line(name, text, language, error, message, tmp_path):
    if not name.endswith("tsv"):
        pytest.importorskip("rdflib")
    (tmp_path / name).write_text(text)
    with pytest.raises(error, match=message):
        read_label_names(tmp_path / name, language)


def test_more_than_the_most_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(label_names, "MOST_BYTES", 10)
    (tmp_path / "n.tsv").write_text("a\tShip\nb\tTower\n")
    with pytest.raises(BudgetError, match="names of labels take more than"):
        read_label_names(tmp_path / "n.tsv")


@pytest.mark.parametrize("names", [{"a": 3}, {"a": ["x", None]}, {"a": b"x"}])
def test_names_are_texts(names):
    with pytest.raises(UsageError, match="no text and no list of texts"):
        read_label_names(names)


def test_labels_are_found_with_brackets_and_without():
    known = Names.of(["http://x/1", "<b>", "c"])
    wanted = Names.of(["<http://x/1>", "<b>", "c", "d", "<d>"])
    assert find_labels(known, wanted).tolist() == [0, 1, 2, -1, -1]

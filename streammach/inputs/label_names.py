"""What labels are called: names from a file, a vocabulary in SKOS, or a mapping."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress, groupby, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.label_arrays import label_name
from streammach.inputs.tables.frame import kinds_of_characters, normalize
from streammach.inputs.tokenizers import changes_of
from streammach.options.recipe import Recipe
from streammach.rows.names import MAX_NAME, ClassNames, NameIndex, Names, Words
from streammach.rows.texts import Texts
from streammach.system.errors import BudgetError, DataError, UsageError, clean, type_name
from streammach.system.files.raw_text import numbered_lines
from streammach.system.machine import size_text

SKOS = {".ttl": "turtle", ".nt": "nt", ".rdf": "xml", ".xml": "xml"}  # formats by ending
CORE = "http://www.w3.org/2004/02/skos/core#"
KINDS = ("prefLabel", "altLabel")  # of names in SKOS, in the order in which a label has them
MOST_BYTES = 1 << 29  # of all names of a file, with their labels
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # in namesLikeThis
NamesOfLabels = str | os.PathLike[str] | Mapping[Any, str | Iterable[str]]
Entry = tuple[int | None, bytes, list[bytes]]  # line of a file, label, names


@dataclass(frozen=True)
class LabelNames:
    """Names of labels, in the order in which they were given: a label may have several."""

    labels: Names  # the label of each name
    texts: Names  # the names

    def by_class(self, ids: NDArray[np.int32]) -> ClassNames:
        """Return names by rising classes int32 (n,), -1 for none, else in the order given."""
        order = np.argsort(ids, kind="stable")[np.count_nonzero(ids < 0) :]
        return ClassNames(ids[order], Names.of(self.texts.raws(order)))


def splitter(recipe: Recipe | None) -> Words:
    """Return what takes a name apart into words, as texts of rows are."""
    before, stem = (None, None) if recipe is None else changes_of(recipe)
    kinds = kinds_of_characters(alone=False)

    def words(text: str) -> list[str]:
        text = HUMP.sub(" ", text) if recipe is None else text
        text = normalize(text if before is None else before(text))
        text = text if stem is None else stem(text)
        if before is not None:
            return text.split()
        runs = groupby(text, lambda c: ord(c) < len(kinds) and kinds[ord(c)] > 0)
        return ["".join(run) for inside, run in runs if inside]

    return words


def read_label_names(
    source: NamesOfLabels, language: str | None = None, known: Names | None = None
) -> LabelNames:
    """Return the names in a file or a mapping; of SKOS those of languages, if some are named.

    Those of lines of a file are of known labels alone, if these are given.

    A file has a line for each label: label, a tab, its name, perhaps a tab and a further name, and
    so on; a URI may stand in angle brackets. If its first line has no tab, each line is the name of
    the label that is its number, from 0, or an object with that title. A file that ends in .ttl,
    .nt, .rdf or .xml is a vocabulary in SKOS, which rdflib reads. Raises UsageError, DataError,
    DiskError, or BudgetError where there are more than :data:`MOST_BYTES`.
    """
    if isinstance(source, Mapping):
        return _collect([_entries_of(source)], Path("label_names"))
    if not isinstance(source, str | os.PathLike):
        what = f"{type_name(source)} is no file, no mapping: label_names"
        raise UsageError(what, hint="Give a path, or a mapping such as {'q42': 'Author'}.")
    path = Path(source)
    if path.suffix.lower() in SKOS:
        return _collect([_entries_in_skos(path, language)], path)
    if language is not None:
        what = "a language is chosen of names in SKOS: --label-language"
        raise UsageError(what, path=path, hint="Leave it out, or give a vocabulary in Turtle.")
    return _collect(entries_in(path), path, known)


def _collect(pieces: Iterable[list[Entry]], path: Path, known: Names | None = None) -> LabelNames:
    """Return the entries of all pieces, perhaps of known labels alone, or raise BudgetError."""
    parts, n_bytes = list[tuple[Texts, Texts]](), 0
    index = None if known is None else known.index()
    for entries in pieces:
        for line, label, _ in entries:
            if not 0 < len(bare_label(label)) <= MAX_NAME:
                what = f"'{clean(label, 40)}' has no byte, or more than {MAX_NAME:,}: --label-names"
                raise DataError(what, path=path, line=line)
        pairs = [(label, name) for _, label, names in entries for name in names]
        if known is not None:
            there = find_labels(known, Names.of([label for label, _ in pairs]), index) >= 0
            pairs = list(compress(pairs, there))
        parts.append((Texts.of(a for a, _ in pairs), Texts.of(b for _, b in pairs)))
        n_bytes += sum(len(one.data) for one in parts[-1])
        if n_bytes > MOST_BYTES:
            what = f"names of labels take more than {size_text(MOST_BYTES)}: --label-names"
            raise BudgetError(what, path=path, hint="Give the names that text is searched for.")
    found = [Texts.concat([part[i] for part in parts]) for i in (0, 1)]
    labels, texts = (Names(t.offsets, t.data, "bytes") for t in found)
    return LabelNames(labels, texts)


def _entries_of(names: Mapping[Any, str | Iterable[str]]) -> list[Entry]:
    entries = list[Entry]()
    for label, own in names.items():
        several = [own] if isinstance(own, str) else own
        if not isinstance(several, Iterable) or not all(isinstance(n, str) for n in several):
            what = f"the name of '{clean(label, 60)}' is no text and no list of texts: label_names"
            raise UsageError(what, hint="Give a mapping such as {'q42': ['Author', 'writer']}.")
        raws = [" ".join(name.split()).encode("utf-8", "replace")[:MAX_NAME] for name in several]
        entries.append((None, label_name(label), [raw for raw in raws if raw]))
    return entries


def entries_in(path: str | os.PathLike[str]) -> Iterator[list[Entry]]:
    """Yield the lines of a file of names that are not empty, or raise DataError or DiskError."""
    first = b""  # what tells how lines are read
    for lines in numbered_lines(path):
        entries = list[Entry]()
        for number, line in lines:
            first = first or line
            if first.startswith(b"{"):
                cells = [b"%d" % (number - 1), _title(line, number, path)]
            elif b"\t" in first:
                cells = [cell.strip() for cell in line.split(b"\t")]
            else:
                cells = [b"%d" % (number - 1), line.strip()] if b"\t" not in line else []
            if len(cells) < 2 or not cells[0] or max(map(len, cells)) > MAX_NAME:
                what = f"it is not a label, a tab and a name: '{clean(line, 60)}'"
                raise DataError(what, path=path, line=number)
            # In Annif's vocabularies, where URIs stand in brackets, a notation follows the name.
            last = 2 if cells[0].startswith(b"<") else None
            entries.append((number, cells[0], [cell for cell in cells[1:last] if cell]))
        yield entries


def _title(line: bytes, number: int, path: str | os.PathLike[str]) -> bytes:
    """Return the title of an object of JSON in a line, or raise DataError."""
    try:
        title = msgspec.json.decode(line, type=dict[str, Any])["title"] + ""
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        what = f"it is no object with a title: '{clean(line, 60)}'"
        raise DataError(what, path=path, line=number) from None
    return " ".join(title.split()).encode("utf-8", "replace")[:MAX_NAME]


def _entries_in_skos(path: Path, language: str | None) -> list[Entry]:
    """Return the concepts of a vocabulary: preferred names first; UsageError without rdflib."""
    try:
        from rdflib import Graph, Literal, URIRef
    except ImportError as error:
        what = f"a vocabulary in SKOS is read with rdflib ({error}): --label-names"
        raise UsageError(what, path=path, hint="Run: pip install 'streammach[skos]'") from None
    graph = Graph()
    try:
        with path.open("rb") as file:  # by a handle: a path may be taken for a URL
            graph.parse(file, format=SKOS[path.suffix.lower()])
    except OSError as error:
        raise UsageError(
            f"it cannot be read ({error.strerror}): --label-names", path=path
        ) from None
    except Exception as error:  # rdflib's parsers have errors of many kinds
        raise DataError(f"it is no SKOS: {clean(error, 120)}", path=path) from None
    found = dict[str, list[bytes]]()
    codes = [None] if language is None else language.replace(" ", "").split(",")
    for kind, code in product(KINDS, codes):
        for concept, name in sorted(graph.subject_objects(URIRef(CORE + kind))):
            if isinstance(name, Literal) and code in (None, name.language):
                raw = " ".join(name.split()).encode("utf-8", "replace")[:MAX_NAME]
                found.setdefault(str(concept), []).append(raw)
    if not found:
        of = "" if language is None else f" in the language '{clean(language, 20)}'"
        raise DataError(f"no concept has a name{of}: --label-names", path=path)
    return [(None, uri.encode(), names) for uri, names in sorted(found.items())]


def find_labels(known: Names, labels: Names, index: NameIndex | None = None) -> NDArray[np.int32]:
    """Return the ids of labels of names among known ones, perhaps without the brackets of a URI.

    -1 stands for one that is not known: int32 (n,).
    """
    index = known.index() if index is None else index
    ids = known.labels_of(labels, index)
    left = np.flatnonzero(ids < 0)
    left = left[labels.data[labels.offsets[left]] == ord("<")]
    ids[left] = index.ids([bare_label(raw) for raw in labels.raws(left)])
    return ids


def add_labels(known: Names, names: LabelNames) -> tuple[Names, NDArray[np.int32]]:
    """Return known labels, behind them those that names alone have, and each name's: int32 (n,).

    Raises UsageError for one that is no integer where known ones are.
    """
    ids = find_labels(known, names.labels)
    new = np.flatnonzero(ids < 0)
    raws = [bare_label(raw) for raw in names.labels.raws(new)]
    numbers = {raw: i for i, raw in enumerate(dict.fromkeys(raws), len(known))}
    ids[new], more = [numbers[raw] for raw in raws], Names.of(numbers)
    if known.kind == "integer" != more.kind:
        odd = next(raw for raw in numbers if Names.of([raw]).kind != "integer")
        what = f"'{clean(odd, 40)}' is no integer, as other labels are: --label-names"
        raise UsageError(what, hint="Leave its line out, or give rows such labels.")
    return known.followed_by(more), ids


def bare_label(label: bytes) -> bytes:
    """Return a label without the brackets in which a URI may stand."""
    bracketed = label.startswith(b"<") and label.endswith(b">")
    return label[1:-1] if bracketed else label

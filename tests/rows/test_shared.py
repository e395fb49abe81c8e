"""Readers with tables of their own fill one vocabulary."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.text import TextSource
from streammach.rows.names import Names
from streammach.rows.vocabulary import LocalNames, Vocabulary
from streammach.system.forks import ForkSafeLock


def blocks(path, names):
    source = TextSource(path, "vw")
    for block in source.blocks(names.vocabulary, BadRows()):
        names.share(block.classes)
        yield [
            (int(y), names.features[block.features[a:b]].tolist())
            for y, a, b in zip(block.classes, block.indptr[:-1], block.indptr[1:], strict=True)
        ]


def test_a_reader_begins_anew_with_labels(tiny, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 256)
    monkeypatch.setattr("streammach.rows.vocabulary.MOST_LABELS", 10)
    labels = [f"l{i % 40}" for i in range(300)]
    path = tiny.text("r.vw", [f"{label} |w x{label}" for label in labels])
    names = LocalNames(Vocabulary(), ForkSafeLock())
    rows, most = [], 0
    for block in blocks(path, names):
        rows += block
        most = max(most, names.vocabulary.n_labels)
    whole = names._whole
    assert spelled(rows, whole) == [(n.encode(), [b"w^x" + n.encode()]) for n in labels]
    assert whole.n_labels == 40 > most


def spelled(rows, vocabulary):
    labels, features = vocabulary.label_names(), vocabulary.feature_names()
    return [(labels.raw(y), [features.raw(f) for f in ids]) for y, ids in rows]


def test_many_readers_agree_on_names(tiny, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 1024)
    whole, lock = Vocabulary(), ForkSafeLock()
    paths, wanted = [], []
    for part in range(4):
        lines = [f"l{(i * part) % 30} |a{i % 7} x{i % 50} y{part} |b x{i % 50}" for i in range(300)]
        paths.append(tiny.text(f"{part}.vw", lines))
        wanted.append([
            (f"l{(i * part) % 30}".encode(),
             [f"a{i % 7}^x{i % 50}".encode(), f"a{i % 7}^y{part}".encode(),
              f"b^x{i % 50}".encode()])
            for i in range(300)
        ])  # fmt: skip
    locals_ = [LocalNames(whole, lock) for _ in paths]
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda pair: [r for b in blocks(*pair) for r in b],
                     zip(paths, locals_, strict=True))
        )  # fmt: skip
    assert [spelled(rows, whole) for rows in found] == wanted
    labels = whole.label_names()
    assert len({labels.raw(i) for i in range(len(labels))}) == len(labels) == 30


def test_known_names_keep_their_ids_and_are_not_copied(tiny):
    whole = Vocabulary(Names.of(["b", "a"]), Names.of(["w^x", "w^y"]), add_features=False)
    names = LocalNames(whole, ForkSafeLock())
    assert names.vocabulary.features.slots is whole.features.slots
    path = tiny.text("r.vw", ["a |w y x new", "c |w x"])
    ((first, second),) = blocks(path, names)
    assert (first, second) == ((1, [1, 0]), (2, [0]))
    assert whole.n_features == 2


def test_names_taken_in_again_have_the_same_ids():
    names = Names.of(["w^x", "w^y", "^a^b", "plain", "v^x"])
    vocabulary = Vocabulary()
    assert vocabulary.take_in("features", names)
    listed = vocabulary.feature_names()
    assert [listed.raw(i) for i in range(5)] == [names.raw(i) for i in range(5)]
    since = vocabulary.feature_names().part(3, vocabulary.n_features)
    assert [since.raw(i) for i in range(len(since))] == [b"plain", b"v^x"]
    assert not vocabulary.take_in("features", Names.of(["w^y"]))
    assert vocabulary.take_in("labels", Names.of(["1", "2"]))
    assert np.array_equal(vocabulary.label_ids([b"2", b"1"]), [1, 0])

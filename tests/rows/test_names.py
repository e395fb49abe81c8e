"""Name lists and the hash table that finds names exactly."""

import numpy as np
import pytest

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.text import TextSource
from streammach.rows.name_table import LARGEST, MULTIPLIER, hash_name, pad_bytes
from streammach.rows.names import Names, in_namespace, namespace_ids, namespaces
from streammach.rows.vocabulary import Vocabulary, by_frequency


def test_names_come_back_in_the_type_that_went_in():
    assert [Names.of(["7", "0", "-12"]).label(i) for i in range(3)] == [7, 0, -12]
    assert Names.of(["a", "é", ""]).label(1) == "é"
    assert Names.of([b"\xff", b"a"]).label(0) == b"\xff"


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["1", "22"], "integer"),
        (["1", "01"], "utf8"),
        (["1", "1.0"], "utf8"),
        (["-0"], "utf8"),
        ([b"\xc3", b"\xa9"], "bytes"),  # together valid UTF-8, each alone not
        ([b"ok", b"\xff"], "bytes"),
    ],
)
def test_kind_is_that_of_all_names(names, kind):
    assert Names.of(names).kind == kind


def test_ids_of_another_list_are_found_by_name(rng):
    words = [f"{'x' * int(rng.integers(1, 30))}{i}" for i in range(500)]
    shuffled = [words[i] for i in rng.permutation(500)]
    found = Names.of(words).ids_of(Names.of([*shuffled, "unknown", ""]))
    assert found.tolist() == [words.index(w) for w in shuffled] + [-1, -1]


def test_names_that_share_their_first_16_bytes_are_told_apart():
    words = [f"{'s' * 16}{tail}" for tail in ("", "a", "b", "ab", "ba", "aa" * 40)]
    assert Names.of(words).ids_of(Names.of(words[::-1])).tolist() == [5, 4, 3, 2, 1, 0]


def words_that_share_a_hash(space):
    """The eight bytes that would have the hash of an empty slot, and those that have theirs."""
    mask, inverse = (1 << 64) - 1, pow(int(MULTIPLIER), -1, 1 << 64)
    states = int(LARGEST), int(LARGEST) + 1
    words = ((state ^ (state >> 32)) * inverse & mask for state in states)
    return [(w ^ (space + 1) * int(MULTIPLIER) & mask).to_bytes(8, "little") for w in words]


def test_the_two_words_that_share_a_hash_are_told_apart(tmp_path):
    words = words_that_share_a_hash(0)
    text = pad_bytes(Names.of(words).data)
    assert [hash_name(text, 8 * i, 8, 0) for i in range(2)] == [LARGEST, LARGEST]
    assert Vocabulary().label_ids([*words, words[0], b"another1"]).tolist() == [0, 1, 0, 2]
    space, words = next(
        (space, words) for space in range(1, 200) if min(b"".join(words :=
            words_that_share_a_hash(space))) > 32 and not set(b"".join(words)) & set(b":|")
    )  # fmt: skip
    lines = [b"1 |s%d x\n" % i for i in range(1, space)]
    lines += [b"1 |s%d %s %s\n" % (space, *words), b"1 |s%d %s %s\n" % (space, *words[::-1])]
    (tmp_path / "a.vw").write_bytes(b"".join(lines))
    vocabulary, reader = Vocabulary(), TextSource(tmp_path / "a.vw", "vw")
    (block,) = reader.blocks(vocabulary, BadRows())
    first = space - 1
    assert block.features[first:].tolist() == [first, first + 1, first + 1, first]


def test_equal_lists_are_seen_as_equal():
    a = Names.of(["x", "yz"])
    assert a.same_as(Names.of(["x", "yz"]))
    assert not a.same_as(Names.of(["xy", "z"]))


def test_order_is_by_falling_count_then_by_bytes():
    names = Names.of(["b", "a", "long-name-number-2", "long-name-number-1", "rare"])
    order = by_frequency(names, np.array([5, 5, 7, 7, 1]))
    listed = names.take(order)
    expected = [b"long-name-number-1", b"long-name-number-2", b"a", b"b", b"rare"]
    assert [listed.raw(i) for i in range(5)] == expected


def test_a_vocabulary_is_built_again_from_its_own_names():
    composed = Names.of(["w^a", "x^a", "a", "^a^b", "w^a^b", "w^" + "long" * 9])
    vocabulary = Vocabulary(features=composed)
    assert vocabulary.n_features == 6
    again = vocabulary.feature_names()
    assert [again.raw(i) for i in range(6)] == [composed.raw(i) for i in range(6)]


def test_a_vocabulary_of_many_namespaces_is_built_whole():
    composed = Names.of([f"space{i}^name" for i in range(3000)])
    vocabulary = Vocabulary(features=composed)
    assert vocabulary.feature_names().same_as(composed)


def test_namespaces_are_those_before_the_separator():
    names = Names.of(["ab^x", "abc^x", "ab^", "^ab^x", "ab", "b^ab^"])
    assert in_namespace(names, b"ab").tolist() == [True, False, True, False, False, False]
    assert namespaces(names) == ["ab", "abc", "b"]


def test_namespaces_are_numbered_by_their_first_feature():
    names = Names.of(["q^x", "plain", "^w^", "ab^x", "q^^", "abc^x", "b^ab^", "ab^y"])
    assert namespace_ids(names, 9).tolist() == [1, 0, 0, 2, 1, 3, 4, 2]
    assert namespace_ids(names, 3).tolist() == [1, 0, 0, 2, 1, 3, 3, 2]
    assert namespace_ids(names, 1).tolist() == [1, 0, 0, 1, 1, 1, 1, 1]
    assert namespace_ids(Names.of([]), 3).tolist() == []


def test_some_names_stay_in_their_order_and_kind():
    names = Names.of([b"a", b"", b"12", "é", b"b^c"])
    some = names.take(np.arange(1, 4))
    assert [some.raw(i) for i in range(len(some))] == [b"", b"12", "é".encode()]
    assert some.kind == names.kind == "utf8"
    assert len(names.take(np.arange(0))) == 0


def test_long_names_that_differ_in_one_byte_are_told_apart():
    names = [b"n" * size for size in range(70)]
    names += [n[:i] + b"x" + n[i + 1 :] for n in names for i in range(len(n))]
    words = Vocabulary()
    ids = words.label_ids(names)
    assert ids.tolist() == list(range(len(names)))
    assert words.label_ids(names[::-1]).tolist() == ids[::-1].tolist()
    known = Vocabulary(words.label_names(), add_labels=False)
    assert known.label_ids(names).tolist() == ids.tolist()
    assert (known.label_ids([n + b"x" for n in names if len(n) == 69]) == -1).all()


def test_names_that_are_given_twice_have_one_id():
    words = Vocabulary()
    assert words.label_ids([b"a", b"b", b"a", b"b" * 40, b"b" * 40]).tolist() == [0, 1, 0, 2, 2]

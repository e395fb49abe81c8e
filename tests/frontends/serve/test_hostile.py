"""Bodies that are wrong or meant to do harm: each is refused with its reason in a line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammach.system.errors import escape_controls

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

DEEP = 100_000
WORDS = "/models/words/predict"
TABLE = "/models/table/predict"


def rows(*given, **more):
    return json.dumps({"rows": list(given), **more}).encode()


def features(text):
    """A body whose one row has features that are written as they are."""
    return (
        b'{"rows": [{"features": ' + (text if isinstance(text, bytes) else text.encode()) + b"}]}"
    )


# What is sent, to which model, the status, and what the reason says.
HOSTILE = {
    "empty": (b"", WORDS, 400, "truncated"),
    "blank": (b"   ", WORDS, 400, "truncated"),
    "no JSON": (b"rows=1", WORDS, 400, "malformed"),
    "cut short": (b'{"rows": [{"features"', WORDS, 400, "truncated"),
    "two values": (rows() + b"{}", WORDS, 400, "trailing"),
    "a byte order mark": (b"\xef\xbb\xbf" + rows(), WORDS, 400, "malformed"),
    "UTF-16": (rows().decode().encode("utf-16"), WORDS, 400, "is not UTF-8"),
    "no UTF-8": (features(b'{"\xff": 1}'), WORDS, 400, "is not UTF-8"),
    "an overlong byte": (features(b'{"\xc0\xaf": 1}'), WORDS, 400, "is not UTF-8"),
    "a surrogate in bytes": (features(b'{"\xed\xa0\x80": 1}'), WORDS, 400, "is not UTF-8"),
    "half a character": (features(r'{"\ud800": 1}'), WORDS, 400, "hex escape"),
    "a control character": (features(b'{"a\x01": 1}'), WORDS, 400, "malformed"),
    "a bad escape": (features(r'{"\q": 1}'), WORDS, 400, "escape"),
    "zeros before a number": (features('{"a": 01}'), WORDS, 400, "malformed"),
    "a comment": (b"/* */" + rows(), WORDS, 400, "malformed"),
    "a comma at the end": (features('{"a": 1,}'), WORDS, 400, "malformed"),
    "single quotes": (b"{'rows': []}", WORDS, 400, "malformed"),
    "a list": (b"[]", WORDS, 422, "Expected `object`, got `array`"),
    "a string": (b'"rows"', WORDS, 422, "got `str`"),
    "null": (b"null", WORDS, 422, "got `null`"),
    "no rows": (b"{}", WORDS, 422, "missing required field `rows`"),
    "rows that are none": (b'{"rows": 3}', WORDS, 422, "Expected `array`, got `int`"),
    "an unknown field": (rows(row=1), WORDS, 422, "unknown field `row`"),
    "an unknown field of a row": (rows({"features": {}, "x": 1}), WORDS, 422, "unknown field `x`"),
    "a row without features": (rows({}), WORDS, 422, "missing required field `features`"),
    "a string for a row": (rows("red"), WORDS, 422, "got `str`"),
    "a number for a row": (rows(3), TABLE, 422, "got `int`"),
    "a list for a row": (rows([1]), TABLE, 422, "got `array`"),
    "features that are a string": (features('"a"'), WORDS, 422, "got `str`"),
    "a value that is a list": (features('{"a": [1]}'), WORDS, 422, "got `array`"),
    "a value that is an object": (features('{"a": {}}'), WORDS, 422, "got `object`"),
    "a value that is null": (features('{"a": null}'), WORDS, 422, "got `null`"),
    "a value that is true": (features('{"a": true}'), WORDS, 422, "got `bool`"),
    "names and numbers": (features('["a", 1]'), WORDS, 422, "lists 2 features: the model"),
    "numbers without columns": (features("[1, 2]"), WORDS, 422, "the model reads names"),
    "too few numbers": (features("[1]"), "/models/matrix/predict", 422, "names or 5 numbers"),
    "NaN": (features('{"a b": NaN}'), WORDS, 400, "malformed"),
    "infinity": (features('{"a": -Infinity}'), WORDS, 400, "malformed"),
    "NaN elsewhere": (b'{"rows": [], "k": NaN}', WORDS, 400, "malformed"),
    "past float32": (features('{"a": 1, "b": 1e39}'), WORDS, 422, "row 0: Expected `float` <= 3.4"),
    "past float64": (features('{"a": 1e400}'), WORDS, 422, "Number out of range"),
    "a huge integer": (features('{"a": %s}' % ("9" * 5000)), WORDS, 422, "Number out of range"),
    "a cell past float32": (rows({"pages": 1e39}), TABLE, 422, "row 0 (counted from 0): column p"),
    "a cell that is no number": (rows({}, {"pages": "x"}), TABLE, 422, "row 1 (counted from 0)"),
    "a cell that is a list": (rows({"title": ["a"]}), TABLE, 422, "'['a']' is no text"),
    "a string for several columns": (
        rows("a"), "/models/wide/predict", 404, "there is no model 'wide'"
    ),
    "k of 0": (rows(k=0), WORDS, 422, "Expected `int` >= 1"),
    "k below 0": (rows(k=-5), WORDS, 422, "Expected `int` >= 1"),
    "k past the limit": (rows(k=201), WORDS, 422, "Expected `int` <= 200 - at `$.k`"),
    "a huge k": (rows(k=10**30), WORDS, 422, "Expected `int` <= 200"),
    "k that is no integer": (rows(k=2.5), WORDS, 422, "got `float`"),
    "k that is true": (rows(k=True), WORDS, 422, "got `bool`"),
    "probabilities that are 1": (rows(probabilities=1), WORDS, 422, "Expected `bool`, got `int`"),
    "deep lists": (b"[" * DEEP, TABLE, 422, "got `array`"),
    # Python 3.14 goes deeper than those before, and meets the end of the text.
    "deep lists in a cell": (b'{"rows": [{"a": ' + b"[" * DEEP, TABLE, 400, "a request is"),
    "deep objects in a cell": (b'{"rows": [{"a": ' + b'{"a":' * DEEP, TABLE, 400, "a request is"),
    "closed deep lists": (
        b'{"rows": [{"title": ' + b"[" * 500 + b"]" * 500 + b"}]}", TABLE, 422, "is no text"
    ),
    "lists in lists in lists": (rows({"title": [[[[1]]]]}), TABLE, 422, "is no text"),
    "deep lists in a feature": (features(b'{"a": ' + b"[" * DEEP), WORDS, 400, "a request is"),
    "too many rows": (rows(*[{"features": {}}] * 1025), WORDS, 413, "1,025 rows, 1,024 are taken"),
    "too many features": (
        rows({"features": [f"f{i}" for i in range(100_001)]}), WORDS, 422,
        "row 0: Expected `array` of length <= 100000 - at `$.features`",
    ),
    "a long row": (rows("x" * 2_000_000), TABLE, 422, "row 0 has 2,000,002 bytes, 2,000,000 are"),
    "a feature without a name": (features('{"": 1}'), WORDS, 422, "of length >= 1"),
    "a name that is too long": (features('["%s"]' % ("y" * 5000)), WORDS, 422, "length <= 4095"),
    "a body past the limit": (b" " * 4_000_001, WORDS, 413, "4,000,001 bytes, 4,000,000 are"),
    "numbers that add up to none": (
        features(json.dumps({"w^pair1": 3e38, "w^pair2": 3e38})), WORDS, 422, "too large"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_wrong_is_said_in_a_line(what, client):
    body, path, status, reason = HOSTILE[what]
    answer = client.post(path, content=body)
    found = answer.json()
    assert (answer.status_code, reason in found["error"]) == (status, True), answer.text
    assert found.keys() <= {"error", "limit"}
    assert "\n" not in found["error"]
    assert len(found["error"]) <= 300


@pytest.mark.parametrize(
    ("what", "limit"),
    [("k past the limit", "k"), ("too many rows", "rows"), ("too many features", "features"),
     ("a long row", "row_bytes"), ("a body past the limit", "body_bytes")],
)  # fmt: skip
def test_a_limit_is_named(what, limit, client):
    body, path, _, _ = HOSTILE[what]
    assert client.post(path, content=body).json()["limit"] == limit


def test_a_body_without_a_length_has_the_same_limit(client):
    def pieces():
        for _ in range(9):
            yield b" " * 1_000_000

    async def sent():
        for piece in pieces():
            yield piece

    answer = client.post(WORDS, content=sent())
    assert (answer.status_code, answer.json()["limit"]) == (413, "body_bytes")


@pytest.mark.parametrize(
    ("headers", "status", "reason"), [({"content-encoding": "gzip"}, 415, "compressed")]
)
def test_headers_that_are_wrong_are_refused(headers, status, reason, client):
    answer = client.post(WORDS, content=rows(), headers=headers)
    assert (answer.status_code, reason in answer.json()["error"]) == (status, True), answer.text


def test_reasons_show_nothing_that_a_terminal_obeys(client):
    answer = client.post(TABLE, content=rows({"\x1b[2J\u202e": 1}))
    assert answer.status_code == 422
    assert "\\x1b[2J\\u202e" in answer.json()["error"]


BYTES = st.binary(max_size=40)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda some: (
        st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=4), some, max_size=4)
    ),
    max_leaves=8,
)


def check_answers(client, body):
    """Check that each kind of model answers a body, or refuses it in a line."""
    for name in ("words", "matrix", "table", "text"):
        answer = client.post(f"/models/{name}/predict", content=body)
        found = answer.json()
        if answer.status_code == 200:
            assert found["model"] == name
        else:
            assert 400 <= answer.status_code < 500, found
            assert found["error"]
            assert found["error"] == escape_controls(found["error"])


FEW = settings(max_examples=100, deadline=None)


@FEW
@given(data=st.data())
def test_any_bytes_are_read_or_refused(data, client):
    body = bytearray(rows({"features": {"a": 1, "b:": "x"}}, "text", {"a": 2}, k=3))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 9))] = data.draw(BYTES)
    check_answers(client, bytes(body))


@FEW
@given(values=st.lists(VALUES, max_size=3), k=VALUES)
def test_any_values_are_read_or_refused(values, k, client):
    body = {"rows": [{"features": row} for row in values], "k": k}
    check_answers(client, json.dumps(body).encode())
    check_answers(client, json.dumps({"rows": values}).encode())

"""VW and svmlight lines by Python's own means, written from the grammar, not from the parser."""

import re

import numpy as np

MOST_WEIGHT = 1e9
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
INDEX = re.compile(rb"0|[1-9]\d{0,17}")
BLANK = re.compile(rb"[ \t\r\v\f]+")


class BadLine(Exception):
    """Why a line is bad: a word that stands for the parser's reason."""


def tokens(part):
    return [t for t in BLANK.split(part) if t]


def number(text, scale=1.0):
    if re.match(rb"[+-]?(i|n)", text, re.IGNORECASE):
        raise BadLine("not finite")
    if not NUMBER.fullmatch(text):
        raise BadLine("no number")
    with np.errstate(over="ignore"):
        value = np.float32(float(text) * scale)
    if not np.isfinite(value):
        raise BadLine("not finite")
    return value


def weight_of(text):
    if not NUMBER.fullmatch(text) or not 0 <= float(text) <= MOST_WEIGHT:
        raise BadLine("weight")
    return float(text)


def svmlight(line):
    """(label, weight, [(namespace, name, value)]) of a line without its newline."""
    head = tokens(line.split(b"#")[0])
    if b":" in head[0]:
        raise BadLine("no label")
    if b"," in head[0]:
        raise BadLine("labels")
    if re.fullmatch(rb"[+-]?(nan|inf)", head[0], re.IGNORECASE):
        raise BadLine("not finite")
    out = []
    for token in head[1:]:
        name, colon, value = token.partition(b":")
        if not name:
            raise BadLine("no name")
        if not colon:
            raise BadLine("no value")
        if name == b"qid":
            if not INDEX.fullmatch(value):
                raise BadLine("qid")
            continue
        found = number(value)
        if not INDEX.fullmatch(name):
            raise BadLine("index")
        out.append((b"", name, found))
    return head[0], 1.0, out


def vw(line):
    """(label, weight, [(namespace, name, value)]) of a line without its newline."""
    head, bar, rest = line.partition(b"|")
    words = tokens(head)
    touching = bool(head) and not BLANK.fullmatch(head[-1:])
    if not words or words[0].startswith(b"'"):
        raise BadLine("touching" if words and bar and touching and len(words) == 1 else "no label")
    if bar and touching and len(words) == 1:
        raise BadLine("touching")
    label = words[0]
    if b":" in label:
        raise BadLine("colon label")
    between = words[1:]
    if bar and touching:
        between = between[:-1]  # the tag
    numbers = 0
    weight = 1.0
    for word in between:
        if word.startswith(b"'"):
            continue
        value = weight_of(word)
        if numbers > 1:
            raise BadLine("weight")
        weight = value if numbers == 0 else weight
        numbers += 1
    if not bar:
        raise BadLine("no bar")
    out = []
    parts = rest.split(b"|")
    for i, part in enumerate(parts):
        if i + 1 < len(parts) and not BLANK.search(part):
            raise BadLine("namespace")  # it touches the next bar, or there is none
        space, scale, found = b"", 1.0, tokens(part)
        if part and not BLANK.fullmatch(part[:1]):
            space, colon, text = found.pop(0).partition(b":")
            if b"^" in space or (colon and not NUMBER.fullmatch(text)):
                raise BadLine("namespace")
            scale = float(text) if colon else 1.0
        for token in found:
            name, colon, value = token.partition(b":")
            if not name:
                raise BadLine("no name")
            out.append((space, name, number(value, scale) if colon else number(b"1", scale)))
    return label, weight, out

"""Text as its words are compared: one case, one form of Unicode; and which characters are words."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

BREAK, PART, ALONE = 0, 1, 2  # what a character is: between words, of a word, a word of its own
LAST_CODE = 0x110000
IDEOGRAPHS = (
    (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x2FA20), (0x30000, 0x32400),
)  # fmt: skip


def normalised(text: str) -> str:
    """Return text in one case and one form: NFKC, folded, NFKC."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@cache
def kinds_of_characters(n: int = LAST_CODE) -> NDArray[np.uint8]:
    """Return what each of the first characters is: uint8 (n,)."""
    kinds = np.zeros(n, np.uint8)
    for code in range(n):
        character = chr(code)
        if character.isalnum() or unicodedata.category(character)[0] == "M":
            kinds[code] = PART
    for first, stop in IDEOGRAPHS:
        part = kinds[first:stop]
        part[part == PART] = ALONE
    return kinds

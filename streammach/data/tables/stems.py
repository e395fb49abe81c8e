"""Words of a text by their stems: the rules of a language, as Snowball has them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from streammach.errors import UsageError, clean

KNOWN_WORDS = 1 << 16  # whose stems are kept: a stem takes tens of microseconds
STEM_BYTES = 24 << 20  # of these
WORD = re.compile(r"[^\W_]+")
_own = threading.local()  # stemmers: one changes while it works


def stemmer_of(language: str) -> Callable[[str], str]:
    """Return what replaces the words of a text in normal form, or raise UsageError."""
    try:
        import snowballstemmer
    except ImportError as error:
        raise UsageError(
            f"stems are found with snowballstemmer ({error}): --language",
            hint="Install it: pip install 'streammach[stems]'",
        ) from None
    if language not in snowballstemmer.algorithms():
        known = ", ".join(snowballstemmer.algorithms())
        raise UsageError(f"'{clean(language, 40)}' is not one of {known}: --language")
    return partial(_stemmed, language)


def _stemmed(language: str, text: str) -> str:
    return WORD.sub(lambda found: _stem(language, found[0]), text)


@lru_cache(KNOWN_WORDS)
def _stem(language: str, word: str) -> str:
    import snowballstemmer

    stemmers: dict[str, Any] = _own.__dict__.setdefault("stemmers", {})
    if language not in stemmers:
        stemmers[language] = snowballstemmer.stemmer(language)
    stem: str = stemmers[language].stemWord(word)
    return stem

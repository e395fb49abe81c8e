"""Words of a text by a function of the user, or by their stems, as Snowball has its rules."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from streammach.data.tokenizers import words_by
from streammach.errors import UsageError, clean
from streammach.spec.recipe import Recipe

KNOWN_WORDS = 1 << 16  # whose stems are kept: a stem takes tens of microseconds
STEM_BYTES = 24 << 20  # of these
WORD = re.compile(r"[^\W_]+")
_own = threading.local()  # stemmers: one changes while it works


Change = Callable[[str], str]  # of a text


def changes_of(recipe: Recipe) -> tuple[Change | None, Change | None]:
    """Return what changes a text before it has its normal form, and behind, or raise UsageError."""
    name, language = recipe.tokenizer, recipe.language
    return words_by(name) if name else None, stemmer_of(language) if language else None


def stemmer_of(language: str) -> Change:
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
        hint = "Leave it out for texts in several languages."
        raise UsageError(f"'{clean(language, 40)}' is not one of {known}: --language", hint=hint)
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

"""Functions of the user that part a text into its words.

A store and a model hold the name of such a function. It is called only where the program has
registered it, or the user allows it by name: a file from outside imports and runs nothing.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from typing import Any, TypeVar

from streammach.options.recipe import Recipe
from streammach.system.errors import DataError, UsageError, clean

ALLOWED = "STREAMMACH_TOKENIZERS"  # of the environment: names with commas between
Tokenizer = Callable[[str], Iterable[str]]
Registered = TypeVar("Registered", bound=Tokenizer)
Change = Callable[[str], str]  # of a text
KNOWN_WORDS = 1 << 16  # whose stems are kept: a stem takes tens of microseconds
STEM_BYTES = 24 << 20  # of these
WORD = re.compile(r"[^\W_]+")
_registered: dict[str, Tokenizer] = {}
_own = threading.local()  # stemmers: one changes while it works


def tokenizer(function: Registered) -> Registered:
    """Register a function that parts texts into words, so that models may name it; a decorator.

    Parameters
    ----------
    function : callable
        Takes a text, str, and returns its words, strings; perhaps on several threads at once.

    Returns
    -------
    callable
        The function itself.

    Raises
    ------
    UsageError
        If it has no name by which a module gives it.
    """
    _registered[tokenizer_name(function)] = function
    return function


def tokenizer_name(function: Tokenizer) -> str:
    """Return the name ``module:function`` under which a function is registered, or UsageError."""
    module, name = (getattr(function, part, None) for part in ("__module__", "__qualname__"))
    if not (module and name) or "<" in name:
        what = f"'{clean(name or function, 60)}' is no function that a module names: tokenizer"
        raise UsageError(what, hint="Define it by `def` in a module, not within a function.")
    return f"{module}:{name}"


def words_by(name: str) -> Change:
    """Return what gives the words of a text with blanks between, by a function, or UsageError."""
    function = _registered.get(name) or _load_allowed(name)

    def words(text: str) -> str:
        try:
            return " ".join(function(text))
        except Exception as error:
            what = f"{type(error).__name__}: {clean(error, 200)}"
            raise DataError(f"the tokenizer '{clean(name, 60)}' failed: {what}") from error

    return words


def _load_allowed(name: str) -> Tokenizer:
    """Return a function that the user allows by name in the environment."""
    shown = clean(name, 100)
    if name not in os.environ.get(ALLOWED, "").split(","):
        what = f"texts are parted into words by '{shown}', which is not registered: tokenizer"
        hint = f"Do you trust it? streammach.tokenizer(function), or {ALLOWED}={shown}"
        raise UsageError(what, hint=hint)
    module, _, path = name.partition(":")
    try:
        found: Tokenizer = attrgetter(path)(import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"'{shown}' cannot be imported ({clean(error, 200)}): {ALLOWED}") from None
    return found


def changes_of(recipe: Recipe) -> tuple[Change | None, Change | None]:
    """Return what changes a text before it has its normal form, and behind, or raise UsageError."""
    name, language = recipe.tokenizer, recipe.language
    return words_by(name) if name else None, stemmer_of(language) if language else None


def stemmer_of(language: str) -> Change:
    """Return what replaces the words of a text in normal form, or raise UsageError."""
    try:
        import snowballstemmer
    except ImportError as error:
        what = f"stems are found with snowballstemmer ({error}): --language"
        raise UsageError(what, hint="Install it: pip install 'streammach[stems]'") from None
    if language not in snowballstemmer.algorithms():
        known = ", ".join(snowballstemmer.algorithms())
        hint = "Leave it out for texts in several languages."
        raise UsageError(f"'{clean(language, 40)}' is not one of {known}: --language", hint=hint)
    return lambda text: WORD.sub(lambda found: _stem(language, found[0]), text)


@lru_cache(KNOWN_WORDS)
def _stem(language: str, word: str) -> str:
    import snowballstemmer

    stemmers: dict[str, Any] = _own.__dict__.setdefault("stemmers", {})
    if language not in stemmers:
        stemmers[language] = snowballstemmer.stemmer(language)
    stem: str = stemmers[language].stemWord(word)
    return stem

"""Shape and hashes of a model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from streammach import hashing
from streammach.hashing import P
from streammach.options.types import Count, Index, Repetitions


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Shape of a model: R softmax models of B buckets for K classes over d features."""

    # n_classes, n_features, n_buckets, n_repetitions: K, d, B and R; with B = K and R = 1 the
    # classes are their own buckets, with R = 0 there are no hashed models and B is 1
    n_classes: Index
    n_features: Index
    n_buckets: Index
    n_repetitions: Repetitions
    # d': the first features, the most frequent ones, which hashed models know; all d where it is
    # unset, and then it is in no document
    hashed_features: Count | UnsetType = UNSET

    def __str__(self) -> str:
        if self.unhashed:
            return "no hashed models"
        text = "exact" if self.exact else f"{self.n_buckets} x {self.n_repetitions}"
        return f"{text} ({self.n_hashed_features:,} features)" if self.cut else text

    @property
    def n_columns(self) -> int:
        """R * B, the width of the weight table."""
        return self.n_repetitions * self.n_buckets

    @property
    def n_hashed_features(self) -> int:
        """d', the features that have a row in the weight table."""
        return self.n_features if self.hashed_features is UNSET else self.hashed_features

    @property
    def cut(self) -> bool:
        """Whether some features have none."""
        return self.hashed_features is not UNSET

    def wide(self, n_more: int = 0) -> Self:
        """Return it with as many features as the weight table has rows, D more."""
        n_rows = self.n_hashed_features + n_more
        return replace(self, n_features=n_rows, hashed_features=UNSET)

    @property
    def exact(self) -> bool:
        """Whether every class has a bucket of its own."""
        return (self.n_buckets, self.n_repetitions) == (self.n_classes, 1)

    @property
    def unhashed(self) -> bool:
        """Whether there are no hashed models."""
        return not self.n_repetitions

    @property
    def decoding(self) -> str:
        """How a CPU finds the best classes of many rows: see `backends.cpu.decoder`."""
        if self.unhashed:
            return ""
        return "one" if self.exact else "tile"


@dataclass(frozen=True, kw_only=True)
class ModelSpec(ModelShape):
    """Shape and hashes of a model."""

    # hash_a, hash_b: the R hashes `((a y + b) mod p) mod B`; empty when classes are their own
    # buckets
    hash_a: tuple[int, ...]
    hash_b: tuple[int, ...]
    # the R buckets of each class that was added after the training: the last ones, which are not
    # hashed. No class was added where it is empty
    added_codes: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        self._check_hashes()
        if self.n_hashed_features > self.n_features:
            raise ValueError("hashed models know more features than there are")
        if self.added_codes and not self.hash_a:
            raise ValueError("classes were added to a model without hashes")
        if self.added_codes and len(self.added_codes) >= self.n_classes:
            raise ValueError("more classes were added than there are")
        for code in self.added_codes:
            if len(code) != self.n_repetitions or not all(0 <= c < self.n_buckets for c in code):
                raise ValueError("the buckets of an added class do not fit the shape")

    def _check_hashes(self) -> None:
        if self.n_columns >= 2**31:
            raise ValueError("R * B is too large")
        if not self.hash_a:
            alone = (self.n_buckets, self.n_repetitions) in ((self.n_classes, 1), (1, 0))
            if self.hash_b or not alone:
                raise ValueError("the hashes do not fit the shape")
            return
        if not len(self.hash_a) == len(self.hash_b) == self.n_repetitions:
            raise ValueError("there are not R hashes")
        if not (all(1 <= a < P for a in self.hash_a) and all(0 <= b < P for b in self.hash_b)):
            raise ValueError("a hash is out of its range")

    @property
    def exact(self) -> bool:
        return not (self.hash_a or self.unhashed)

    def codes(self, first: int = 0, last: int | None = None) -> NDArray[np.unsignedinteger]:
        """Return the buckets of classes, uint8, uint16 or uint32 (n, R), added classes last."""
        last = self.n_classes if last is None else last
        if not self.hash_a:
            alone = hashing.codes((), (), self.n_classes, self.n_buckets)
            return alone[first:last]
        hashed = self.n_classes - len(self.added_codes)
        n = max(min(last, hashed) - first, 0)
        found = hashing.codes(self.hash_a, self.hash_b, n, self.n_buckets, first)
        if last <= hashed:
            return found
        added = self.added_codes[max(first - hashed, 0) : last - hashed]
        return np.concatenate([found, np.array(added, found.dtype)])

    def first(self, n_repetitions: int) -> ModelSpec:
        """Return the model of the first repetitions."""
        return self.some(0, n_repetitions)

    def some(self, first: int, last: int) -> ModelSpec:
        """Return the model of the repetitions ``first:last``."""
        some = slice(first, last)
        return replace(
            self, n_repetitions=last - first, hash_a=self.hash_a[some], hash_b=self.hash_b[some],
            added_codes=tuple(code[some] for code in self.added_codes),
        )  # fmt: skip

    def with_more_classes(self, added: NDArray[np.unsignedinteger]) -> ModelSpec:
        """Return the model with more classes, by their buckets: integers (n, R)."""
        more = tuple(tuple(code) for code in added.tolist()) if self.hash_a else ()
        return replace(
            self, n_classes=self.n_classes + len(added), added_codes=self.added_codes + more
        )

    @classmethod
    def unhashed_of(cls, shape: ModelShape) -> ModelSpec:
        """Return the model of a shape without hashed models."""
        return cls(
            n_classes=shape.n_classes, n_features=shape.n_features, n_buckets=1, n_repetitions=0,
            hash_a=(), hash_b=(),
        )  # fmt: skip

    @property
    def shape(self) -> ModelShape:
        """The shape alone."""
        return ModelShape(**{one.name: getattr(self, one.name) for one in fields(ModelShape)})

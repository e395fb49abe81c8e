"""The formats of stores and models: what this version writes last, and what it reads."""

from __future__ import annotations

STORE_FORMATS = (2, 3, 4)  # 4: rows have lists of labels
MODEL_FORMATS = (1, 2, 3, 4, 5, 6, 7, 8)

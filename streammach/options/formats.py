"""The formats of stores and models that this release writes and reads."""

from __future__ import annotations

STORE_FORMAT = 1
MODEL_FORMAT = 1

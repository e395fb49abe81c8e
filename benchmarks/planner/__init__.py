"""Whether plans keep their word: memory, accuracy, time."""

from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"

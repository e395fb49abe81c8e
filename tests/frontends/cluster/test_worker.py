"""What a worker of a cluster does of itself."""

import os
import resource
import subprocess
import sys

import pytest

from streammach.system import linux

ASKED = "MALLOC_TRIM_THRESHOLD_"
FAULTS = """
import resource, sys
import numpy as np
from streammach.system.linux import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.empty(1 << 20, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
with keep_freed_memory():
    faults()
    kept = faults()
print(first, kept, faults())
"""


def faults(**environment):
    """Return page faults of many arrays before, while and after memory is kept, and their pages."""
    if linux.c_function("mallopt") is None:
        pytest.skip("a C library without mallopt")
    inherited = {name: v for name, v in os.environ.items() if name != ASKED}
    told = subprocess.run(
        [sys.executable, "-c", FAULTS], env=inherited | environment, capture_output=True,
        text=True, check=True, timeout=60,
    )  # fmt: skip
    return [*map(int, told.stdout.split()), 50 * (1 << 20) // resource.getpagesize()]


def test_memory_is_kept_during_a_task_where_dask_wants_it_back():
    before, kept, after, pages = faults(**{ASKED: "65536"})
    assert before >= pages
    assert kept < pages / 10
    assert after >= pages


def test_nothing_is_changed_where_it_is_kept_already():
    _, kept, after, pages = faults()
    assert kept < pages / 10
    assert after < pages / 10

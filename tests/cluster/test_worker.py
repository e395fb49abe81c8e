"""What a worker of a cluster does of itself."""

import os
import resource
import subprocess
import sys

import pytest

from streammach import machine

FAULTS = """
import resource, sys
import numpy as np
from streammach.machine import freed_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.empty(1 << 20, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
with freed_kept():
    faults()
    kept = faults()
print(first, kept, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux' C library")
def test_memory_is_kept_during_a_task_where_dask_wants_it_back():
    if not hasattr(machine.ctypes.CDLL(None), "mallopt"):
        pytest.skip("a C library without mallopt")
    told = subprocess.run(
        [sys.executable, "-c", FAULTS], env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    before, kept, after = map(int, told.stdout.split())
    pages = 50 * (1 << 20) // resource.getpagesize()
    assert before >= pages
    assert kept < pages / 10
    assert after >= pages

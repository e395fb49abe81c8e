"""Kernels that commands keep: nobody else can write them, whatever the umask says."""

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_no_command_leaves_code_that_others_can_write(tiny, umask):
    folder, cache = tiny.folder, tiny.folder / "cache"
    tiny.text("rows.vw", tiny.lines(300, 12))
    shape = ["--buckets", "4", "--repetitions", "3", "--epochs", "1"]
    environment = {
        **os.environ, "NUMBA_CACHE_DIR": str(cache / "kernels"), "XDG_CACHE_HOME": str(cache)
    }  # fmt: skip
    for command in (
        ["convert", "rows.vw", "rows.zarr"], ["train", "rows.zarr", "--out", "run", *shape],
        ["predict", "run", "rows.vw", "--out", "best.txt"],
    ):  # fmt: skip
        subprocess.run(
            [sys.executable, "-m", "streammach", *command], cwd=folder, env=environment,
            umask=umask, check=True, capture_output=True,
        )  # fmt: skip
        found = list((cache / "kernels").rglob("*"))
        assert sum(path.suffix == ".nbc" for path in found) > 3
        assert not [path for path in found if path.stat().st_mode & 0o022]

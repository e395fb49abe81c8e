"""A machine with a card that does nothing: processes below a driver that is built here.

Below that driver and CuPy's stand-in (`site/cupy`), Numba's compiler, NVVM, nvJitLink and the
libraries that launch are the real ones: what is compiled, loaded and launched is what a card would
get, and the driver writes each launch down.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
FLAGS = ("-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")


def lacking():
    """What this machine lacks to be one: nothing where it can be."""
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        return "the simulator has no driver"
    if not sys.platform.startswith("linux"):
        return "the driver of the tests is one for Linux"
    if shutil.which("cc") is None:
        return "no C compiler (cc)"
    if importlib.util.find_spec("numba_cuda") is None:
        return 'numba-cuda is not installed: pip install "numba-cuda[cu12]"'
    return ""


@dataclass(frozen=True)
class Launch:
    """What the driver wrote down of a launch."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    static_shared: int
    dynamic_shared: int
    n_params: int
    param_bytes: int
    registers: int


class Machine:
    """Such a machine; the driver, its log and compiled kernels are in a folder."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "launches.txt"
        target = folder / "libcuda.so.1"
        subprocess.run(["cc", *FLAGS, "-o", target, FOLDER / "driver.c"], check=True)

    def environment(self, **facts):
        """The environment of a process there; facts are the driver's (``FAKE_CUDA_...``)."""
        paths = [str(ROOT), str(FOLDER / "site"), os.environ.get("PYTHONPATH", "")]
        libraries = [str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR") or str(self.folder / "kernels"),
            "FAKE_CUDA_LOG": str(self.log),
            **{f"FAKE_CUDA_{name.upper()}": str(value) for name, value in facts.items()},
        }

    def run(self, *arguments, environment=None, code=0):
        """Run Python there; return what it printed, and what else it said."""
        self.log.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, *arguments], env=environment or self.environment(), cwd=ROOT,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout, done.stderr

    def works(self, *works, **facts):
        command = ("-W", "error", "-m", "tests.backends.fake_driver.work", *works)
        out, _ = self.run(*command, environment=self.environment(**facts))
        return json.loads(out)

    def work(self, work, **facts):
        return self.works(work, **facts)[work]

    def launches(self):
        found = []
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            name, *numbers = line.split()
            n = [int(x) for x in numbers]
            found.append(Launch(name, tuple(n[:3]), tuple(n[3:6]), *n[6:11]))
        return found

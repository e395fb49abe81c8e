"""Installs a wheel in fresh environments and uses it: tox -e package.

python tools/check_wheel.py FOLDER [PYTHON ...]

The folder holds one wheel. Without interpreters it takes those that are found by their names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = [f"python3.{minor}" for minor in range(11, 20)]
ROWS, CLASSES = 6000, 600  # of a training: more than 500 classes are hashed
CHECK = """
import csv, pathlib, sys, streammach as sm
assert pathlib.Path(sm.__file__).is_relative_to(sys.prefix), sm.__file__
best = [row["label_1"] for row in csv.DictReader(open("best.csv"))]
wanted = [line.split()[0] for line in open("train.vw")]
right = sum(a == b for a, b in zip(best, wanted, strict=True))
assert right > 0.9 * len(wanted), right
print(sys.version.split()[0], "streammach", sm.__version__, right, "of", len(wanted), "rows right")
"""


def interpreters(names: list[str]) -> list[str]:
    """Return the interpreters that are there and start: a name may stand for none."""
    paths = [path for path in map(shutil.which, names) if path]
    starts = (subprocess.run([p, "-c", ""], capture_output=True, check=False) for p in paths)
    return [path for path, done in zip(paths, starts, strict=True) if not done.returncode]


def use(python: str, wheel: Path, folder: Path) -> None:
    """Install a wheel for an interpreter, and train and predict with it in a folder."""
    subprocess.run([python, "-m", "venv", folder / "env"], check=True)
    own, work = folder / "env/bin", folder / "work"
    work.mkdir()
    rows = (f"{i % CLASSES} | a{i % CLASSES} b{i % 7}\n" for i in range(ROWS))
    (work / "train.vw").write_text("".join(rows))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    for program, *more in (
        ("pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)),
        ("streammach", "--help"),
        ("streammach", "fit", "train.vw", "--out", "run", "--memory", "1GB"),
        ("streammach", "predict", "run", "train.vw", "-k", "1", "--out", "best.csv"),
        ("python", "-c", CHECK),
    ):
        done = subprocess.run(
            [own / program, *more], cwd=work, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{python}: {program} ends with {done.returncode}\n{done.stderr}")
    print(done.stdout, end="", flush=True)


def main(place: str, *names: str) -> int:
    """Check the wheel of a folder; return the exit code."""
    wheels = sorted(Path(place).resolve().glob("*.whl"))
    if len(wheels) != 1:
        print(f"{place}: one wheel is needed, there are {len(wheels)}; remove former ones")
        return 1
    found = interpreters(list(names or NAMES))
    if not found or (names and len(found) < len(names)):
        print(f"not all of these are there: {', '.join(names or NAMES)}")
        return 1
    for python in found:
        with tempfile.TemporaryDirectory() as folder:
            use(python, wheels[0], Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""What every benchmark says of where it ran, and how it reports."""

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("numpy", "numba", "zarr", "numcodecs", "scipy")
WIDTH = 500  # letters of a line of figures


def facts(*more_libraries):
    """Machine, versions and commit, as a JSON-ready dict."""
    processor = platform.processor()
    try:
        names = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x]
        processor = names[0].partition(":")[2].strip() if names else processor
    except OSError:
        pass
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:
        commit = ""
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "libraries": {name: installed(name) for name in (*LIBRARIES, *more_libraries)},
        "commit": commit,
    }


def installed(name):
    try:
        return None if name is None else version(name)
    except PackageNotFoundError:
        return None


def parser(description):
    """An argument parser with the options that all benchmarks share."""
    out = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    out.add_argument("--json", metavar="FILE", help="also write the figures here")
    return out


def text_of(figures, indent=0):
    """Figures as JSON: what has room in a line stands in one."""
    line = json.dumps(figures, default=str)
    if not isinstance(figures, dict | list) or indent + len(line) <= WIDTH:
        return line
    if isinstance(figures, dict):
        inner = [f"{json.dumps(key)}: {text_of(x, indent + 1)}" for key, x in figures.items()]
    else:
        inner = [text_of(x, indent + 1) for x in figures]
    space = "\n" + " " * (indent + 1)
    first, last = "{}" if isinstance(figures, dict) else "[]"
    return f"{first}{space}{f',{space}'.join(inner)}{space[:-1]}{last}"


def report(figures, path):
    """Write the figures as JSON where asked for."""
    if path:
        Path(path).write_text(text_of(figures) + "\n")
        print(f"written: {path}")

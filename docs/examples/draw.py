"""Runs the worked examples as their pages say and keeps the pictures that they draw.

``python docs/examples/draw.py [digits identifiers]`` from the root of a checkout;
``streammach-demo`` there, as ``streammach demo`` leaves it, is what identifiers.md draws.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
PICTURES = {"digits": "digits.png", "identifiers": "identifiers.svg"}


def main() -> None:
    """Draw the pictures that were named, or all."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the worked examples.")
    parser.add_argument("names", nargs="*", default=list(PICTURES), metavar="NAME")
    demo = Path("streammach-demo").resolve()
    for name in parser.parse_args().names:
        with tempfile.TemporaryDirectory() as folder:
            draw(name, Path(folder), demo)


def draw(name: str, folder: Path, demo: Path) -> None:
    """Run a page in a folder and copy its picture beside it; say what its blocks print."""
    from tests.doc_blocks import Session

    os.environ["MPLBACKEND"] = "agg"
    os.chdir(folder)
    if name == "identifiers":
        shutil.copytree(demo, folder / demo.name)
    session = Session(
        HERE / f"{name}.md", told=lambda what, printed: print(what, printed, sep="\n")
    )
    session.run(hidden=name != "identifiers")
    shutil.copy(folder / PICTURES[name], HERE / PICTURES[name])


if __name__ == "__main__":
    main()

"""Runs the worked example of digits as its page says and keeps the picture that it draws.

``python docs/examples/draw.py`` from the root of a checkout.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))


def main() -> None:
    """Run the page in an empty folder and copy its picture beside it."""
    from tests.doc_blocks import Session

    os.environ["MPLBACKEND"] = "agg"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        page = HERE / "digits.md"
        Session(page, told=lambda what, printed: print(what, printed, sep="\n")).run()
        shutil.copy(Path(folder, "digits.png"), HERE / "digits.png")


if __name__ == "__main__":
    main()

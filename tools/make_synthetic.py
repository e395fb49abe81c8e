"""Writes made-up rows that a classifier can learn, in the shape of ODP or of ImageNet's features.

python tools/make_synthetic.py odp train.vw.gz --test test.vw.gz --scale 0.01
"""

import sys
from pathlib import Path

from streammach.cli.main import main

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tools.synthetic.command import make

    sys.exit(main(command=make, name="make_synthetic.py"))

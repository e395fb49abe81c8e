"""Converts ImageNet's features, as VW's demos use them, into two stores.

python tools/convert_imagenet.py FOLDER_WITH_BOTH_FILES
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from streammach.cli.main import main
from tools.published.command import Published, command_of

IMAGENET = Published(
    name="ImageNet", address="http://hunch.net/~jl/datasets/imagenet/",
    train_file="training.txt.gz", test_file="testing.txt.gz",
    n_rows=12_777_062, n_test_rows=1_419_674, n_classes=21_841, n_features=6_144, first_label=1,
)  # fmt: skip

if __name__ == "__main__":
    run_as = "convert_imagenet.py"
    sys.exit(main(command=command_of(IMAGENET, f"tools/{run_as}"), name=run_as))

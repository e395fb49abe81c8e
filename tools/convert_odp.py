"""Converts the Open Directory Project's rows, as VW's demos use them, into two stores.

python tools/convert_odp.py FOLDER_WITH_BOTH_FILES
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from streammach.cli.main import main
from tools.published.command import Published, command_of

ODP = Published(
    name="ODP", address="http://hunch.net/~jl/",
    train_file="odp_train.vw.gz", test_file="odp_test.vw.gz",
    n_rows=1_084_404, n_test_rows=493_014, n_classes=105_033, n_features=422_713, first_label=1,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(command=command_of(ODP, "tools/convert_odp.py"), name="convert_odp.py"))

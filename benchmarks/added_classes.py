"""Classes added after training: are they found, and what do the others lose?

    python -m benchmarks.data.debian_packages FOLDER
    python -m benchmarks.added_classes FOLDER [--rows 20] [--json FILE]

FOLDER holds train.csv and test.csv, whose column `maintainer` is the label. Thirty classes of 20 to
80 rows are left out of the training rows, a model is trained on the rest, and the thirty are added
from 20 rows each. Test rows of all classes are ranked before and after. `retrained` is a model that
was trained on the rest and the same rows of the thirty: what is to be had.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts, parser, report
from benchmarks.text_table import LABEL, tables

N_NEW, LEAST, MOST = 30, 20, 80
MEMORY = "1GB"


def split(train, n_rows):
    """Rows of the other classes, and some rows of each class that is left out."""
    sizes = train[LABEL].value_counts()
    drawn = np.sort(sizes[(sizes >= LEAST) & (sizes <= MOST)].index.to_numpy())
    new = np.random.default_rng(1).choice(drawn, N_NEW, replace=False)
    own = train[LABEL].isin(new)
    return train[~own], train[own].groupby(LABEL, sort=False).head(n_rows)


def shares(model, test, new):
    """How many test rows are found first and among five, of new classes and of the others."""
    same = model.predict(test, k=5) == test[LABEL].to_numpy()[:, None]
    own = test[LABEL].isin(new).to_numpy()
    return {
        f"{name}_{place}": float(same[rows, :k].any(axis=1).mean())
        for name, rows in (("others", ~own), ("new", own))
        for place, k in (("first", 1), ("five", 5))
    }


def line(name, found):
    """The figures of a model for people."""
    print(
        f"{name:10} other rows: accuracy {found['others_first']:.3f}, top-5 "
        f"{found['others_five']:.3f}   new classes: {found['new_first']:.3f}, "
        f"{found['new_five']:.3f}", flush=True
    )  # fmt: skip


def main():
    """Train, add, and compare."""
    import pandas

    import streammach as sm

    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--rows", type=int, default=20, help="of a new class")
    given = arguments.parse_args()
    train, test = tables(given.folder)
    rest, some = split(train, given.rows)
    new = some[LABEL].unique()
    options = {"memory": MEMORY, "threads": 1}
    found = {}
    with tempfile.TemporaryDirectory() as work:
        run, rows = Path(work) / "run", Path(work) / "new.csv"
        some.to_csv(rows, index=False)
        before = sm.train(rest, LABEL, out=run, **options).model
        began = time.process_time()
        after = sm.add(run, rows, Path(work) / "more", threads=1)
        seconds = time.process_time() - began
        found["before"], found["after"] = (shares(m, test, new) for m in (before, after))
        both = pandas.concat([rest, some])
        found["retrained"] = shares(sm.train(both, LABEL, **options).model, test, new)
    for name, figures in found.items():
        line(name, figures)
    print(f"added in {seconds:.1f} s of the processor")
    own = test[LABEL].isin(new)
    report({
        "machine": facts("pandas", "pyarrow"), "known_classes": int(rest[LABEL].nunique()),
        "new_classes": len(new), "rows_of_a_new_class": given.rows, "model": repr(before),
        "test_rows": {"others": int((~own).sum()), "new": int(own.sum())},
        "seconds_to_add": seconds, "figures": found,
    }, given.json)  # fmt: skip


if __name__ == "__main__":
    main()

"""How many of the labels that were flipped come first among suspects.

    python -m benchmarks.suspects NAME=STORE[:CLASSES] ... [--memory 2GB] [--folds 3] [--time T]

Of the rows of a store, or of those of its most frequent classes, 2% get another label at random,
any of those that occur with the same chance. Then suspects are found. Printed is how many rows are
listed, those that are expected to be wrong, and how many with `--all`, and the flipped ones among
both; the share of flipped rows among the first 2% of the list; and among the first 2% in cleanlab's
orders of the same probabilities: by self-confidence, the probability of a row's label, and by the
normalised margin, that less the best probability of another label. The probabilities are those of
`predict`: classes after the 32 best share what is left evenly.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

import streammach as sm
from benchmarks.machine_facts import facts, parser, report, text_of
from streammach.planning.constraints import Constraints
from streammach.store.dataset import Dataset
from streammach.store.holdout import copy_rows
from streammach.training import out_of_fold

SHARE, SEED = 0.02, 1


class Flipped(Dataset):
    """A view of a store whose rows have other classes, `classes` int32 (n,)."""

    def rows(self, start, stop):
        """Return rows with them."""
        return replace(super().rows(start, stop), classes=self.classes[start:stop])


def flip(store, folder, n_classes, share=SHARE, seed=SEED):
    """Write a store of the rows of some classes, a share of them with wrong labels.

    Returns the numbers of these rows, and their true classes by number.
    """
    rng = np.random.default_rng(seed)
    with Dataset.open(store) as data:
        view = Flipped(data.path, data.root, data._arrays, data._documents, blobs=data._blobs)
        true = data.array("y")
        chosen = true < (n_classes or data.n_classes)
        some = rng.choice(np.flatnonzero(chosen), round(share * chosen.sum()), replace=False)
        there = np.unique(true[chosen])
        place = np.searchsorted(there, true[some]) + rng.integers(1, len(there), len(some))
        view.classes = true.copy()
        view.classes[some] = there[place % len(there)]
        copy_rows(view, folder, chosen)
        numbers, _ = data.origins(0, data.n_rows)
        return numbers[some]


def first(rows, wrong):
    """The share of wrong rows among the first of a list: as many as are wrong."""
    return round(float(np.isin(rows[: len(wrong)], wrong).sum() / len(wrong)), 4)


def of_store(store, n_classes, folds, constraints, folder):
    """What is found, by the order."""
    wrong, seen, own = flip(store, folder, n_classes), [], out_of_fold.suspects_of

    def noted(*given):
        seen.append(own(*given))
        return seen[-1]

    began = time.monotonic()
    with mock.patch.object(out_of_fold, "suspects_of", noted):
        found = sm.suspects(
            folder, folds=folds, constraints=constraints, everything=True, progress="plain"
        )
    rows = np.concatenate([of_rows for of_rows, _, _ in seen])
    margin = rows["probability"] - rows["suggested_probability"]
    by = {
        "self_confidence": np.argsort(rows["probability"], kind="stable"),
        "normalised_margin": np.argsort(margin, kind="stable"),
        "log_odds": np.argsort(-rows["log_odds"], kind="stable"),
    }  # fmt: skip
    same = found.rows["duplicates"] > 0
    cut = found.rows["row"][: max(found.n_expected, int(same.sum()))]
    return {
        "rows": found.n_rows, "flipped": len(wrong), "listed": len(cut),
        "flipped_listed": int(np.isin(cut, wrong).sum()), "possible": len(found.rows),
        "flipped_possible": int(np.isin(found.rows["row"], wrong).sum()),
        "accuracy": round(float((margin > 0).mean()), 4),
        "suspects": first(found.rows["row"], wrong),
        **{name: first(rows["row"][order], wrong) for name, order in by.items()},
        "duplicates": int(same.sum()),
        "flipped_duplicates": int(np.isin(found.rows["row"][same], wrong).sum()),
        "seconds": round(time.monotonic() - began),
    }  # fmt: skip


def main():
    arguments = parser(__doc__)
    arguments.add_argument("stores", nargs="+", metavar="NAME=STORE[:CLASSES]")
    arguments.add_argument("--memory", default="2GB")
    arguments.add_argument("--folds", type=int, default=out_of_fold.FOLDS)
    arguments.add_argument("--time")
    arguments.add_argument("--threads", type=int, default=1)
    options = arguments.parse_args()
    shape = Constraints(memory=options.memory, time=options.time, threads=options.threads)
    figures = {}
    for one in options.stores:
        name, _, place = one.partition("=")
        store, _, n = place.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = of_store(
                store, int(n or 0), options.folds, shape, Path(folder) / "rows"
            )
    figures |= {"folds": options.folds, "machine": facts()}
    print(text_of(figures))
    report(figures, options.json)


if __name__ == "__main__":
    main()

"""Bytes of counts beside hashed models, by name."""

from __future__ import annotations

from streammach.counts.count_kernels import INDEX_BYTES
from streammach.counts.label_learning import LabelLearner
from streammach.counts.neighbour_search import NeighbourSearch
from streammach.counts.pair_learning import PairLearner
from streammach.counts.scores import CountScorer
from streammach.counts.table import CountTable
from streammach.linear.descent import ClassRoom
from streammach.linear.late import NEGATIVES
from streammach.options.config import RunConfig
from streammach.options.facts import DataFacts
from streammach.parts.counts.group_kernels import FitRoom
from streammach.rows.block import RowBlock
from streammach.rows.neighbours import ROW_BYTES, Neighbours
from streammach.rows.pairs import CountWeights, PairTable

# A pair: gain 2, spread gains 1, weight 4, sum of squares 4, places; before: marks.
WEIGHT_BYTES = 11 + INDEX_BYTES
NEAR_BYTES, LEAST_NEAR = 8, 32_000_000  # of training rows whose labels gain, a pair; at least
# Of rows that classifiers are learnt from at the end, a pair; at least. A value of them: in rows,
# scaled, and some two weights while they are put in order; a class that a row is taken for, twice.
LATE_BYTES, LEAST_LATE, LATE_VALUE, LATE_CLASS = 32, 64_000_000, 80, 8
LATE_WEIGHT = 8  # of a classifier, of which a value of the rows has two or fewer
LABEL_BYTES = 16  # of the rows that labels are learnt from, a pair; they have no sums of squares
# While forms of a model are judged: gain 2, spread gains 1, weight 4, places; those of a form.
JUDGED_BYTES = 7 + INDEX_BYTES + 4
MODEL_BYTES = CountWeights.footprint(pairs=1) + 1  # a pair on disk: a byte of gains in `wide`
SKETCH_ERROR = 0.05  # six standard errors of the estimate of the pairs
FIT_BYTES = 192_000_000  # evidence for the group weights
FIT_CANDIDATES = 64
FIT_PIECES = 16  # of the rows of a fit, each with derivatives of its own
SYSTEMS = 5  # of their sum, and copies of it while it is solved
# Of names of labels: pairs beside these of counts, a pair, at least; a pair while they are found,
# and a byte of the names, whose words are held with their classes; a pair that stays, as one of
# names and one of counts.
NAME_SHARE, LEAST_NAMES, NAME_PAIR, NAME_BYTE = 4, 1_000_000, 64, 40
NAME_KEPT = 10 + CountWeights.footprint(pairs=1)
MAX_GROUPS = 85
MAX_CLASSES = 1 << 30


def pair_room(facts: DataFacts) -> int:
    """Return how many pairs a store may hold: an upper bound for its estimate."""
    most = facts.nnz * max(facts.max_row_labels, 1)
    return min(int(facts.n_pairs * (1 + SKETCH_ERROR)) + 1000, most)


def evidence_bytes(n_rows: int, n_groups: int) -> int:
    """Return the bytes of the evidence of rows with so many groups, summed, and of their fit."""
    return FIT_CANDIDATES * (52 * n_rows + 8 * n_groups)


def footprint(facts: DataFacts, config: RunConfig) -> dict[str, int]:
    """Return the bytes of every buffer of counting, fitting and learning, by name."""
    max_pairs, threads = config.size_of("counts"), config.placement.threads
    if not max_pairs:
        return {}
    n_fit = config.batching.held_out_rows
    fit = min(FIT_BYTES, evidence_bytes(n_fit, n_fit * min(facts.max_row_nnz, MAX_GROUPS)))
    fit += (FIT_PIECES + SYSTEMS) * 8 * (3 * MAX_GROUPS + 4) ** 2
    fit += threads * FitRoom.footprint(MAX_GROUPS, FIT_CANDIDATES)
    n_wide = CountWeights.most_wide(max_pairs, facts.n_classes)
    names = name_bytes(facts, max_pairs)
    if facts.listed:
        lessons = LabelLearner.footprint(facts.n_classes, facts.n_features, n_wide, threads)
        lessons += (LABEL_BYTES - 4) * max_pairs
        # One after another: fits, lessons, neighbours, names of labels, classifiers.
        last = max(names, late_bytes(facts, max_pairs, threads))
        fit = max(fit, lessons, neighbour_bytes(facts, max_pairs, threads) + last)
    else:
        learner = PairLearner.footprint(
            facts.n_classes, n_wide, facts.max_row_nnz, threads, nnz=facts.nnz
        )
        fit = max(fit + learner, names)
    kept = NAME_KEPT * name_room(facts, max_pairs)
    return {
        **_lists(facts, max_pairs, WEIGHT_BYTES), "count fit": fit,
        "count scores": _scores(facts, config), **({"names of labels": kept} if kept else {}),
    }  # fmt: skip


def judging_bytes(facts: DataFacts, config: RunConfig) -> int:
    """Return the bytes of counts and of those of a form, while forms of a model are judged."""
    max_pairs = config.size_of("counts")
    if not max_pairs:
        return 0
    # Beside the scorer of a form stands that of the whole model.
    lists = sum(_lists(facts, max_pairs, JUDGED_BYTES).values())
    near = neighbour_bytes(facts, max_pairs, config.placement.threads) + late(facts, max_pairs)
    return 2 * _scores(facts, config) + lists + near


def near_room(max_pairs: int) -> int:
    """Return the most bytes of training rows beside so many planned pairs."""
    return max(NEAR_BYTES * max_pairs, LEAST_NEAR)


def neighbour_bytes(facts: DataFacts, max_pairs: int, threads: int) -> int:
    """Return the bytes of the first rows of a store as neighbours, and of their search."""
    if not facts.listed:
        return 0
    whole = Neighbours.footprint(
        features=facts.n_features, nnz=facts.nnz, rows=facts.n_rows, labels=facts.n_labels
    )
    found = min(whole, near_room(max_pairs))
    n_rows = min(facts.n_rows, found // ROW_BYTES)
    return found + 2 * NeighbourSearch.footprint(n_rows, facts.n_classes, threads)


def name_room(facts: DataFacts, max_pairs: int) -> int:
    """Return how many pairs names of labels have at most; none where labels have no names."""
    return max(max_pairs // NAME_SHARE, LEAST_NAMES) if facts.label_name_bytes else 0


def name_bytes(facts: DataFacts, max_pairs: int) -> int:
    """Return the bytes of pairs of names while they are found, and of counts with them."""
    room = name_room(facts, max_pairs)
    copies = 2 * CountWeights.footprint(pairs=1) * (max_pairs + room)
    copies += NAME_PAIR * room + NAME_BYTE * facts.label_name_bytes + 10 * facts.n_features
    return copies if room else 0


def late_rows(facts: DataFacts, max_pairs: int) -> int:
    """Return how many rows classifiers are learnt from, beside so many pairs."""
    return min(facts.n_rows, max(LATE_BYTES * max_pairs, LEAST_LATE) // late_row_bytes(facts))


def late_row_bytes(facts: DataFacts) -> int:
    """Return the bytes of a row that classifiers are learnt from, and of their weights."""
    labels = NEGATIVES + max(facts.n_labels, facts.n_rows) / facts.n_rows
    return int(LATE_VALUE * facts.nnz / facts.n_rows + LATE_CLASS * labels) + 64


def late(facts: DataFacts, max_pairs: int) -> int:
    """Return the bytes of the classifiers, about."""
    if not facts.listed:
        return 0
    n_values = facts.nnz * late_rows(facts, max_pairs) // max(facts.n_rows, 1)
    return 2 * LATE_WEIGHT * n_values + 12 * facts.n_features + 4 * facts.n_classes


def late_bytes(facts: DataFacts, max_pairs: int, threads: int) -> int:
    """Return the bytes of rows that classifiers are learnt from, and of scratch."""
    n_rows = late_rows(facts, max_pairs)
    scratch = threads * ClassRoom.footprint(facts.n_features, n_rows)
    return n_rows * late_row_bytes(facts) + scratch + 24 * facts.n_classes


def _scores(facts: DataFacts, config: RunConfig) -> int:
    k, n_repetitions = facts.n_classes, config.shape.n_repetitions
    n_wide = CountWeights.most_wide(config.size_of("counts"), k)
    return CountScorer.footprint(k, n_wide, n_repetitions, config.placement.threads)


def _lists(facts: DataFacts, max_pairs: int, pair_bytes: int) -> dict[str, int]:
    """Return the bytes of the table and of its weights, so many a pair, by name."""
    d, k = facts.n_features, facts.n_classes
    table = CountTable.footprint(features=d, classes=k, pairs=max_pairs)
    weights = CountWeights.footprint(features=d, classes=k) - PairTable.footprint(features=d)
    repeated = RowBlock.repeated_footprint(
        facts.max_block_nnz, facts.max_block_labels, facts.max_row_nnz, facts.max_row_labels
    )
    copied = 8 * facts.max_block_nnz if facts.shared else 0
    return {
        "count table": table + 8 * d + 8 * k + repeated + copied,
        "count weights": weights + pair_bytes * max_pairs + 36 * d + 8 * k,
    }

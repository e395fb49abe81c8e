"""How long a training takes: its work by kind, times what a unit of work takes on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from streammach.counts.tile import MAX_CLASSES
from streammach.planning.ledger import Sizes
from streammach.planning.schedule import EPOCHS, screen, trial
from streammach.spec import DataFacts, ModelSpec

# Seconds of one thread on the machine of docs/planner.md, for a unit of work.
STEP = 0.87e-9  # a value and a column of a sparse training step
FORWARD = 0.22e-9  # the same of a forward pass alone
VALUE = 330e-9  # a value of a row in a pass: decoding, batches, lists by feature
DENSE, COLUMN = 0.032e-9, 14.7e-9  # a feature and a column, and a column, of a dense step
BASIS = 0.011e-9  # a feature and a feature of a row that is whitened
DIRECTION = 0.3e-9  # three features: directions of a covariance
JOINT_ROW, JOINT_MODEL = 8e-6, 0.4e-6  # a row, and a repetition of one, that learn jointly
SCORE = 0.15e-9  # a class and a repetition of a row whose best classes are found
RANK = 1.2e-9  # the same for all estimators together, the median being the slowest
COUNT = 300e-9  # a value of a row that is counted
FIT_ROW, FIT_POSTING = (
    300e-6,
    2e-9,
)  # a held-out row, and a posting of one, while weights are fitted
LEARN_ROW, POSTING = 90e-6, 0.75e-9  # a row, and a posting of one, that pairs are learnt from
CLOSED = 6e-12  # a row, a feature, and a feature or eight columns of a closed form
# Of a query, on one thread: a feature and a column of a dense row; a column's exponential and
# logarithm; a class; a class beside counts, and a repetition of it: where rows are taken together,
# and where they are not, as if no class could be left out.
QUERY_DENSE, QUERY_COLUMN, QUERY_CLASS = 0.05e-9, 9e-9, 0.05e-9
QUERY_TILE, QUERY_ALONE = (4.4e-9, 0.11e-9), (3.2e-9, 0.75e-9)
# The same, whatever the threads.
START, TRIAL, FIT = 3.0, 0.3, 1.0  # opening; a trial; weights of counts for one way to group
BYTE = 2e-9  # written to disk: a checkpoint an epoch, another and the model at the end
RATES, TRANSFORMS = 3.3, 3.0  # tried in a search, on average
WHITE_RATES = 2.0  # tried with whitened rows: one where they do not pay
GROUPINGS = 3
LEARN_WORK = 5e11  # postings that pairs are learnt from, at most


@dataclass(frozen=True)
class Cost:
    """Seconds of a training, by part."""

    search: float
    epochs: float
    finish: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return START + self.search + self.epochs + self.finish


def cost(facts: DataFacts, model: ModelSpec, sizes: Sizes, speed: float = 1.0) -> Cost:
    """Return the expected time of a training with nothing given but its budget.

    Parameters
    ----------
    facts : DataFacts
        The store.
    model : ModelSpec
        The model.
    sizes : Sizes
        How it is trained.
    speed : float
        How many times as fast as the reference a thread of this machine is.
    """
    step = apart = _step(facts, model, sizes)
    n, held, epochs = facts.n_rows, sizes.validation_rows, EPOCHS[sizes.dense]
    decoded = model.n_classes * model.n_repetitions
    measure = held * (step / 3 + SCORE * decoded)
    rates = RATES + (WHITE_RATES if sizes.whitened else 0.0)
    tried = [(rates, apart, trial(n, epochs)), (TRANSFORMS, apart, screen(n))]
    if sizes.dense and not model.exact:  # held-out rows choose the joint loss there
        step += JOINT_ROW + model.n_repetitions * JOINT_MODEL + SCORE * decoded
        tried.append((RATES, step, trial(n, epochs)))
    search = sum(times * (rows * passes * of + measure) for times, of, (rows, passes) in tried)
    search += facts.n_features**3 * DIRECTION if sizes.whitened else 0.0
    finish = held * (step + RANK * decoded) + _beside(facts, model, sizes)
    scale = 1 / (sizes.threads * speed)
    written = 4.0 * model.n_features * model.n_columns * BYTE
    groupings = GROUPINGS + 1 if sizes.max_pairs else 0
    return Cost(
        search * scale + sum(times for times, _, _ in tried) * TRIAL,
        epochs * ((n * step + measure) * scale + written),
        finish * scale + 2 * written + groupings * FIT,
    )


def query(facts: DataFacts, model: ModelSpec, sizes: Sizes, speed: float = 1.0) -> float:
    """Return the seconds that a row of many takes one thread to predict; beside counts, at most.

    How many classes have to be looked at depends on the data; beside counts all are reckoned with.

    Parameters
    ----------
    facts : DataFacts
        The store.
    model : ModelSpec
        The model.
    sizes : Sizes
        How it is trained: whether rows are dense, and room for pairs.
    speed : float
        How many times as fast as the reference a thread of this machine is.
    """
    values = facts.n_features * QUERY_DENSE if sizes.dense else facts.nnz / facts.n_rows * FORWARD
    seconds = model.n_columns * (values + QUERY_COLUMN)
    classes, sums = model.n_classes, model.n_classes * model.n_repetitions
    if sizes.max_pairs:
        each, summed = QUERY_TILE if classes <= MAX_CLASSES else QUERY_ALONE
        return (seconds + classes * each + sums * summed) / speed
    return (seconds + (classes + sums) * QUERY_CLASS) / speed


def _step(facts: DataFacts, model: ModelSpec, sizes: Sizes) -> float:
    """Return the seconds of a row of a training step."""
    if sizes.dense:
        basis = facts.n_features**2 * BASIS if sizes.whitened else 0.0
        return model.n_columns * (facts.n_features * DENSE + COLUMN) + basis
    return facts.nnz / facts.n_rows * (model.n_columns * STEP + VALUE)


def _beside(facts: DataFacts, model: ModelSpec, sizes: Sizes) -> float:
    """Return the seconds of what stands beside the hashed models."""
    if sizes.closed_form:
        wide = facts.n_features + 8 * model.n_columns
        return facts.n_rows * facts.n_features * wide * CLOSED
    if not sizes.max_pairs:
        return 0.0
    postings = facts.row_postings
    learnt = min(facts.n_rows, LEARN_WORK / max(postings, 1))
    fitted = (GROUPINGS + 1) * sizes.validation_rows
    return (
        facts.nnz * COUNT
        + learnt * (LEARN_ROW + postings * POSTING)
        + fitted * (FIT_ROW + postings * FIT_POSTING)
    )

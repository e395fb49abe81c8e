"""How good predictions are: top-k accuracy and log loss, or the metrics of lists of labels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from streammach.backends.protocol import Backend
from streammach.conversion.memory_labels import name_as_cells, take_rows, to_labels
from streammach.inputs.bad_rows import BadRows, listed_rows, skipping
from streammach.inputs.identity import PLACE
from streammach.inputs.label_arrays import Labels
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.inputs.tables.memory_objects import as_rows, is_pair, is_table, rows_and_labels
from streammach.model.model import Model
from streammach.options.annotated import check_options
from streammach.options.estimators import estimators as all_estimators
from streammach.options.figures import HeldOutMetrics, figures_text
from streammach.options.option_fields import add_attributes, add_parameters, attribute
from streammach.options.reported import FigureTable, Reported
from streammach.options.types import Estimator, Ranker, Transform
from streammach.prediction.by_class import Confusion, EachClass, Slices
from streammach.prediction.inputs import InputCounts, rows_of
from streammach.prediction.metric_table import BlockSums, EvaluationRequest, MetricSums
from streammach.prediction.metrics import DEFAULT_A, DEFAULT_B, F1, Decile, SetMetrics
from streammach.prediction.options import EvaluateOptions, ListedRowOptions
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranked_rows import rank_rows
from streammach.prediction.ranking import by_hashes
from streammach.prediction.room import NOTHING
from streammach.prediction.selection_metrics import measure_ranking
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.names import Names
from streammach.system.errors import DataError, UsageError, clean, type_name
from streammach.system.files.urls import locate
from streammach.system.progress import ProgressBar, Wanted

NAN = float("nan")
# Fields that say nothing of rows with lists.
OF_ONE_LABEL = {"accuracy", "top_3_accuracy", "top_5_accuracy", "log_loss", "ece_before",
                "macro_recall", "recall_by_decile"}  # fmt: skip


@add_attributes
@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(Reported):
    """What a model reaches on labelled rows.

    Where the rows or the model's have lists of labels, ``accuracy``, ``top_3_accuracy`` and
    ``top_5_accuracy`` are precision at 1, 3 and 5, `n_unseen` counts labels, and ``log_loss`` is
    NaN.
    """

    n_rows: int = attribute("All rows; those with an unseen label count as wrong.")
    n_unseen: int = attribute("Rows whose label was never seen in training.")
    unknown_values: int = attribute("Values left out because the model lacks their feature.")
    accuracy: float = attribute("Share of the rows whose label is the first.")
    top_3_accuracy: float = attribute("Share of those whose label is among the first 3.")
    top_5_accuracy: float = attribute("Share of those whose label is among the first 5.")
    log_loss: float = attribute(
        "Mean of ``-ln p`` of the label over the rows whose label was seen in training, in nats; "
        "NaN if there are none. The probabilities sum to 1 over all classes."
    )
    majority: float = attribute("Share of the rows with the most frequent class of the training.")
    estimator: Ranker = attribute("How classes were ranked.")
    seconds: float = attribute("Time taken.")
    sets: SetMetrics | None = attribute("The metrics of rows with lists of labels.", None)
    f1: F1 | None = attribute(
        "F1 of the labels of such rows whose probability is at least `threshold`.", None
    )
    threshold: float = attribute("That probability.", 0.5)
    precision: float = attribute(
        "Share of these labels that are right; of rows with one label each of the best classes "
        "that are so likely. NaN without any.", NAN,
    )  # fmt: skip
    recall: float = attribute("Share of the rows' labels that are among them.", NAN)
    ece: float = attribute(
        "Expected calibration error of the best class, of the rows whose label was seen in "
        "training: mean distance of stated probability and share that is right in 15 equally wide "
        "ranges. With lists that of the ten best labels of each row. NaN without such rows.", NAN,
    )  # fmt: skip
    ece_before: float = attribute(
        "That of the scores before they are calibrated; NaN with lists.", NAN
    )
    macro_recall: float = attribute(
        "Mean over the classes that occur of the share of their rows whose best class is right; "
        "NaN without such rows, or with lists.", NAN,
    )  # fmt: skip
    recall_by_decile: tuple[Decile, ...] = attribute(
        "Recall at 1 by tenths of the classes, from those that are frequent in training to rare "
        "ones; empty with lists.", (),
    )  # fmt: skip
    estimators: dict[Ranker, dict[str, float]] = field(
        default_factory=dict, metadata=attribute(
            "``accuracy`` and ``top_5_accuracy`` by the way to rank, where it was asked for."
        ).metadata,
    )  # fmt: skip
    by: Slices | None = attribute(
        "Accuracy by the values of a namespace, where it was asked for.", None
    )
    at: dict[str, float] = field(
        default_factory=dict, metadata=attribute(
            "Of rows with one label: P, N (nDCG), R and F1 at the places that were asked for, such "
            'as ``"N@10"``; as of lists with one label. Those of lists are in `sets`.'
        ).metadata,
    )  # fmt: skip
    by_class: EachClass | None = field(default=None, compare=False)  # what `classes` is made of
    confusions: tuple[Confusion, ...] = attribute(
        "Pairs of a class and what is said in its place, the most frequent first, as asked for.", ()
    )
    skipped: dict[str, int] = field(
        default_factory=dict, metadata=attribute("Rows that could not be read, by reason.").metadata
    )

    @property
    def classes(self) -> FigureTable | None:
        """The figures of each class that occurs or is predicted; None without ``by_class=True``.

        Columns are ``label``, ``rows``, ``predicted`` (for how many rows it is), ``precision``,
        ``recall``, ``f1``, ``probability`` (that of the true label, in the mean), ``confusion``
        (what is said most often in its place), ``share`` (of its rows for which that is), and
        ``examples`` (numbers of rows that miss it, three at most).
        """
        return None if self.by_class is None else self.by_class.table()

    def json_fields(self) -> dict[str, Any]:
        """Return what the command ``evaluate`` prints as JSON; metrics of lists by their names.

        Those that rows with one label alone have are not among these.
        """
        record, sets, f1 = self.record(), self.sets, self.f1
        for name in ("sets", "f1", "at"):
            del record[name]
        if sets is None or f1 is None:
            return record | self.at
        return {
            **{name: value for name, value in record.items() if name not in OF_ONE_LABEL},
            **sets.by_name(), "n_labels": sets.n_labels, "decile_recall": sets.decile_recall,
            "micro_f1": f1.micro, "macro_f1": f1.macro,
        }  # fmt: skip

    def record(self) -> dict[str, Any]:
        """Return the fields by name, records in them too, without arrays by class."""
        found = asdict(replace(self, by_class=None))
        del found["by_class"]
        return found

    def _line(self) -> str:
        figures = figures_text(self, listed=self.sets is not None)
        return f"{figures}, {self.n_rows:,} rows, {self.estimator}"


def choose_estimator(
    backend: Backend, rows: RowBlock, transform: Transform
) -> tuple[Estimator, dict[Estimator, HeldOutMetrics]]:
    """Return the estimator to use, and what every one reaches on rows.

    The first of the list is used unless another one is better by more than a standard error of
    accuracy. With one repetition all rank alike and only the first is measured.
    """
    names = all_estimators()[: 1 if backend.spec.n_repetitions == 1 else None]
    found = {name: measure_ranking(rows, by_hashes(backend, name, transform)) for name in names}
    usual, best = found[names[0]], max(names, key=lambda name: found[name].selection_score)
    enough = usual.selection_score + usual.error(rows.n_alike)
    return best if found[best].selection_score > enough else names[0], found


@add_parameters(EvaluateOptions, ListedRowOptions)
def evaluate(
    predictor: Predictor | Model | str | os.PathLike[str], path: Any, y: Any = None, *,
    options: SourceOptions = GUESSED, progress: Wanted = None, threshold: float = 0.5,
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B), estimators: bool = False,
    by: str | None = None, at: Sequence[int] = (), by_class: bool = False, confusions: int = 0,
    on_bad_row: str = "error", max_bad: int | None = None,
    rejects: str | os.PathLike[str] | None = None, force: bool = False,
) -> Evaluation:  # fmt: skip
    """Return what a model reaches on a store, a labelled text or rows in memory.

    Labels are compared by their names, so the input may number its classes as it likes.

    Parameters
    ----------
    predictor : Predictor, Model, or path-like
        The model with its estimator; or a model, or the folder of one or of a run.
    path : path-like, rows, (X, y), or table
        A store, or a labelled file of any format that can be converted; or rows in memory, with
        their labels as `y` or in a pair, or a table with the column of labels of the model's
        recipe.
    y : array, list or matrix, optional
        The labels of rows in memory; of a table also the name of their column, as in training.
    options : SourceOptions, optional
        How a file is read, and where its labels are; guessed otherwise.
    progress : bool, str or callable, optional
        Whether it is told how it goes, as for :func:`streammach.train`.
    by_class : bool
        Tell the figures of each class: ``classes``. Where rows have one label the first class is
        predicted, where they have lists each label with a probability of `threshold` or more.

    Raises
    ------
    UsageError, DataError, StoreError, DiskError
        If the input cannot be read or holds no rows; if the model has no feature of such a
        namespace.
    BudgetError
        If it does not fit the predictor's memory.
    """
    check_options(evaluate.__annotations__, locals())
    began, skip, seen = time.monotonic(), skipping(on_bad_row, max_bad), InputCounts()
    path = path if y is None else (path, y)
    in_memory = not isinstance(path, str | os.PathLike)
    place = PLACE if in_memory else locate(path)
    listed = listed_rows(rejects, skip=skip, most=max_bad, force=force, inputs=[place])
    request = EvaluationRequest(
        threshold=threshold, propensity=propensity, estimators=estimators, by=by, at=tuple(at),
        by_class=by_class, confusions=confusions,
    )  # fmt: skip
    with ExitStack() as stack:
        bad_rows = stack.enter_context(listed)
        if not isinstance(predictor, Predictor):
            known = predictor if isinstance(predictor, Model) else Model.load(predictor)
            predictor = stack.enter_context(Predictor(known))
        model = predictor.model
        beside = request.beside(model.spec.n_classes)
        room = predictor.room(
            "evaluate", None if in_memory else place, request.cells(), options, beside
        )
        if in_memory:
            blocks = room.cut(_labelled_rows(predictor, path, seen, bad_rows))
        else:
            blocks = rows_of(place, model, seen, room, options=options, bad_rows=bad_rows)
        report = stack.enter_context(ProgressBar(progress, "rows"))
        report("evaluate", 0, 0)
        sums = sum_metrics(
            predictor, blocks, request, place, lambda _: report("evaluate", seen.rows, seen.total)
        )
    if not seen.rows:
        raise DataError("it holds no rows", path=place)
    room.keep_kernels()
    return evaluation_of(sums, seen, predictor.estimator, began, bad_rows.reasons)


def sum_metrics(
    predictor: Predictor, blocks: Iterable[RowBlock], request: EvaluationRequest,
    path: str | os.PathLike[str], report: Callable[[int], None] = lambda n_rows: None,
) -> MetricSums:  # fmt: skip
    """Return what the rows of an input add up to."""
    sums = MetricSums(predictor.model, request)
    for more in count_blocks(predictor, sums, blocks, path):
        sums.add(more)
        report(int(sums["rows"][0]))
    return sums


def count_blocks(
    predictor: Predictor, sums: MetricSums, blocks: Iterable[RowBlock],
    path: str | os.PathLike[str],
) -> Generator[BlockSums, None, None]:  # fmt: skip
    """Yield what each block of an input adds."""
    for block in blocks:
        yield sums.count(rank_rows(predictor, block, sums.request.most, path))


def _labelled_rows(
    predictor: Predictor, rows: Any, seen: InputCounts, bad_rows: BadRows | None = None
) -> RowBlock:
    """Return labelled rows in memory with the model's ids, -1 for a label it does not know.

    `rows` is (X, y), or a table with the column of labels of the model's recipe.
    """
    recipe, alone = predictor.model.recipe, not (isinstance(rows, tuple) and is_pair(rows))
    x, y = (as_rows(rows), None) if alone else rows_and_labels(*rows)
    strings = isinstance(x, list) and bool(x) and isinstance(x[0], str)
    if isinstance(y, str) and is_table(x) and not strings:
        own = None if recipe is None else recipe.label
        if y != own:
            said = "no column" if own is None else f"the column '{clean(own, 60)}'"
            raise UsageError(
                f"the model has labels of {said}: '{clean(y, 60)}'",
                hint="Give the labels themselves: table['NAME'].",
            )
        alone = True
    unknown = np.zeros(len(x), np.int64) if is_table(x) else None
    if alone:
        if recipe is None or not is_table(x) or strings:
            what = f"rows of the type {type_name(rows)} have no labels"
            raise UsageError(what, hint="Give a pair: (rows, labels).")
        block = predictor.rows.table(x, unknown, labelled=True, bad_rows=bad_rows)
    else:
        block, labels = predictor.rows.block(x, unknown=unknown, bad_rows=bad_rows), y
        if bad_rows is not None and bad_rows.total and block.numbers is not None:
            check_length(labels, block.n_rows + bad_rows.total)
            labels = take_rows(labels, block.numbers)
        found = to_labels(labels)
        found = found if recipe is None else name_as_cells(found, recipe)
        block = with_labels(block, found, predictor.model.labels)
        if predictor.model.says is not None:
            block = canonicalize(block, None, predictor.model.says)
    seen.rows += block.n_rows
    seen.unknown_values += 0 if unknown is None else int(unknown.sum())
    return block if block.numbers is not None else replace(block, numbers=np.arange(block.n_rows))


def with_labels(block: RowBlock, found: Labels, names: Names) -> RowBlock:
    """Return rows with labels that were given, -1 for those that have no name, or DataError."""
    check_length(found, block.n_rows)
    found = found.choose_form("auto", PLACE, "labels")  # perhaps one of each row
    unique, where = np.unique(found.codes, return_inverse=True)
    known = names.labels_of(Names.of(found.raws(unique.tolist())))[where]
    if found.lists is None:
        return replace(block, classes=known)
    lists = replace(found.lists, classes=known).sort()
    return replace(block, classes=lists.first).with_labels(lists)


def check_length(labels: Any, n_rows: int) -> None:
    """Raise DataError if there is not a label for each row."""
    n = labels.shape[0] if hasattr(labels, "shape") else len(labels)
    if n != n_rows:
        raise DataError(f"{n:,} labels for {n_rows:,} rows")


def evaluation_of(
    sums: MetricSums, seen: InputCounts, estimator: Ranker, began: float,
    skipped: Mapping[str, int] = NOTHING,
) -> Evaluation:  # fmt: skip
    """Return an evaluation, begun at such a time, of rows that were added up."""
    return Evaluation(
        unknown_values=seen.unknown_values, estimator=estimator, skipped=dict(skipped),
        seconds=time.monotonic() - began, **sums.fields(),
    )  # fmt: skip

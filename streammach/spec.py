"""What is decided once and saved with a run: facts of the data, the model, the training, the plan.

The classes are frozen and hold no behaviour beyond sizes that follow from their fields. JSON goes
out through :func:`to_json` and comes in through :func:`from_json`, which refuses what is not
exactly of the type.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from streammach.hashing import P

Transform = Literal["raw", "binary", "log1p", "l2"]
Optimizer = Literal["adagrad", "adam", "sgd"]
Weights = Literal["float32", "bfloat16"]  # while they are trained
Estimator = Literal["mean", "min", "median", "logsum"]
Ranker = Literal["blend", "mean", "min", "median", "logsum"]  # blend: counts beside hashed models
Coupling = Literal["apart", "joint"]  # of the repetitions, by the loss
Objective = Literal["accuracy", "smallest", "fastest"]
MOST = 2**63 - 1  # of what is counted in int64
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Size = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Index = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # what ids of int32 are told from
Amount = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
T = TypeVar("T")
MAX_DEPTH = 32
CONTEXT = "context"  # the ledger's line for what a device's libraries take: no buffer of ours


@dataclass(frozen=True)
class DataFacts:
    """What a plan needs to know of a store.

    Attributes
    ----------
    path : str
        The store, as the user named it.
    digest : str
        SHA-256 of its manifest: its content.
    n_rows, n_classes, n_features, nnz : int
        Its shape.
    n_pairs : int
        About how many distinct (feature, class) pairs its rows hold, to 1%.
    max_row_nnz : int
        Values of its longest row.
    block_rows, max_block_nnz : int
        Rows of a block, the unit of reading, and the most values that one has.
    value_bytes : int
        Bytes of a stored value: 1 or 4.
    weighted : bool
        Whether rows have importance weights.
    names_bytes : int
        Bytes of all label and feature names with their offsets.
    row_postings : int
        About how many pairs the features of a row have together, on average.
    """

    path: str
    digest: str
    n_rows: Size
    n_classes: Index
    n_features: Index
    nnz: Count
    n_pairs: Count
    max_row_nnz: Count
    block_rows: Size
    max_block_nnz: Count
    value_bytes: Size
    weighted: bool
    names_bytes: Count
    row_postings: Count = 0

    @property
    def density(self) -> float:
        """Share of the features that a row holds on average."""
        return self.nnz / (self.n_rows * self.n_features)

    def first(self, n_rows: int) -> DataFacts:
        """Return about what is known of a sample of so many rows.

        Pairs grow with a power of the rows: the one that leads from a row's values to all pairs.
        """
        n = min(n_rows, self.n_rows)
        nnz = self.nnz * n // self.n_rows
        growth = math.log(max(self.n_pairs * self.n_rows / max(self.nnz, 1), 1.0))
        share = (n / self.n_rows) ** (growth / math.log(max(self.n_rows, 2)))
        return replace(
            self, n_rows=n, nnz=nnz, n_pairs=math.ceil(self.n_pairs * share),
            row_postings=math.ceil(self.row_postings * share),
        )  # fmt: skip

    def shape_of(self, option: Option) -> str:
        """Return B and R of a model for this store, for people."""
        if option.n_buckets == self.n_classes:
            return "exact"
        return f"{option.n_buckets} x {option.n_repetitions}"


@dataclass(frozen=True)
class ModelSpec:
    """Shape and hashes of a model: R softmax models of B buckets over d features.

    Attributes
    ----------
    n_classes, n_features, n_buckets, n_repetitions : int
        K, d, B and R; with B = K and R = 1 the classes are their own buckets.
    hash_a, hash_b : tuple of int
        The R hashes ``((a y + b) mod p) mod B``; empty when classes are their own buckets.
    """

    n_classes: Index
    n_features: Index
    n_buckets: Index
    n_repetitions: Index
    hash_a: tuple[int, ...]
    hash_b: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse hashes that do not fit the shape."""
        if self.n_columns >= 2**31:
            raise ValueError("R * B is too large")
        if self.exact:
            if self.hash_b or (self.n_buckets, self.n_repetitions) != (self.n_classes, 1):
                raise ValueError("the hashes do not fit the shape")
            return
        if not len(self.hash_a) == len(self.hash_b) == self.n_repetitions:
            raise ValueError("there are not R hashes")
        if not (all(1 <= a < P for a in self.hash_a) and all(0 <= b < P for b in self.hash_b)):
            raise ValueError("a hash is out of its range")

    @property
    def n_columns(self) -> int:
        """R * B, the width of the weight table."""
        return self.n_repetitions * self.n_buckets

    @property
    def exact(self) -> bool:
        """Whether every class has a bucket of its own."""
        return not self.hash_a


@dataclass(frozen=True)
class TrainSpec:
    """How a model is trained.

    Attributes
    ----------
    epochs, batch_size : int
        Passes over the rows; rows of a batch at most.
    learning_rate : float
        Rate at the start; it falls linearly to 0.
    transform : str
        What happens to a row's values before they are used.
    label_smoothing : float
        Share of the target that is spread evenly over the buckets.
    optimizer : str
        ``adagrad`` (row-wise), ``adam`` or ``sgd``.
    epsilon : float
        What the optimiser adds below its fraction bar: to the sum of squares (Adagrad) or to the
        root of the second moment (Adam).
    seed : int
        Decides the order of the rows.
    loss : str
        ``apart``: each repetition learns the bucket of the row's class. ``joint``: all of them
        learn the class, by the softmax of ``(1/R) sum_r ln P_r[h_r(i)]`` over the best classes.
    whitened : bool
        Whether dense rows are whitened (:mod:`streammach.whitening`).
    """

    epochs: Size
    batch_size: Size
    learning_rate: Amount
    transform: Transform
    label_smoothing: Share
    optimizer: Optimizer
    epsilon: Amount
    seed: Count
    loss: Coupling = "apart"
    whitened: bool = False


@dataclass(frozen=True)
class Line:
    """One line of a ledger: what takes how many bytes where (``host``, ``device``, ``disk``)."""

    name: str
    where: Literal["host", "device", "disk"]
    n_bytes: Count


@dataclass(frozen=True)
class Option:
    """A model that was weighed for a budget.

    Attributes
    ----------
    n_buckets, n_repetitions : int
        B and R.
    max_pairs : int
        Counted pairs that there is room for; 0 without counts.
    closed_form : bool
        Whether a closed form stands beside exact weights.
    batch_size : int
        Rows of a batch at most.
    projected_bytes, model_bytes : int
        Memory of its training, and of the trained model on disk.
    loss, loss_error : float
        Points of the mean of P@1 and P@5 (0 to 100) that it is expected to stay below the best
        model for the same data, and how far that was off on the data sets measured.
    seconds, query_seconds : float
        Expected time of its training, and of a query on one thread.
    fits : bool
        Whether it keeps within the budget.
    chosen : bool
        Whether it is the plan.
    """

    n_buckets: Index
    n_repetitions: Index
    max_pairs: Count
    closed_form: bool
    batch_size: Size
    projected_bytes: Count
    model_bytes: Count
    loss: float
    loss_error: Amount
    seconds: Amount
    query_seconds: Amount
    fits: bool
    chosen: bool


@dataclass(frozen=True)
class Pilot:
    """A training on a sample, by which models were compared before one was chosen.

    Attributes
    ----------
    n_buckets, n_repetitions, max_pairs : int
        The option that it stands for.
    closed_form : bool
        Whether that has a closed form.
    rows, held_out : int
        Rows that were trained on and measured on.
    p_at_1, p_at_5 : float
        On the held-out rows.
    seconds : float
        What it took.
    """

    n_buckets: Index
    n_repetitions: Index
    max_pairs: Count
    closed_form: bool
    rows: Count
    held_out: Count
    p_at_1: Share
    p_at_5: Share
    seconds: Amount


@dataclass(frozen=True)
class Budget:
    """What another budget would bring: its bytes, and the model that is chosen for it, if any."""

    allowed_bytes: Count
    best: Option | None


@dataclass(frozen=True)
class Plan:
    """What fits a budget and was chosen: model, batch, residence, and every byte of it.

    Attributes
    ----------
    facts : DataFacts
        The store that it was made for.
    model : ModelSpec
        The model.
    batch_size : int
        Rows of a batch at most.
    batch_nnz : int
        Values of a batch at most.
    optimizer : str
        The optimiser whose state the ledger counts.
    dense : bool
        Whether batches are expanded to dense rows and go through matrix products.
    pool_blocks : int
        Blocks of the store whose rows are shuffled together.
    validation_rows, validation_nnz : int
        Most held-out rows and their values that are kept in memory.
    max_pairs : int
        Counted (feature, class) pairs that there is room for; 0 without counts.
    closed_form : bool
        Whether a closed form may be added to exact weights of dense rows.
    whitened : bool
        Whether dense rows may be whitened while they are trained on.
    device : str
        ``cpu`` or ``cuda``.
    threads : int
        Threads that compute.
    allowed_bytes : int
        The budget of host memory.
    limit_source : str
        Who set it.
    ledger : tuple of Line
        Every byte count, by name.
    reasons : tuple of str
        Why this plan, in sentences.
    device_reason : str
        Why this device.
    device_allowed_bytes : int
        The budget of the device's own memory; 0 for the CPU.
    device_limit_source : str
        Who set it.
    waves : int
        Groups that the repetitions are trained in, one after another.
    weights : str
        Type of the weights on the device: ``float32``, or ``bfloat16`` on a GPU.
    resident : bool
        Whether the store's rows are kept in the device's memory, decoded once.
    objective : str
        ``accuracy``, ``smallest`` or ``fastest``.
    expected : Option or None
        What is expected of the plan.
    options : tuple of Option
        What it was chosen from: the best ones and what is instructive beside them.
    budgets : tuple of Budget
        What smaller and larger budgets would bring.
    pilots : tuple of Pilot
        Trainings on samples that the choice rests on.
    """

    facts: DataFacts
    model: ModelSpec
    batch_size: Size
    batch_nnz: Size
    optimizer: Optimizer
    dense: bool
    pool_blocks: Size
    validation_rows: Count
    validation_nnz: Count
    max_pairs: Count
    closed_form: bool
    whitened: bool
    device: str
    threads: Size
    allowed_bytes: Count
    limit_source: str
    ledger: tuple[Line, ...]
    reasons: tuple[str, ...] = field(default=())
    device_reason: str = ""
    device_allowed_bytes: Count = 0
    device_limit_source: str = ""
    waves: Size = 1
    weights: Weights = "float32"
    resident: bool = False
    objective: Objective = "accuracy"
    expected: Option | None = None
    options: tuple[Option, ...] = ()
    budgets: tuple[Budget, ...] = ()
    pilots: tuple[Pilot, ...] = ()

    @property
    def n_buckets(self) -> int:
        """B."""
        return self.model.n_buckets

    @property
    def n_repetitions(self) -> int:
        """R."""
        return self.model.n_repetitions

    @property
    def projected_bytes(self) -> int:
        """Bytes of host memory that the run will take at most."""
        return sum(line.n_bytes for line in self.ledger if line.where == "host")

    @property
    def device_text(self) -> str:
        """The device, what it has, and why it was chosen."""
        waves = f", {self.waves} waves of repetitions" if self.waves > 1 else ""
        if self.device_allowed_bytes:
            waves += ", rows kept on the GPU" if self.resident else ", rows streamed"
        why = f" ({self.device_reason})" if self.device_reason else ""
        return f"{self.device}, {self.threads} threads{waves}{why}"

    @property
    def device_projected_bytes(self) -> int:
        """Bytes of the device's own memory that the run will take at most."""
        return sum(line.n_bytes for line in self.ledger if line.where == "device")

    @property
    def device_buffer_bytes(self) -> int:
        """The same without what the device's libraries take, which cannot be measured apart."""
        lines = (line for line in self.ledger if line.where == "device")
        return sum(line.n_bytes for line in lines if line.name != CONTEXT)

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that the run will take at most."""
        return sum(line.n_bytes for line in self.ledger if line.where == "disk")


def to_json(value: Any) -> bytes:
    """Return the value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def from_json(text: bytes, kind: type[T]) -> T:
    """Return the value of a JSON document.

    Parameters
    ----------
    text : bytes
        The document.
    kind : type
        The type that it must have: a frozen dataclass or struct, or any type hint.

    Raises
    ------
    ValueError
        If the document is not strict JSON (repeated keys, NaN, numbers past a float, too deep) or
        not of the type.
    """
    depth = 0
    for byte in text:
        depth += (byte in b"{[") - (byte in b"}]")
        if depth > MAX_DEPTH:
            raise ValueError("the JSON is nested too deeply")
    try:
        document = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite
        )
        return msgspec.convert(document, kind)
    except (UnicodeDecodeError, json.JSONDecodeError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("the JSON repeats a key")
    return out


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the JSON holds {text[:20]}")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"the JSON holds {constant}")

"""A model as plain arrays, from which NumPy alone predicts, or as an ONNX graph that ranks rows.

Both are described in docs/reference/model-format.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.counts.count_kernels import STEP
from streammach.linear.kernel_map import KernelWeights
from streammach.linear.weights import LinearWeights
from streammach.model.model import Model
from streammach.model.shrink import plain
from streammach.options.estimators import BLEND
from streammach.prediction.output import ByteFile
from streammach.prediction.ranking import frequency_scores, knows_frequencies
from streammach.rows.pairs import CountWeights
from streammach.system.errors import UsageError
from streammach.system.files.destinations import Destination, known_by_mark
from streammach.system.files.writing import Writer
from streammach.system.machine import size_text

FORMAT = 1
MARK = "streammach_export"  # the first array, or the producer of a graph: files of ours begin so
EXPORT = known_by_mark(MARK, "it is no model that streammach exported", 64)
OPSET, IR = 17, 8  # what readers from 2022 on know
MOST = 2_000_000_000  # bytes of a file of protocol buffers
WITHOUT = "Leave --onnx out: FILE.npz has all of it."
ZERO, ONE, TINY = np.float32(0), np.float32(1), np.float32(1e-12)


def write_npz(model: Model, document: bytes, goal: Destination) -> None:
    """Write a model's arrays and its JSON, whole or not at all; or raise UsageError, DiskError."""
    arrays: dict[str, Any] = {MARK: np.array(FORMAT), "document": np.array(document.decode())}
    arrays |= model.arrays() | {"weights": plain(model, slice(None))}
    arrays |= {"codes": model.spec.codes().astype(np.int32)}
    if knows_frequencies(model):
        arrays["empty_scores"] = frequency_scores(model, model.estimator)
    arrays.pop("scale", None)
    with goal.scratch() as made, Writer(goal.path, temporary=made) as out:
        np.savez(ByteFile(out.write), **arrays)
        goal.take(made)


def check_graph(model: Model) -> int:
    """Return the bytes of a model's graph, or raise UsageError if it has none."""
    kernels = model.linear if isinstance(model.linear, KernelWeights) else None
    obstacles = {
        "training rows beside its counts": model.near, "kernels of dense rows": kernels,
        "classifiers of its best classes": model.late, "labels that were changed": model.says,
    }  # fmt: skip
    what = next((what for what, there in obstacles.items() if there is not None), None)
    if what is not None:
        raise UsageError(f"the model has {what}, which ONNX cannot hold: --onnx", hint=WITHOUT)
    spec, paired = model.spec, model.counts is not None or model.linear is not None
    cells = len(model.weights) * spec.n_columns + spec.n_features * spec.n_classes * paired
    n_bytes = 4 * cells + 8 * spec.n_classes * spec.n_repetitions + model.labels.text_bytes
    if n_bytes > MOST:
        what = f"the graph would take {size_text(n_bytes)}, an ONNX file 2 GB at most: --onnx"
        raise UsageError(what, hint=WITHOUT)
    return n_bytes


def onnx_graph(model: Model) -> bytes:
    """Return a graph of rows and k that gives ids, scores and labels (n, k), the best first."""
    try:
        from onnx import TensorProto, helper
    except ImportError:
        hint = 'Install it with: pip install "streammach[onnx]"'
        raise UsageError("onnx is not installed: --onnx", hint=hint) from None
    graph, spec = _Graph(model), model.spec
    if isinstance(model.linear, LinearWeights):
        scores = _score_linear(graph, model.linear)
    else:
        scores = "" if spec.unhashed else _score_buckets(graph)
        if model.counts is not None:
            scores = _score_counts(graph, model.counts.plain(), scores)
        if knows_frequencies(model):
            scores = graph.unless_empty(scores, frequency_scores(model, model.estimator))
    names = [raw.decode("utf-8", "backslashreplace").encode()
             for raw in model.labels.raws(np.arange(spec.n_classes))]  # fmt: skip
    made, number, id_ = graph.proto.graph, TensorProto.FLOAT, TensorProto.INT64
    made.initializer.append(helper.make_tensor("names", TensorProto.STRING, [len(names)], names))
    made.node.append(helper.make_node("TopK", [scores, "k"], ["scores", "ids"], axis=1))
    made.node.append(helper.make_node("Gather", ["names", "ids"], ["labels"]))

    def declare(name: str, kind: int, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    width, best = spec.n_features if model.dense else "m", ("n", "best")
    made.input.extend([] if model.dense else [declare("features", id_, "n", width)])
    made.input.extend([declare("values", number, "n", width), declare("k", id_, 1)])
    made.output.extend([declare("ids", id_, *best), declare("scores", number, *best),
                        declare("labels", TensorProto.STRING, *best)])  # fmt: skip
    content: bytes = graph.proto.SerializeToString()
    return content


class _Graph:
    """A graph that grows by a node at a time, and what rows are in it."""

    def __init__(self, model: Model) -> None:
        from onnx import helper

        empty, opsets = helper.make_graph([], "model", [], []), [helper.make_opsetid("", OPSET)]
        facts = {"producer_name": MARK, "ir_version": IR, "opset_imports": opsets}
        self.model, self.proto = model, helper.make_model(empty, **facts)
        self.there = self.add("Not", self.add("Equal", "values", ZERO))
        if not model.dense:
            known = self.add("GreaterOrEqual", "features", np.int64(0))
            self.there = self.add("And", known, self.there)
            self.features = self.add("Max", "features", np.int64(0))
        self.values = self.add("Where", self.there, "values", ZERO)
        self.ones = self.add("Cast", self.there, to=1)

    def add(self, op: str, *inputs: str | NDArray[Any] | np.generic, **attributes: Any) -> str:
        """Add a node; return its value's name. Inputs are such names, or arrays."""
        from onnx import helper, numpy_helper

        names, constants, nodes = [], self.proto.graph.initializer, self.proto.graph.node
        for one in inputs:
            names.append(one if isinstance(one, str) else f"c{len(constants)}")
            if not isinstance(one, str):
                constants.append(numpy_helper.from_array(np.asarray(one), names[-1]))
        made = f"v{len(nodes)}"
        outputs = [made, f"{made}_places"] if op == "TopK" else [made]
        nodes.append(helper.make_node(op, names, outputs, **attributes))
        return made

    def scale_rows(self, x: str) -> str:
        """Return rows of length 1; zeros stay."""
        length = self.add("ReduceL2", x, axes=[1], keepdims=1)
        return self.add("Div", x, self.add("Where", self.add("Less", length, TINY), ONE, length))

    def transform(self) -> str:
        """Return the values after the model's transform."""
        how, x = self.model.training.transform, self.values
        if how == "log1p":
            logs = self.add("Log", self.add("Add", self.add("Abs", x), ONE))
            return self.add("Mul", self.add("Sign", x), logs)
        if how == "l2":
            return self.scale_rows(x)
        return self.ones if how == "binary" else x

    def sum_rows(self, x: str, table: NDArray[np.float32]) -> str:
        """Return ``sum_f x_f table_f`` over the features of each row: float32 (n, m)."""
        if self.model.dense:
            return self.add("MatMul", x, table)
        last, axis = np.int64(len(table) - 1), np.array([1])
        has_row = self.add("Cast", self.add("LessOrEqual", self.features, last), to=1)
        own = self.add("Gather", table, self.add("Min", self.features, last))
        x = self.add("Unsqueeze", self.add("Mul", x, has_row), axis)
        return self.add("Squeeze", self.add("MatMul", x, own), axis)

    def unless_empty(self, scores: str, empty: NDArray[np.float32]) -> str:
        """Return scores, and for rows without features others: float32 (K,)."""
        some = self.add("ReduceMax", self.ones, axes=[1], keepdims=1)
        return self.add("Where", self.add("Greater", some, ZERO), scores, empty)


def _score_buckets(graph: _Graph) -> str:
    """Return what hashed models say of all classes: float32 (n, K)."""
    model, spec, add = graph.model, graph.model.spec, graph.add
    x, r, b = graph.transform(), spec.n_repetitions, spec.n_buckets
    if model.projection is not None:
        more = add("Add", add("MatMul", x, model.projection[:-2]), model.projection[-2])
        x = add("Concat", x, add("Mul", add("Cos", more), model.projection[-1]), axis=1)
    z = add("Add", graph.sum_rows(x, plain(model, slice(None))), model.bias)
    if model.training.logistic:
        logs = add("Neg", add("Softplus", add("Neg", z)))
    else:
        each = add("LogSoftmax", add("Reshape", z, np.array([0, r, b])), axis=2)
        logs = add("Reshape", each, np.array([0, r * b]))
    places = spec.codes().astype(np.int64) + b * np.arange(r)
    kind = model.estimator
    p = logs if kind in ("logsum", BLEND) else add("Exp", logs)
    own = add("Gather", p, places, axis=1)  # (n, K, R)
    if kind == "min":
        return add("ReduceMin", own, axes=[2], keepdims=0)
    if kind == "median":
        rising = add("TopK", own, np.array([r]), axis=2)
        own = add("Gather", rising, np.array([(r - 1) // 2, r // 2]), axis=2)
    mean = add("ReduceMean", own, axes=[2], keepdims=0)
    if kind != "mean" or spec.exact:
        return mean
    others = add("Div", add("ReduceSum", p, np.array([1])), np.float32(r * b))
    return add("Mul", add("Sub", mean, others), np.float32(b / (b - 1)))


def _spread(lists: CountWeights | LinearWeights, values: NDArray[Any]) -> NDArray[np.float32]:
    """Return values of (feature, class) pairs as a table float32 (d, K)."""
    table = np.zeros((lists.n_features, lists.n_classes), np.float32)
    table[np.repeat(np.arange(len(table)), np.diff(lists.starts)), lists.classes] = values
    return table


def _score_counts(graph: _Graph, counts: CountWeights, hashed: str) -> str:
    """Return what counts say of all classes, and what hashed models add: float32 (n, K)."""
    add, ones = graph.add, graph.ones
    gains, wide = _spread(counts, counts.gains * STEP), counts.wide_of >= 0
    gains[wide] += counts.wide[counts.wide_of[wide]] * STEP
    lost = add("Mul", graph.sum_rows(ones, counts.penalty[:, None]), counts.log_values)
    scores = add("Sub", add("Add", graph.sum_rows(ones, gains), counts.base), lost)
    return add("Add", scores, add("Mul", hashed, np.float32(counts.hashed))) if hashed else scores


def _score_linear(graph: _Graph, linear: LinearWeights) -> str:
    """Return what linear classifiers of sparse rows say: float32 (n, K)."""
    scale = graph.add("Gather", linear.scale, graph.features)
    x = graph.add("Mul", scale, graph.values if linear.valued else graph.ones)
    sums = graph.sum_rows(graph.scale_rows(x), _spread(linear, linear.weights))
    return graph.unless_empty(graph.add("Add", sums, linear.bias), linear.empty)

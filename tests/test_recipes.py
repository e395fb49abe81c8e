"""The recipes of CONTRIBUTING, done: each adds one thing through its registry and uses it."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import streammach as sm
from streammach.backends.cpu.backend import CpuBackend
from streammach.backends.registry import BACKENDS
from streammach.conversion.convert import convert
from streammach.inputs.formats import parsed
from streammach.inputs.formats.registry import TEXT_FORMATS, TextFormat, guess_format
from streammach.inputs.label_arrays import Labels
from streammach.inputs.matrices.matrix import DenseMatrix
from streammach.inputs.matrices.matrix_source import MatrixSource, OpenMatrix
from streammach.inputs.matrices.named_arrays import MemoryArray
from streammach.inputs.sources import MATRIX_SOURCES
from streammach.options.config import PartPlan
from streammach.options.estimators import ESTIMATORS, EstimatorKind
from streammach.options.optimizers import OPTIMIZERS, OptimizerKind
from streammach.options.option_fields import OptionFacts
from streammach.parts.base import Part
from streammach.parts.expected import Choice, PartBytes
from streammach.parts.registry import PARTS
from streammach.parts.switches import Switch
from streammach.parts.training_record import Decision
from streammach.planning.constraints import OF_PARTS
from streammach.rows.name_table import find_or_add, hash_name
from streammach.rows.names import Names
from streammach.rows.transforms import TRANSFORMS, transform_block
from streammach.system.errors import DeviceError, ModelError, UsageError
from tests.builders import block_of, changed, fit, rows_by_name

ROWS = [("cat", {"soft": 2.0, "small": 1.0}), ("dog", {"small": 3.0}), ("cat", {"soft": 1.0})]


def stored(path):
    rows = rows_by_name(path)
    return in_order((label, {f.decode(): v for f, v in values}) for label, _, values in rows)


def in_order(rows):
    """Rows of a store have an order of their own."""
    return sorted((label, sorted(values.items())) for label, values in rows)


def id_of(text, start, end, table):
    """The id of a name in a table, which takes it in; -1 where the table is full."""
    size = end - start
    return find_or_add(table, text, start, size, 0, np.uint64(hash_name(text, start, size, 0)))


def parse_pairs(text, p, end, label_needed, add_labels, add_names, out, labels, spaces, names):
    """Lines such as ``label;name=value;name=value``, read in plain Python."""
    while p < end:
        line = text[p:end].tobytes().split(b"\n")[0]
        n, z = int(out.state[parsed.ROWS]), int(out.state[parsed.VALUES])
        found, at = [], p
        for part in line.split(b";"):
            name, _, value = part.partition(b"=")
            found.append((id_of(text, at, at + len(name), names if found else labels), value))
            at += len(part) + 1
        if min(i for i, _ in found) < 0:
            return parsed.GROW, p
        if not all(value.isdigit() for _, value in found[1:]):
            out.state[parsed.REASON], out.state[parsed.FROM] = parsed.NO_NUMBER, p
            out.state[parsed.TO] = p + len(line)
            return parsed.BAD, p
        out.classes[n], out.importance[n], out.places[n], out.tags[n] = found[0][0], 1, p, 0
        for q, (feature, value) in enumerate(found[1:]):
            out.features[z + q], out.values[z + q] = feature, float(value)
        out.indptr[n + 1] = z + len(found) - 1
        out.state[parsed.ROWS], out.state[parsed.VALUES] = n + 1, out.indptr[n + 1]
        out.state[parsed.LINE] += 1
        p += len(line) + 1
    return parsed.DONE, p


PAIRS = TextFormat(name="pairs", fits=lambda line, _: b";" in line, parse=parse_pairs)


def test_a_text_format_is_one_file_and_one_line(monkeypatch, tmp_path):
    lines = [";".join([y, *(f"{k}={v:.0f}" for k, v in row.items())]) for y, row in ROWS]
    (tmp_path / "a.txt").write_text("\n".join([*lines, "cat;soft=none"]) + "\n")
    monkeypatch.setitem(TEXT_FORMATS, "pairs", PAIRS)
    assert guess_format(lines[0].encode()) == "pairs"
    done = convert(tmp_path / "a.txt", tmp_path / "a.zarr", on_bad_row="skip")
    assert done.formats == ("pairs",)
    assert done.skipped == {"value ... is not a number": 1}
    assert stored(tmp_path / "a.zarr") == in_order(ROWS)


class TableSource(MatrixSource):
    """A first line ``TABLE name name``, then lines ``label value value``."""

    form = "table"
    magic = b"TABLE"

    @contextmanager
    def open_matrix(self):
        head, *lines = (line.split() for line in self.path.read_text().splitlines())
        x = np.array([line[1:] for line in lines], np.float64)
        labels = Labels.of(np.array([line[0] for line in lines]), self.path, "the labels")
        names = Names.of([name.encode() for name in head[1:]])
        yield OpenMatrix(DenseMatrix(MemoryArray(x)), labels, names)


@pytest.mark.parametrize("form", [None, "table"])
def test_a_matrix_source_is_one_file_and_one_line(form, monkeypatch, tmp_path):
    lines = [f"{y} {row.get('soft', 0)} {row.get('small', 0)}" for y, row in ROWS]
    (tmp_path / "a.tab").write_text("\n".join(["TABLE soft small", *lines]) + "\n")
    monkeypatch.setitem(MATRIX_SOURCES, "table", TableSource)
    done = convert(tmp_path / "a.tab", tmp_path / "a.zarr", format=form)
    assert done.formats == ("table",)
    assert stored(tmp_path / "a.zarr") == in_order(ROWS)


def test_a_transform_is_one_function_and_one_line(monkeypatch, rng):
    def halves(indptr, values):
        values[indptr[0] : indptr[-1]] /= 2

    monkeypatch.setitem(TRANSFORMS, "half", halves)
    block = block_of(rng, 20, 30, 5)
    assert (transform_block(block, "half").values == block.values / 2).all()


@pytest.fixture
def data(tiny):
    with tiny.dataset(n_rows=500, n_classes=20) as opened:
        yield opened


def planned(data, **options):
    shape = {"n_buckets": 6, "n_repetitions": 4, "counts": "off", "threads": 1}
    return sm.plan(data, **{**shape, **options})


def trained(data, out, plan):
    return fit(data, out, plan, epochs=2, transform="binary", learning_rate=0.5, epsilon=1.0)


def test_an_estimator_is_one_record(monkeypatch, data, tmp_path):
    with monkeypatch.context() as known:
        product = EstimatorKind(name="product", join=lambda p: p.prod(axis=1))
        known.setitem(ESTIMATORS, "product", product)
        run = trained(data, tmp_path / "run", planned(data))
        reached = run.result.validation
        assert reached["product"].accuracy == reached["logsum"].accuracy > 0.9
        rows, found = data.rows(0, 100), {}
        for name in ("product", "logsum"):
            with sm.Predictor(run.model, estimator=name, threads=1) as predictor:
                found[name] = predictor.topk(rows, 3)
        assert (found["product"][0][:, 0] == found["logsum"][0][:, 0]).mean() > 0.95
        assert (np.diff(found["product"][1]) <= 0).all()
    with pytest.raises(ModelError, match="there is no estimator 'product'"):
        _ = run.model


def rowwise(weights, gradient, tables, rate, epsilon):
    """Row-wise Adagrad in NumPy."""
    sums = tables["sums"]
    by_model = gradient.reshape(*sums.shape, -1)
    sums += (by_model**2).sum(axis=2)
    weights -= (by_model * (rate / np.sqrt(sums + epsilon))[:, :, None]).reshape(weights.shape)


@pytest.mark.parametrize("dense", [False, True])
def test_an_optimizer_is_one_record(dense, monkeypatch, data, tmp_path):
    kind = OptimizerKind(
        name="rowwise", step=rowwise, per_model=("sums",), usual_rate=lambda value, n: 0.5 / value
    )
    monkeypatch.setitem(OPTIMIZERS, "rowwise", kind)
    plans = [planned(data, optimizer=name, whitening="off") for name in ("rowwise", "adagrad")]
    lines = [{line.name: line.n_bytes for line in plan.ledger} for plan in plans]
    assert lines[0]["optimizer"] == lines[1]["optimizer"] > 0
    runs = [
        fit(data, tmp_path / plan.config.optimizer, changed(plan, dense=dense), epochs=2,
            transform="binary", learning_rate=0.5, epsilon=1.0, last_passes=0)
        for plan in plans
    ]  # fmt: skip
    assert runs[0].model.training.optimizer == "rowwise"
    mine, kernels = (run.model.hashed_arrays for run in runs)
    for name in ("weights", "bias"):
        np.testing.assert_allclose(mine[name], kernels[name], atol=2e-5)
    with pytest.raises(DeviceError, match="rowwise has no kernels for it"):
        BACKENDS["cuda"].footprint(plans[0].config, None)


def test_a_backend_is_one_class_and_one_line(monkeypatch, data, tmp_path):
    opened = []

    class Toy(CpuBackend):
        def close(self):
            opened.append(int(self.arrays()["steps"][0]))
            super().close()

    def open_toy(spec, config, *, facts=None, weights=None, device_bytes=0, logistic=False):
        return Toy(spec, dense=config.dense, threads=1, weights=weights, logistic=logistic)

    kind = replace(BACKENDS["cpu"], name="toy", title="toy", open=open_toy)
    monkeypatch.setitem(BACKENDS, "toy", kind)
    runs = [trained(data, tmp_path / name, planned(data, device=name)) for name in ("toy", "cpu")]
    assert runs[0].plan.config.placement.device == "toy"
    assert runs[0].model.weights.tobytes() == runs[1].model.weights.tobytes()
    with sm.Predictor(runs[0].model, device="toy") as predictor:
        predictor.topk(data.rows(0, 10))
    assert opened[0] > opened[1] == 0
    with pytest.raises(UsageError, match="are for a GPU, the device is the toy"):
        planned(data, device="toy", weights="bfloat16")


NOTES = Part(  # it takes room and has something to say
    name="notes", switch=Switch(option="notes", help="Take notes."),
    find_obstacle=lambda facts, config: "rows are dense" if config.dense else None,
    list_choices=lambda facts, config, *, sure: iter([Choice(plan=PartPlan(name="notes"))]),
    project_bytes=lambda facts, config: PartBytes(memory={"notes": 1234}),
    fit=lambda training, spec: Decision(reasons=(f"notes of {training.holdout.rows.n_rows} rows",)),
)  # fmt: skip


def test_an_optional_part_is_one_folder_and_one_name(monkeypatch, data, tmp_path):
    monkeypatch.setitem(PARTS, "notes", NOTES)
    facts = OptionFacts(help=NOTES.switch.help, words=NOTES.switch.words)
    monkeypatch.setitem(OF_PARTS, "notes", facts)
    plan = planned(data)
    assert [line.n_bytes for line in plan.ledger if line.name == "notes"] == [1234]
    run = trained(data, tmp_path / "run", plan)
    assert run.result.reasons[-1] == f"notes of {plan.config.batching.held_out_rows} rows"
    assert planned(data, notes="off").config.part("notes") is None
    with pytest.raises(UsageError, match="'maybe' is not one of auto, on, off: notes"):
        planned(data, notes="maybe")

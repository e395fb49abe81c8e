"""A run in parts: merged, it has the bytes of one that was trained at once; else it is refused."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.store.label_facts import weigh_classes
from streammach.system.errors import Interrupted, MismatchError, ModelError, UsageError
from streammach.training.run_part import PartNumber, RunPart
from streammach.training.warm_start import Start
from tests.builders import (
    Stop,
    TinyData,
    batch_of,
    block_of,
    model_files,
    names_in,
    open_backend,
    spec_of,
)
from tests.builders import training as spec_for

SHAPE = {"n_buckets": 7, "n_repetitions": 5, "threads": 1}
FIXED = {"epochs": 2, "learning_rate": 0.5, "transform": "binary"}


def trainer(data, *, callbacks=None, options=None, **plan):
    plan = sm.plan(data, **{**SHAPE, "counts": "off", **plan})
    return sm.Trainer(plan, sm.TrainingOptions(**(FIXED if options is None else options)),
                      callbacks=callbacks)  # fmt: skip


def parts_of(made, data, folder, n, *, handed_on=False):
    """Train all parts of a run; the others take what the first one decided, if that is wanted."""
    paths = []
    for k in range(1, n + 1):
        first = paths[0] if handed_on and paths else None
        paths.append(made.fit_part(data, folder / f"part{k}", (k, n), settings=first).path)
    return paths


def rows_alike(tiny, name, n_rows=1500):
    """A store of rows with a third of wrong labels, so that epochs differ."""
    lines = tiny.lines(n_rows, 90, namespace=True)
    for i in range(0, n_rows, 3):
        lines[i] = f"class-{tiny.rng.integers(90)} {lines[i].partition(' ')[2]}"
    sm.convert(tiny.text(f"{name}.vw", lines), tiny.folder / name)
    return tiny.folder / name


@pytest.fixture(scope="module")
def store(shared):
    return rows_alike(shared, "train.zarr")


@pytest.fixture(scope="module")
def data(store):
    with sm.Dataset.open(store) as opened:
        yield opened


@pytest.fixture(scope="module")
def pair(data, tmp_path_factory):
    """Two finished parts of a small run, which tests read or copy."""
    return parts_of(trainer(data), data, tmp_path_factory.mktemp("pair"), 2)


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("counts", ["off", "on"])
def test_merged_parts_have_the_bytes_of_one_run(counts, n, data, tmp_path):
    made = trainer(data, counts=counts, options={"epochs": 3})
    joint = made.fit(data, tmp_path / "joint")
    assert len(joint.settings.trials) > 3
    assert ("counts" in " ".join(joint.result.reasons)) == (counts == "on")
    paths = parts_of(made, data, tmp_path, n, handed_on=n == 5)
    merged = sm.merge(tmp_path / "run", paths[::-1])
    assert model_files(merged) == model_files(joint)
    assert merged.settings == joint.settings
    assert merged.result.validation == joint.result.validation
    known = [(e.accuracy, e.selection_score) for e in merged.result.history]
    assert known == [(e.accuracy, e.selection_score) for e in joint.result.history]
    assert names_in(merged.path) == names_in(joint.path)


def test_early_stopping_ends_the_same_epoch(data, tmp_path):
    made = trainer(data, options={**FIXED, "epochs": 12, "learning_rate": 3.0})
    joint = made.fit(data, tmp_path / "joint")
    assert joint.result.stopped == "no better epoch in 3"
    assert 0 < joint.result.best_epoch == len(joint.result.history) - 4 < 8
    merged = sm.merge(tmp_path / "run", parts_of(made, data, tmp_path, 2))
    assert (merged.result.best_epoch, merged.result.stopped) == (
        joint.result.best_epoch, joint.result.stopped
    )  # fmt: skip
    assert model_files(merged) == model_files(joint)


def test_rows_held_out_in_a_store_and_weights_of_classes(data, tiny):
    other = tiny.store("valid.zarr", n_rows=200, like=data.path)
    view = weigh_classes(data, "balanced")
    made = trainer(view, options={**FIXED, "validation": str(other)})
    joint = made.fit(view, tiny.folder / "joint")
    paths = parts_of(made, view, tiny.folder, 2)
    with pytest.raises(MismatchError, match="another store"):
        sm.merge(tiny.folder / "run", paths)
    moved = other.rename(tiny.folder / "moved.zarr")
    merged = sm.merge(tiny.folder / "run", paths, data=view, validation=moved)
    assert model_files(merged) == model_files(joint)


def test_no_row_held_out(tiny):
    data = tiny.dataset(n_rows=300, n_classes=20)
    made = trainer(data)
    made.plan = replace(made.plan, config=replace(
        made.plan.config, batching=replace(made.plan.config.batching, held_out_rows=0)
    ))  # fmt: skip
    joint = made.fit(data, tiny.folder / "joint")
    merged = sm.merge(tiny.folder / "run", parts_of(made, data, tiny.folder, 2))
    assert model_files(merged) == model_files(joint)
    assert merged.result.best_epoch == 1
    data.close()


@pytest.mark.parametrize("n_buckets", [1, 7, 13, 33, 128, 257])
def test_columns_do_not_depend_on_those_beside(n_buckets, rng):
    spec = spec_of(400, 300, n_buckets, 5)
    block = block_of(rng, 60, 300, 400, most=40, values="floats")

    def trained(some):
        with_room = {"optimizer": "adagrad", "rows": 64, "nnz": 4000}
        backend = open_backend("cpu", some, **with_room)
        backend.prepare(spec_for(batch_size=64, label_smoothing=0.1), 4000)
        for _ in range(3):
            backend.step(batch_of(block, 300), 0.5)
        arrays = {name: array.copy() for name, array in backend.arrays().items()}
        backend.close()
        return arrays

    whole = trained(spec)
    for first, last in ((0, 1), (0, 3), (1, 3), (3, 5), (4, 5)):
        for name, array in trained(spec.some(first, last)).items():
            width = array.shape[-1] // (last - first)
            columns = whole[name][..., first * width : last * width]
            assert name == "steps" or array.tobytes() == columns.tobytes(), (first, last, name)


def second_epoch(state):
    return state.epoch == 1


def test_a_part_that_was_interrupted_goes_on(data, tmp_path, monkeypatch):
    options = {**FIXED, "epochs": 3}
    joint = trainer(data, options=options).fit(data, tmp_path / "joint")
    with monkeypatch.context() as patch:
        stopping = trainer(data, options=options, callbacks=[Stop(patch, on_progress=second_epoch)])
        with pytest.raises(Interrupted, match=r"epoch 2.*resume"):
            stopping.fit_part(data, tmp_path / "part1", (1, 2))
    part = RunPart.open(tmp_path / "part1")
    assert part.open_work == "1 of 3 epochs"
    made = trainer(data, options=options)
    other = made.fit_part(data, tmp_path / "part2", (2, 2), settings=part.path)
    with pytest.raises(MismatchError, match="part 1/2 is not finished: 1 of 3 epochs"):
        sm.merge(tmp_path / "run", [part.path, other.path])
    with pytest.raises(UsageError, match="it holds a part already"):
        made.fit_part(data, part.path, (1, 2))
    with pytest.raises(MismatchError, match="part 1/2 of a run, not 2/2"):
        made.fit_part(data, part.path, (2, 2), resume=True)
    with pytest.raises(MismatchError, match="started with another store, plan or options"):
        trainer(data, options=FIXED).fit_part(data, part.path, (1, 2), resume=True)
    again = made.fit_part(data, part.path, (1, 2), resume=True)
    assert again.open_work == ""
    before = (part.path / "log.jsonl").read_bytes()
    assert made.fit_part(data, part.path, (1, 2), resume=True) == again
    assert (part.path / "log.jsonl").read_bytes() == before
    assert model_files(sm.merge(tmp_path / "run", [again.path, other.path])) == model_files(joint)


def test_a_part_that_a_callback_ends_is_not_finished(data, tmp_path):
    stop = SimpleNamespace(on_epoch_end=lambda state: state.stop("enough"))
    with pytest.raises(Interrupted, match=r"after epoch 1 \(enough\)"):
        trainer(data, callbacks=[stop]).fit_part(data, tmp_path / "part1", (1, 2))
    assert trainer(data).fit_part(data, tmp_path / "part1", (1, 2), resume=True).open_work == ""


@pytest.mark.parametrize("way", ["merge", "train"])
def test_a_merge_that_was_interrupted_goes_on(way, data, tmp_path, monkeypatch):
    made = trainer(data, options={**FIXED, "epochs": 4})
    joint = made.fit(data, tmp_path / "joint")
    paths = parts_of(made, data, tmp_path, 2)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        sm.merge(tmp_path / "run", paths, callbacks=[Stop(patch, on_epoch_end=second_epoch)])
    with pytest.raises(UsageError, match="it holds a run already"):
        sm.merge(tmp_path / "run", paths)
    if way == "merge":
        run = sm.merge(tmp_path / "run", paths, resume=True)
    else:  # it is a run like any other: its epochs can be trained here
        run = made.fit(data, tmp_path / "run", resume=True)
    assert model_files(run) == model_files(joint)


def test_parts_of_different_runs_are_not_merged(data, pair, tmp_path):
    other = rows_alike(TinyData(tmp_path, np.random.default_rng(2)), "other.zarr", 1400)
    with sm.Dataset.open(other) as rows:
        wrong = {
            "another store": (trainer(rows), rows),
            "another epochs": (trainer(data, options={**FIXED, "epochs": 3}), data),
            "another seed": (trainer(data, options={**FIXED, "seed": 1}), data),
            r"another plan \(7 x 4, not 7 x 5\)": (trainer(data, n_repetitions=4), data),
            r"another plan \(parts\)": (trainer(data, counts="on"), data),
            r"another plan \(batching\)": (trainer(data, batch_size=20), data),
            "another model_size": (trainer(data, options={**FIXED, "model_size": "full"}), data),
        }
        for i, (message, (made, given)) in enumerate(wrong.items()):
            part = made.fit_part(given, tmp_path / f"part{i}", (2, 2))
            with pytest.raises(MismatchError, match=message) as found:
                sm.merge(tmp_path / "run", [pair[0], part.path])
            assert "\n" not in str(found.value)
            with pytest.raises(MismatchError, match=message):
                made.fit_part(given, tmp_path / "late", (2, 2), settings=pair[0])
    third = trainer(data).fit_part(data, tmp_path / "third", (2, 3))
    with pytest.raises(MismatchError, match=r"part 2/3, and .* is part 1/2"):
        sm.merge(tmp_path / "run", [pair[0], third.path])
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "late").exists()


def test_parts_that_decided_otherwise_are_not_merged(data, pair, tmp_path):
    part = shutil.copytree(pair[1], tmp_path / "part2")
    document = json.loads((part / "training.json").read_text())
    document["training"]["learning_rate"] = 0.25
    (part / "training.json").write_text(json.dumps(document))
    with pytest.raises(MismatchError, match="outcome of the search"):
        sm.merge(tmp_path / "run", [pair[0], part])


def test_parts_that_are_missing_or_there_twice(pair, tmp_path):
    with pytest.raises(UsageError, match="no part is named"):
        sm.merge(tmp_path / "run", [])
    with pytest.raises(UsageError, match="part 1/2 is missing"):
        sm.merge(tmp_path / "run", pair[1:])
    copy = shutil.copytree(pair[1], tmp_path / "copy")
    with pytest.raises(UsageError, match="part 2/2 is there twice"):
        sm.merge(tmp_path / "run", [*pair, copy])
    with pytest.raises(UsageError, match="there is no such part"):
        sm.merge(tmp_path / "run", [*pair, tmp_path / "nothing"])
    assert not (tmp_path / "run").exists()


def test_damaged_parts(pair, tmp_path):
    def merged(change):
        part = shutil.copytree(pair[1], tmp_path / "part2")
        change(part)
        try:
            sm.merge(tmp_path / "run", [pair[0], part])
        finally:
            shutil.rmtree(part)
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

    def newest(part):
        return max(RunPart.open(part).checkpoints.ends().values())

    def flipped(part):
        file = part / f"checkpoints/step-{newest(part)}/state.safetensors"
        content = bytearray(file.read_bytes())
        content[-5] ^= 1
        file.write_bytes(content)

    with pytest.raises(ModelError, match=r"size or checksum is wrong.*part2"):
        merged(flipped)
    with pytest.raises(ModelError, match="damaged checkpoint"):
        merged(lambda p: (p / f"checkpoints/step-{newest(p)}/state.json").write_text("{"))
    with pytest.raises(MismatchError, match="part 2/2 is not finished: 1 of 2 epochs"):
        merged(lambda p: shutil.rmtree(p / f"checkpoints/step-{newest(p)}"))
    for name in ("part.json", "plan.json", "training.json"):
        with pytest.raises(MismatchError, match="damaged"):
            merged(lambda p, name=name: (p / name).write_text('{"epochs": -1}'))
    for name in ("part.json", "plan.json"):
        with pytest.raises(MismatchError, match="damaged"):
            merged(lambda p, name=name: (p / name).unlink())
    with pytest.raises(MismatchError, match="nothing is decided yet"):
        merged(lambda p: (p / "training.json").unlink())
    with pytest.raises(MismatchError, match="not the folder of a part"):
        merged(lambda p: (p / "streammach.json").unlink())


def test_what_is_no_part_is_no_run_and_the_other_way_round(data, pair, tmp_path):
    run = trainer(data).fit(data, tmp_path / "run")
    with pytest.raises(MismatchError, match="not the folder of a part"):
        sm.merge(tmp_path / "merged", [pair[0], run.path])
    with pytest.raises(UsageError, match="not that of a part"):
        trainer(data).fit_part(data, run.path, (1, 2), resume=True)
    with pytest.raises(UsageError, match="not that of a run"):
        trainer(data).fit(data, pair[0], resume=True)
    with pytest.raises(UsageError, match="not that of a run"):
        sm.merge(pair[0], pair)
    with pytest.raises(UsageError, match="holds other files"):
        trainer(data).fit_part(data, data.path.parent, (1, 2))


def test_runs_that_cannot_be_had_in_parts(data, tiny, tmp_path):
    def refused(made, message, part=(1, 2)):
        with pytest.raises(UsageError, match=message) as found:
            made.fit_part(data, tmp_path / "part", part)
        assert "\n" not in str(found.value)
        assert not (tmp_path / "part").exists()

    refused(trainer(data), "5 repetitions is not trained in 6 parts", (1, 6))
    refused(trainer(data), "is not a part such as 3/8", (3, 2))
    refused(trainer(data, loss="joint"), "learn together .*loss independent")
    refused(trainer(data, options={"epochs": 0}), "at least one epoch")
    plan = trainer(data).plan
    refused(sm.Trainer(plan, clock=sm.Clock(60.0)), "what a time allows")
    model = trainer(data).fit(data, tmp_path / "run").model
    refused(
        sm.Trainer(plan, start=Start(model, model.spec.n_classes)), "starts from no other model"
    )
    x = tiny.rng.standard_normal((300, 6))
    dense = tiny.dense_store("d.zarr", x, np.arange(300) % 30)
    with sm.Dataset.open(dense) as rows:
        made = trainer(rows, loss="independent", n_repetitions=3)
        assert made.plan.config.dense
        with pytest.raises(UsageError, match="dense rows are not trained in parts"):
            made.fit_part(rows, tmp_path / "part", (1, 2))


def test_a_part_that_lost_an_epoch_is_not_finished_by_going_on(data, pair, tmp_path):
    part = shutil.copytree(pair[0], tmp_path / "part1")
    ends = RunPart.open(part).checkpoints.ends()
    shutil.rmtree(part / f"checkpoints/step-{ends[1]}")
    with pytest.raises(ModelError, match=r"epochs are missing \(0 of 2 epochs\)"):
        trainer(data).fit_part(data, part, (1, 2), resume=True)


def test_what_the_first_part_counted_is_needed(data, tmp_path):
    made = trainer(data, counts="on")
    joint = made.fit(data, tmp_path / "joint")
    paths = parts_of(made, data, tmp_path, 2)
    counts = paths[0] / "checkpoints/counts"
    assert not (paths[1] / "checkpoints/counts").exists()
    file = max(counts.iterdir(), key=lambda file: file.stat().st_size)
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(ModelError, match=r"counts"):
        sm.merge(tmp_path / "run", paths)
    shutil.rmtree(counts)
    with pytest.raises(MismatchError, match="part 1/2 is not finished: no counts"):
        sm.merge(tmp_path / "run", paths, resume=True)
    assert made.fit_part(data, paths[0], (1, 2), resume=True).open_work == ""
    assert model_files(sm.merge(tmp_path / "run", paths, resume=True)) == model_files(joint)


def test_the_commands(data, tmp_path, capsys):
    options = (
        "--buckets 7 --repetitions 5 --counts off --threads 1 --progress none --epochs 2 "
        "--learning-rate 0.5 --transform binary"
    )
    train = ["train", str(data.path), *options.split()]
    one, two, run = (str(tmp_path / name) for name in ("one", "two", "run"))
    for more, message in (
        (["--settings", one], "a whole run decides itself: --settings without --part"),
        (["--part", "1/2", "--time", "1min"], "--time with --part"),
        (["--part", "3"], "'3' is not a part such as 3/8: --part"),
        (["--part", "1/2", "--settings", one], "there is no such part"),
    ):
        assert main([*train, "--out", one, *more]) == 2
        assert message in capsys.readouterr().err
    assert main([*train, "--out", one, "--part", "1/2"]) == 0
    assert "part 1/2, repetitions 1 to 2 of 5, 2 epochs" in capsys.readouterr().out
    assert main(["info", one]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1/2 of a run, repetitions 1 to 2 of 7 x 5" in said
    assert "merge RUN PART... joins all parts" in said
    assert main(["report", one]) == 4
    assert "It is a part of one: streammach merge RUN PART..." in capsys.readouterr().err
    assert main([*train, "--out", two, "--part", "2/2", "--settings", one]) == 0
    assert main(["merge", run, one]) == 2
    assert "part 2/2 is missing. Name all parts of a run." in capsys.readouterr().err
    assert main(["merge", run, two, one, "--progress", "none"]) == 0
    assert main([*train, "--out", str(tmp_path / "joint")]) == 0
    assert model_files(sm.Run.open(run)) == model_files(sm.Run.open(tmp_path / "joint"))
    view = ["--class-weight", "balanced"]
    for name, n in ((one, "1/2"), (two, "2/2")):
        assert main([*train, "--out", f"{name}-weighed", "--part", n, *view]) == 0
    weighed_parts = [f"{one}-weighed", f"{two}-weighed"]
    assert main(["merge", f"{run}-weighed", *weighed_parts]) == 4
    assert main(["merge", f"{run}-weighed", *weighed_parts, *view]) == 0


@pytest.mark.parametrize(
    "text", ["3", "3/", "/8", "0/2", "3/2", "1/2/3", "a/b", "-1/2", "1/\u0662"]
)
def test_what_is_no_part_number(text):
    with pytest.raises(UsageError, match="is not a part such as 3/8"):
        PartNumber.of_text(text)


def test_repetitions_are_dealt_evenly():
    for n in range(1, 12):
        ranges = [PartNumber(k, n).repetitions(11) for k in range(1, n + 1)]
        assert [i for first, last in ranges for i in range(first, last)] == list(range(11))
        assert max(b - a for a, b in ranges) - min(b - a for a, b in ranges) <= 1

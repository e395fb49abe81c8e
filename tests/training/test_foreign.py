"""Whatever somebody else puts into the folder of a run stays, and holds nothing up."""

import os
import shutil

import numpy as np
import pytest

import streammach as sm
from streammach.conversion.convert import convert
from streammach.options.training import TrainingOptions
from streammach.system.errors import Interrupted
from streammach.training.trainer import Trainer
from tests.builders import Stop, TinyData
from tests.members import WAYS, harmed, members

pytestmark = pytest.mark.timeout(300)
SOME = [
    ("checkpoints", "link"), ("checkpoints", "foreign content"), ("checkpoints", "pipe"),
    ("log.jsonl", "pipe"), ("log.jsonl", "link"), ("plan.json", "link"), (".", "foreign content"),
]  # fmt: skip


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """How to go on with an interrupted run and part, and folders that are copied for it."""
    folder = tmp_path_factory.mktemp("begun")
    store = TinyData(folder, np.random.default_rng(0)).store("s.zarr", n_rows=300, n_classes=12)
    plan = sm.plan(store, n_buckets=4, n_repetitions=4, threads=1)

    def go_on(kind, out, **how):
        trainer = Trainer(plan, TrainingOptions(epochs=2), checkpoint_minutes=0.0, **how)
        if kind == "run":
            return trainer.fit(store, out, resume=True)
        return trainer.fit_part(store, out, (1, 2), resume=True)

    for kind in ("run", "part"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("streammach.model.findings.LEAST_SECONDS", 0.0)
            stop = Stop(patch, on_epoch_end=lambda state: True)
            with pytest.raises(Interrupted):
                go_on(kind, folder / kind, callbacks=[stop])
        assert any("state.json" in name for name in members(folder / kind))
    return folder, go_on


@pytest.mark.parametrize(("member", "way"), SOME)
def test_what_is_foreign_in_a_run_stays(begun, tmp_path, member, way):
    folder, go_on = begun
    shutil.copytree(folder / "run", tmp_path / "run")
    assert harmed(tmp_path / "run", member, way, lambda: go_on("run", tmp_path / "run")) == ""


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["run", "part"])
def test_what_is_foreign_in_any_member_stays(begun, tmp_path, kind):
    folder, go_on = begun
    found, here = [], tmp_path / kind
    for member in members(folder / kind):
        for way in WAYS:
            if os.path.lexists(here):
                shutil.rmtree(here) if here.is_dir() and not here.is_symlink() else here.unlink()
            shutil.copytree(folder / kind, here)
            found.append(harmed(here, member, way, lambda: go_on(kind, here)))
    assert len(found) > 20
    assert [one for one in found if one] == []


@pytest.mark.parametrize("member", [".", "runs", "conversion.json", "runs/run-000000"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_foreign_in_an_unfinished_conversion_stays(tiny, monkeypatch, member, way):
    source, here = tiny.text("r.vw", tiny.lines(900, 20)), tiny.folder / ".out.partial"
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    room = lambda self, others, in_the_end, piece=0: 12_000  # noqa: E731
    monkeypatch.setattr("streammach.conversion.folder.ConversionMemory.room", room)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("streammach.conversion.build.StoreWriter.append_rows", interrupted)
        with pytest.raises(Interrupted):
            convert(source, tiny.folder / "out")
    assert harmed(here, member, way, lambda: convert(source, tiny.folder / "out")) == ""

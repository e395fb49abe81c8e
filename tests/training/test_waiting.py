"""While a training goes on in Python: who is told how it goes, and what Ctrl-C leaves."""

import os
import signal
import sys
import warnings

import numpy as np
import pytest

import streammach as sm
from streammach.system.clock import Clock
from streammach.system.errors import Interrupted
from tests.streams import read_in_thread

GIVEN = {"memory": "1GB", "threads": 1, "n_buckets": 8, "n_repetitions": 2, "linear": "off"}
FIXED = {"learning_rate": 0.5, "transform": "binary", "epochs": 6}


@pytest.fixture
def rows(rng):
    y = np.arange(1200) % 30
    words = [f"own{c}_{rng.integers(3)} n{rng.integers(40)} n{rng.integers(40)}" for c in y]
    return words, [f"c{c}" for c in y]


class Press:
    """Presses Ctrl-C, or sends another signal, the first time that something is told."""

    def __init__(self, moment, number=signal.SIGINT):
        def press(state):
            delattr(self, moment)
            signal.raise_signal(number)

        setattr(self, moment, press)


def test_ctrl_c_in_an_epoch_gives_the_best_model_by_then(rows):
    words, labels = rows
    with pytest.warns(UserWarning, match="interrupted: the model is the best one by then"):
        run = sm.train(
            words, labels, **GIVEN, **FIXED, counts="off", callbacks=[Press("on_epoch_end")]
        )
    assert run.result.stopped == "interrupted"
    assert len(run.result.history) == 1
    assert run.result.warnings[0].startswith("interrupted")
    assert np.mean(run.model.predict(words) == np.array(labels)) > 0.5


def test_ctrl_c_in_the_search_gives_the_counts(rows):
    words, labels = rows
    with pytest.warns(UserWarning, match="interrupted"):
        run = sm.train(words, labels, **GIVEN, counts="on", callbacks=[Press("on_search")])
    assert not run.result.history
    assert np.mean(run.model.predict(words) == np.array(labels)) > 0.5


def test_the_estimator_has_the_best_model_too(rows):
    pytest.importorskip("sklearn")
    own = {"n_buckets": 8, "n_repetitions": 2, "n_jobs": 1, "learning_rate": 0.5, "epochs": 6}
    options = {"transform": "binary", "counts": "off", "linear": "off"}
    press = Press("on_epoch_end")
    clf = sm.MACHClassifier(memory="1GB", **own, options=options, callbacks=[press])
    with pytest.warns(UserWarning, match="interrupted"):
        clf.fit(*rows)
    assert clf.n_iter_ == 1
    assert clf.score(*rows) > 0.5


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_goes_on_where_no_model_is_there_and_when_it_comes_twice(times, rows):
    moment, given = ("on_search", {}) if times == 1 else ("on_epoch_end", FIXED)
    presses = [Press(moment) for _ in range(times)]
    with pytest.raises(KeyboardInterrupt):
        sm.train(*rows, **GIVEN, **given, counts="off", callbacks=presses)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_signal_ends_it_without_a_model(rows):
    press = Press("on_epoch_end", signal.SIGTERM)
    with pytest.raises(Interrupted, match="nothing is kept"):
        sm.train(*rows, **GIVEN, **FIXED, counts="off", callbacks=[press])


def test_with_a_folder_ctrl_c_leaves_what_goes_on(rows, tmp_path):
    how = {**GIVEN, **FIXED, "counts": "off", "out": tmp_path / "run"}
    with pytest.raises(Interrupted, match="saved step"):
        sm.train(*rows, **how, callbacks=[Press("on_epoch_end")])
    assert len(sm.train(*rows, **how, callbacks=[], resume=True).result.history) == 6


def test_a_clock_ends_with_those_made_of_it():
    now = [0.0]
    for whole in (Clock(now=lambda: now[0]), Clock(10.0, now=lambda: now[0])):
        part = whole.without(2.0).share(0.5)
        assert part.remaining_seconds > 0
        whole.end()
        assert whole.limited
        assert part.limited
        assert whole.remaining_seconds <= 0
        assert part.remaining_seconds <= 0


def told(monkeypatch, columns, train):
    """Return what a training tells stderr: a terminal of so many columns, or a pipe for 0."""
    reader, writer = os.openpty() if columns else os.pipe()
    finish = read_in_thread(reader)
    with monkeypatch.context() as patch, os.fdopen(writer, "w", encoding="utf-8") as stream:
        patch.setattr(sys, "stderr", stream)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", str(columns or 80))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train()
    return finish()


@pytest.mark.parametrize("estimator", [False, True])
def test_a_terminal_is_told_and_a_pipe_is_not(estimator, rows, monkeypatch):
    def train(**how):
        given = {**GIVEN, **FIXED, "epochs": 2, "counts": "off"}
        if not estimator:
            sm.train(*rows, **given, **how)
            return
        pytest.importorskip("sklearn")
        own = {name: given.pop(name) for name in ("memory", "n_buckets", "n_repetitions", "epochs",
                                                  "learning_rate")}  # fmt: skip
        sm.MACHClassifier(**own, n_jobs=given.pop("threads"), options=given, **how).fit(*rows)

    shown = told(monkeypatch, 90, train)
    assert "epoch" in shown
    assert "\x1b[" in shown  # a bar is drawn and taken off again
    assert told(monkeypatch, 90, lambda: train(progress=False)) == ""
    assert told(monkeypatch, 0, train) == ""
    assert "epoch" in told(monkeypatch, 0, lambda: train(progress=True))

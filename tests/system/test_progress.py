"""ProgressBar as it is shown: lines in a pipe, JSON, a bar of one line, or a call."""

import io
import json
import sys

import pytest

from streammach.system.errors import UsageError
from streammach.system.progress import ProgressBar, clock_text, fit_lines, line_width
from streammach.system.stages import StageState


def state(**changed):
    found = {
        "stage": "counting pairs", "moment": "within", "done": 41.0, "total": 100.0, "share": 0.41,
        "stage_seconds": 12.0, "seconds": 30.0, "left_seconds": 95.0,
    }  # fmt: skip
    return StageState(**{**found, **changed})


def shown(capsys, mode, *states, unit="rows"):
    with ProgressBar(mode, unit) as progress:
        for one in states:
            progress.show(one)
    return capsys.readouterr().err.splitlines()


def test_lines_tell_stage_share_speed_and_all_that_is_left(capsys):
    lines = shown(capsys, "plain", state(moment="begin", stage_seconds=0.0), state(), state(),
                  state(moment="end", share=1.0, left_seconds=80.0))  # fmt: skip
    said = [line.split("Z ", 1)[1] for line in lines]
    assert said == [
        "counting pairs  41% 41 rows 3 rows/s  1 min 35 s left",
        "counting pairs  took 12 s  1 min 20 s left",
    ]


def test_a_stage_of_a_moment_has_no_line(capsys):
    assert shown(capsys, "plain", state(stage_seconds=0.2),
                 state(moment="end", stage_seconds=0.4)) == []  # fmt: skip


def test_json_has_an_object_a_line(capsys):
    lines = shown(capsys, "json", state(moment="begin"), state(moment="end", left_seconds=None))
    found = [json.loads(line) for line in lines]
    assert [one["event"] for one in found] == ["progress", "progress"]
    assert found[0]["stage"] == "counting pairs"
    assert (found[0]["share"], found[0]["left_seconds"]) == (0.41, 95.0)
    assert found[1]["left_seconds"] is None
    with ProgressBar("json", "rows") as progress:
        progress.tell("a word")
    assert json.loads(capsys.readouterr().err)["text"] == "a word"


def test_a_bar_is_a_line_of_80_columns(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    for name, value in {"COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", screen)
    with ProgressBar("auto", "") as progress:
        assert progress.mode == "bar"
        note = "epoch 3/12  10,920 rows/s  loss 4.980"
        progress.show(state(stage="counts beside models", note=note, left_seconds=36_000.0))
        progress._bar.refresh()
        progress.tell("a line above")
    text = screen.getvalue()
    assert "a line above" in text
    lines = [line for line in text.split("\r") if "counts beside models" in line]
    assert lines
    for line in lines:
        plain = "".join(part.split("m", 1)[-1] for part in line.split("\n")[0].split("\x1b["))
        assert len(plain.rstrip()) <= 80
        assert "41%" in plain
        assert "10:00:00 left" in plain


def test_what_is_called_is_told_stage_done_and_total():
    calls = []
    progress = ProgressBar(lambda *given: calls.append(given), "rows")
    progress("evaluate", 5, 10)
    progress.show(state())
    progress.show(state(moment="end"))
    progress.close()
    assert calls == [("evaluate", 5, 10), ("counting pairs", 41, 100), ("counting pairs", 100, 100)]


@pytest.mark.parametrize(
    ("wanted", "mode"), [(True, "plain"), (False, "none"), (None, "none"), ("plain", "plain")]
)
def test_what_is_said_in_python_becomes_a_mode(wanted, mode, capsys):
    assert ProgressBar(wanted, "rows").mode == mode
    assert not capsys.readouterr().err


def test_another_word_is_refused():
    with pytest.raises(UsageError, match="'loud' is not one of auto, bar"):
        ProgressBar("loud", "rows")


def test_durations_are_those_of_a_clock():
    assert [clock_text(s) for s in (7, 750, 3723)] == ["0:07", "12:30", "1:02:03"]


class Screen(io.StringIO):
    """A terminal of so many columns."""

    def isatty(self):
        return True


def test_lines_of_a_terminal_are_broken_at_spaces(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = "why      a reason of many words, one after another\nshort\n" + "x" * 60
    assert fit_lines(text, io.StringIO()) == text
    assert fit_lines(text, Screen()).split("\n") == [
        "why      a reason of many words, one",
        "         after another",
        "short",
        "x" * 60,  # a path can be copied
    ]
    assert line_width(Screen()) == 40
    assert line_width(io.StringIO()) == 100

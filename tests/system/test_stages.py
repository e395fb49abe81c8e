"""How far work is, and how long all of it will take, by a clock that is set."""

import threading

import pytest

from streammach.system import clock as clock_module
from streammach.system import stages as module
from streammach.system.stages import Stages


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(clock_module, "time", found)
    monkeypatch.setattr(module, "TICK_SECONDS", 1e6)  # nothing is told but what the test does
    return found


def made(told, expected=None, **options):
    return Stages(told.append, expected, **options)


def test_stages_are_told_when_they_begin_and_end(clock):
    told = []
    with made(told) as stages:
        stages.begin("read")
        clock.now += 3
        stages.at(5, 10, "five")
        stages.begin("read")  # which it is already
        stages.begin("write")
        clock.now += 1
    found = [(s.stage, s.moment, s.share, s.stage_seconds, s.seconds, s.note) for s in told]
    assert found == [
        ("read", "begin", None, 0, 0, ""), ("read", "end", 1, 3, 3, "five"),
        ("write", "begin", None, 0, 3, ""), ("write", "end", 1, 1, 4, ""),
    ]  # fmt: skip
    assert stages.took == {"read": 3, "write": 1}


def test_what_is_left_is_what_was_expected_at_the_pace_so_far(clock):
    told = []
    with made(told, {"a": 10.0, "b": 30.0, "c": 60.0}) as stages:
        stages.begin("a")
        assert told[-1].left_seconds == pytest.approx(100)
        clock.now += 20  # twice as long
        stages.begin("b")
        prior = module.PRIOR * 100
        factor = (prior + 20) / (prior + 10)
        assert told[-1].left_seconds == pytest.approx(90 * factor)
        clock.now += 30
        stages.at(1, 2)
        assert 30 < stages.left_seconds < 30 + 60 * 2
        stages.begin("c")
        clock.now += 100
        assert stages.left_seconds > 0  # it is late, and still at work
    assert told[-1].left_seconds == 0


def test_a_stage_that_is_left_out_is_expected_no_more(clock):
    told = []
    with made(told, {"a": 10.0, "b": 30.0, "c": 60.0}) as stages:
        stages.begin("c")
        assert told[-1].left_seconds == pytest.approx(60)


def test_what_was_measured_is_not_corrected(clock):
    with made([], {"a": 10.0, "b": 30.0}) as stages:
        stages.begin("a")
        stages.expect({"b": 7.0, "unheard of": 50.0})
        clock.now += 100
        stages.begin("b")
        assert stages.left_seconds == pytest.approx(7)


def test_without_an_expectation_the_share_says_what_is_left(clock):
    with made([]) as stages:
        stages.begin("rows")
        clock.now += 5
        assert stages.left_seconds is None
        stages.at(1, 4)
        assert stages.left_seconds == pytest.approx(15)


def test_relative_times_say_nothing_until_something_is_done(clock):
    with made([], {"read": 2.0, "write": 1.0}, relative=True) as stages:
        stages.begin("read")
        assert stages.left_seconds is None
        clock.now += 10
        stages.at(1, 2)
        assert stages.left_seconds == pytest.approx(10 + 10)
        clock.now += 10
        stages.begin("write")
        assert stages.left_seconds == pytest.approx(10)


def test_a_limit_bounds_what_is_left(clock):
    with made([], {"a": 10.0}, clock=clock_module.Clock(4.0)) as stages:
        stages.begin("a")
        assert stages.left_seconds == 4


def test_stages_within_one_are_not_told(clock):
    told = []
    with made(told, {"a": 10.0, "b": 30.0, "c": 60.0}) as stages:
        with stages.one("a"):
            stages.begin("c")
            clock.now += 10
        stages.begin("b")
        assert told[-1].left_seconds == pytest.approx(90)
    assert [s.stage for s in told] == ["a", "a", "b", "b"]


def test_work_that_is_cut_off_does_not_tell_an_end(clock):
    told = []
    stages = made(told)
    stages.begin("a")
    stages.close(whole=False)
    assert [s.moment for s in told] == ["begin"]


def test_a_busy_stage_is_told_by_a_thread(monkeypatch):
    monkeypatch.setattr(module, "TICK_SECONDS", 1e-3)
    seen = threading.Event()
    with Stages(lambda state: state.moment == "within" and seen.set()) as stages:
        stages.begin("busy")
        assert seen.wait(60)


def test_what_telling_raises_reaches_the_work(monkeypatch):
    monkeypatch.setattr(module, "TICK_SECONDS", 1e-3)
    raised = threading.Event()

    def told(state):
        if state.moment == "within":
            raised.set()
            raise OSError("full")

    stages = Stages(told)
    stages.begin("busy")
    assert raised.wait(60)
    with pytest.raises(OSError, match="full"):
        stages.close()
    with pytest.raises(OSError, match="full"):
        stages.at(1, 2)

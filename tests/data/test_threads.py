"""Work that one thread does in the order of its numbers."""

import threading

import pytest

from streammach.data.conversion.threads import InTurn


def test_work_is_done_in_order_by_another_thread():
    done = []
    with InTurn(lambda k: done.append((k, threading.current_thread()))) as turn:
        for k in (2, 0, 3, 1, 4):
            turn.ready(k)
    assert [k for k, _ in done] == [0, 1, 2, 3, 4]
    assert {thread for _, thread in done} != {threading.current_thread()}


def test_work_waits_for_what_is_before_it():
    done = []
    with InTurn(done.append) as turn:
        turn.ready(1)
    assert done == []


def test_what_work_raises_is_raised_where_the_block_ends():
    with pytest.raises(ZeroDivisionError), InTurn(lambda k: 1 / k) as turn:
        turn.ready(0)


def test_what_work_raises_is_raised_when_more_is_ready():
    ended = threading.Event()

    def work(k):
        ended.set()
        return 1 / k

    def go_on():
        with InTurn(work) as turn:
            turn.ready(0)
            ended.wait()
            while True:
                turn.ready(1)

    with pytest.raises(ZeroDivisionError):
        go_on()


def test_after_an_exception_no_more_work_begins():
    done, go, begun = [], threading.Event(), threading.Event()

    def work(k):
        begun.set()
        go.wait()
        done.append(k)

    def end():
        with InTurn(work) as turn:
            for k in range(3):
                turn.ready(k)
            begun.wait()
            threading.Timer(0.2, go.set).start()
            raise KeyError

    with pytest.raises(KeyError):
        end()
    assert done == [0]

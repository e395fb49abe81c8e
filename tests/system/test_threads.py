"""Threads that share work: every piece once, errors in the caller, callers that meet."""

import gc
import threading
import time

import numpy as np
import pytest

from streammach.system import threads as team
from streammach.system.errors import UsageError
from streammach.system.threads import PIECES, Workers, map_in_order, pieces_of


@pytest.mark.parametrize("threads", [1, 2, 3, 16, 40])
@pytest.mark.parametrize("n", [0, 1, 2, 15, 1000])
@pytest.mark.parametrize("weighed", [False, True])
def test_every_unit_is_done_once_by_any_number_of_threads(threads, n, weighed):
    done = np.zeros(n, np.int64)
    cost = np.cumsum(np.arange(n + 1) % 7) if weighed else None

    def work(first, last):
        done[first:last] += 1
        time.sleep(0)

    workers = Workers(threads, "test")
    for _ in range(40):  # some threads have yet to wake when all is done
        workers.each(work, pieces_of(n, threads, cost))
    workers.close()
    assert (done == 40).all()
    assert len(pieces_of(n, threads, cost)) <= (1 if threads == 1 else max(PIECES, threads))


def test_there_are_no_more_threads_than_processors(monkeypatch):
    monkeypatch.setattr(team, "cores", lambda: 2)
    at_work, met = set(), threading.Barrier(2)

    def work(first, _):
        at_work.add(threading.get_ident())
        met.wait(20)

    workers = Workers(16, "test")
    workers.each(work, [(i, i + 1) for i in range(16)])
    workers.close()
    assert workers.n_threads == len(at_work) == 2


def test_pieces_cost_alike():
    cost = np.concatenate(([0], np.cumsum(np.random.default_rng(0).zipf(1.5, 5000).clip(0, 300))))
    assert max(cost[b] - cost[a] for a, b in pieces_of(5000, 4, cost)) < cost[-1] / PIECES + 300


def test_an_error_of_a_piece_reaches_the_caller_and_work_goes_on_after_it():
    workers, done = Workers(4, "test"), []

    def fails(first, _):
        if first == 5:
            raise ValueError("five")

    with pytest.raises(ValueError, match="five"):
        workers.each(fails, [(i, i + 1) for i in range(10)])
    workers.each(lambda a, b: done.append((a, b)), [(i, i + 1) for i in range(10)])
    assert sorted(done) == [(i, i + 1) for i in range(10)]


def test_work_within_work_and_of_several_callers_is_done():
    workers, done, lock = Workers(3, "test"), [], threading.Lock()

    def add(first, _):
        with lock:
            done.append(first)

    def outer(first, _):
        workers.each(add, [(10 * first + i, 0) for i in range(4)])

    callers = [
        threading.Thread(target=workers.each, args=(outer, [(i, 0) for i in range(6)]))
        for _ in range(3)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sorted(done) == sorted(3 * [10 * i + j for i in range(6) for j in range(4)])


def test_closed_threads_end_and_do_no_more_work():
    def mine():
        return [one for one in threading.enumerate() if one.name.startswith("ends")]

    workers = Workers(5, "ends")
    workers.each(lambda *_: time.sleep(0.001), [(i, i) for i in range(9)])
    assert len(mine()) == 4
    workers.close()
    assert mine() == []
    with pytest.raises(UsageError, match="closed"):
        workers.each(print, [(0, 1)])
    forgotten = Workers(3, "ends")
    forgotten.each(lambda *_: None, [(i, i) for i in range(9)])
    del forgotten
    gc.collect()
    for one in mine():
        one.join(5)
    assert mine() == []


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_and_few_items_are_under_way(threads, monkeypatch):
    monkeypatch.setattr(team, "cores", lambda: 3)
    workers, taken, done = Workers(threads, "test"), [], []

    def items():
        for i in range(60):
            taken.append(i)
            assert len(taken) - len(done) <= 7
            yield i

    def work(i):
        time.sleep(0.0005 * (i % 5))
        return i * i

    for result in map_in_order(workers, work, items(), 7):
        done.append(result)
    assert done == [i * i for i in range(60)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("of_items", [False, True])
def test_an_error_comes_behind_the_results_before_it(threads, of_items, monkeypatch):
    monkeypatch.setattr(team, "cores", lambda: 3)

    def items():
        yield from range(20)
        if of_items:
            raise ValueError("20")
        yield from range(20, 40)

    def work(i):
        time.sleep(0.002)
        if i == 20:
            raise ValueError("20")
        return i

    done = []
    with pytest.raises(ValueError, match="20"):
        done.extend(map_in_order(Workers(threads, "test"), work, items(), 6))
    assert done == list(range(20))
    assert not [one for one in threading.enumerate() if one.name.startswith("in order")]

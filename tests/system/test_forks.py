"""Processes that are forked while threads are at work: no child waits for a thread it has not."""

import os
import pickle
import signal
import threading
import time
import traceback

import numba
import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

import streammach as sm
from streammach.system.errors import UsageError
from streammach.system.forks import ForkSafeLock
from streammach.system.progress import ProgressBar
from streammach.system.stages import Stages
from streammach.system.threads import Workers, work_ahead
from tests.model.models import counts_of, model_of

pytestmark = [
    pytest.mark.timeout(900),  # the first one may compile kernels
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]
SECONDS = 20  # after which a child hangs


def in_child(work):
    """What a function returns in a forked child; a child that hangs is killed, and fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            said = pickle.dumps(work())
        except BaseException:
            said = pickle.dumps(traceback.format_exc())
        os.write(writer, said)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read()
    assert os.waitpid(child, 0)[1] == 0, "the child hangs"
    return pickle.loads(said)


def model(counts=False):
    rng = np.random.default_rng(5)
    made = model_of(rng, counts=counts_of(rng) if counts else None)
    own = {name: getattr(made, name) for name, one in made.__dataclass_fields__.items() if one.init}
    return sm.Model(**own)


ROWS = [{"f1": 1.0, "f3": -2.0}, {"f4": 0.5}]


def model_predicts():
    one = model()
    return lambda: (one.predict_topk(ROWS, 3)[0].tolist(),)


def model_with_counts_predicts():
    one = model(counts=True)
    return lambda: (one.predict_topk(ROWS, 3)[0].tolist(),)


def estimator_predicts():
    x = np.random.default_rng(2).normal(size=(60, 4)).astype(np.float32)
    one = sm.MACHClassifier(n_buckets=2, n_repetitions=2, epochs=1, memory="1GB")
    one.fit(x, x.argmax(axis=1))
    return lambda: (one.predict(x[:3]).tolist(), one.predict_proba(x[:3]).tolist())


def predictor_predicts():
    one = sm.Predictor(model(), threads=2)
    return lambda: (one.topk(ROWS, 3)[0].tolist(),)


def workers_work():
    workers = Workers(2, "test")

    def work():
        found = []
        workers.each(lambda a, b: found.append((a, b)), [(i, i + 1) for i in range(5)])
        return sorted(found)

    return work


def stages_begin():
    told = threading.Event()
    stages = Stages(lambda state: told.wait(0.01))

    def work():
        for name in ("a", "b"):
            stages.begin(name)
        return 1

    return work


def progress_tells():
    progress = ProgressBar(lambda *given: time.sleep(0.001), "rows")

    def work():
        progress("stage", 1, 2)
        return 1

    return work


def turn_is_taken():
    turn = ForkSafeLock()

    def work():
        with turn:
            time.sleep(0.01)
            return 1

    return work


USED = [
    model_predicts, model_with_counts_predicts, estimator_predicts, predictor_predicts,
    workers_work, stages_begin, progress_tells, turn_is_taken,
]  # fmt: skip


@pytest.mark.parametrize("made", USED)
def test_a_child_does_the_same_while_a_thread_is_at_it(made):
    work = made()
    wanted, over = work(), threading.Event()

    def again():
        while not over.is_set():
            work()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        for n in range(8):
            time.sleep(0.0007 * n)
            assert in_child(work) == wanted
    finally:
        over.set()
        thread.join()
    assert work() == wanted


def test_a_lock_says_what_was_half_done():
    turn, held, go = ForkSafeLock(), threading.Event(), threading.Event()

    def hold():
        with turn:
            held.set()
            go.wait(SECONDS)

    def lost():
        with turn as first, turn as again:
            return first, again

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert in_child(lost) == (True, False)
    go.set()
    thread.join()
    assert lost() == (False, False)
    with turn:  # the thread that forks goes on with what it holds
        assert in_child(lost) == (False, False)


def test_what_a_thread_makes_ahead_is_an_error_in_a_child():
    items = work_ahead(iter(range(10**6)), "test")
    assert next(items) == 0

    def more():
        try:
            return [next(items) for _ in range(3)]
        except UsageError as error:
            return str(error)

    assert "another process" in in_child(more)
    assert next(items) == 1
    items.close()


def test_a_fork_waits_for_a_kernel_that_is_compiled():
    held = threading.Event()

    def compile_it():
        with global_compiler_lock:
            held.set()
            time.sleep(0.3)

    thread = threading.Thread(target=compile_it)
    thread.start()
    held.wait()
    assert in_child(lambda: int(numba.vectorize(lambda x: x + 1)(2))) == 3
    thread.join()

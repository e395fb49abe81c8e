"""The one way to start another process, and to stop this one.

Work that takes memory which should go with it, compilers above all, is done by a process of its
own. It is started isolated: nothing is imported from the working folder. It dies with its parent,
however that dies, and signals that the parent gets are passed on at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from streammach.system.errors import Interrupted, StreammachError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

INTERRUPTED = 130
AGAIN = 75  # exit code of a process that did some of its work, and wants to be started again
STOPPING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
AGAIN_SECONDS = 0.02  # until a signal comes again that was lost
ROOT = str(Path(__file__).parents[2])  # where the package was imported from
# What a child runs: only what is named here is imported, from the folders that are named here.
BOOT = (
    "import sys; sys.path[:] = {path}; from streammach.system.processes import serve; serve({end})"
)

Handler = Callable[[int, FrameType | None], Any]


def stopping_signals() -> tuple[int, ...]:
    """Return the signals that stop this process: not those that it was started to ignore.

    A shell starts what runs in the background with SIGINT ignored, and ``nohup`` with SIGHUP.
    """
    return tuple(n for n in STOPPING if signal.getsignal(n) is not signal.SIG_IGN)


class Interrupts:
    """Turns the first stopping signal into KeyboardInterrupt; the second one ends the process."""

    def __init__(self) -> None:
        self.came: int | None = None  # the first signal

    def install(self) -> None:
        """Let this object handle the signals that are heeded, from now on."""
        sys.unraisablehook = _repeat_signal
        for number in stopping_signals():
            signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.came is not None:
            os._exit(INTERRUPTED)
        self.came = number
        raise KeyboardInterrupt


def _repeat_signal(unraisable: sys.UnraisableHookArgs) -> None:
    """Have a signal come again that came where nothing can be raised, as in a callback from C."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        for handler in map(signal.getsignal, stopping_signals()):
            if isinstance(handler, Interrupts) and handler.came is not None:
                number, handler.came = handler.came, None
                again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
                again.daemon = True
                again.start()
                return
    sys.__unraisablehook__(unraisable)


@contextmanager
def handle_signals(handler: Handler, suspend: Handler | None = None) -> Iterator[None]:
    """Handle stopping signals, and Ctrl-Z, in another way in a block; in the main thread alone."""
    handlers = dict.fromkeys(stopping_signals(), handler)
    ctrl_z = getattr(signal, "SIGTSTP", None)
    if suspend is not None and ctrl_z and signal.getsignal(ctrl_z) is not signal.SIG_IGN:
        handlers[ctrl_z] = suspend
    main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, new) for n, new in handlers.items()} if main else {}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class StopSignals:
    """Notes a first stopping signal in a main thread's ``with``; a second ends the process.

    With `raises` it raises KeyboardInterrupt instead.
    """

    def __init__(self, *, raises: bool = False) -> None:
        self.requested, self._raises = False, raises
        self.by_user = False  # whether it came from Ctrl-C
        self._handled = ExitStack()

    def __enter__(self) -> StopSignals:
        self._handled.enter_context(handle_signals(self._note))
        return self

    def __exit__(self, *exc: object) -> None:
        self._handled.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and self._raises:
            raise KeyboardInterrupt
        if self.requested:
            os._exit(INTERRUPTED)
        self.requested, self.by_user = True, number == signal.SIGINT


def run(
    function: str, *arguments: Any, patience: float | None = None,
    stdout: int | IO[Any] | None = None, stderr: int | IO[Any] | None = None,
) -> Any:  # fmt: skip
    """Return what a function returns in a fresh process, or ``AGAIN``; `patience` is in seconds."""
    child = _Child(function, arguments, stdout, stderr)
    with handle_signals(lambda number, _: child.pass_on(number, patience), child.suspend):
        answer = child.answer()
    if answer is None:
        if child.signals:
            raise KeyboardInterrupt
        if child.code == AGAIN:
            return AGAIN
        what = f"a part of the work was ended from outside (exit code {child.code})"
        hint = "Is memory short? The same command goes on or starts anew."
        raise StreammachError(what, hint=hint)
    result, error = answer
    if error is not None:
        raise error
    return result


@contextmanager
def beside(function: str, *arguments: Any) -> Iterator[None]:
    """Have a function at work in a fresh process during a block, at whose end it is killed.

    What it returns, says or raises is lost: it only makes ready.
    """
    child = _Child(function, arguments, subprocess.DEVNULL, subprocess.DEVNULL)
    try:
        yield
    finally:
        child.kill()


class _Child:
    def __init__(
        self, function: str, arguments: tuple[Any, ...], stdout: int | IO[Any] | None,
        stderr: int | IO[Any] | None,
    ) -> None:  # fmt: skip
        self.signals = 0
        self.code: int | None = None
        from multiprocessing import Pipe  # takes its time: most commands start no other process

        self._pipe, end = Pipe()
        code = BOOT.format(path=_search_path(), end=end.fileno())
        # Stopping signals wait; a child that is started meanwhile lets them wait until it is ready.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code], stdout=stdout, stderr=stderr,
                pass_fds=(end.fileno(),), process_group=0,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            end.close()
        with suppress(OSError):  # it is gone already: there will be no answer
            self._pipe.send((function, arguments))

    def answer(self) -> tuple[Any, BaseException | None] | None:
        """Wait for the end; return the result and the error, None where none was sent."""
        found: tuple[Any, BaseException | None] | None = None
        with self._pipe:
            with suppress(EOFError, OSError):
                found = self._pipe.recv()
            self.code = self._process.wait()  # while its parent lives: it ends in its own time
        return found

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.answer()

    def pass_on(self, number: int, patience: float | None) -> None:
        """Pass a signal on; the second one, or the end of patience, kills."""
        self.signals += 1
        if self.signals > 1:
            self._process.kill()
            return
        self._process.send_signal(number)
        if patience is not None:
            timer = threading.Timer(patience, self._process.kill)
            timer.daemon = True
            timer.start()

    def suspend(self, number: int, frame: FrameType | None) -> None:
        """Stop both processes together, as Ctrl-Z does, and let both go on together."""
        self._process.send_signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._process.send_signal(signal.SIGCONT)


def _search_path() -> list[str]:
    """Return where a child looks for modules: not in the working folder, unless we are there."""
    here = os.path.realpath(os.getcwd())
    kept = [p for p in sys.path if os.path.isabs(p) and os.path.realpath(p) != here]
    return kept if ROOT in kept else [ROOT, *kept]


def serve(end: int) -> None:
    """Do the work that is ordered, as a child; end when the parent does."""
    from multiprocessing.connection import Connection

    try:
        _serve(Connection(end))
    except KeyboardInterrupt:  # between two lines; the parent sees that there is no answer
        os._exit(INTERRUPTED)


def _serve(pipe: Connection) -> None:
    interrupts = Interrupts()
    interrupts.install()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)  # held since before the start
        try:
            function, arguments = pipe.recv()
        except EOFError:  # the parent is gone
            return
        threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
        module, _, name = function.partition(":")
        found: tuple[Any, BaseException | None] = (
            getattr(import_module(module), name)(*arguments), None
        )  # fmt: skip
    except (StreammachError, KeyboardInterrupt, MemoryError, OSError) as error:
        found = (None, error)
    except Exception as error:  # one that may not bear to be sent
        found = (None, StreammachError(f"{type(error).__name__}: {error}"))
    if interrupts.came is not None and not isinstance(found[1], Interrupted):
        found = (None, KeyboardInterrupt())  # whatever a library made of it
    with suppress(BrokenPipeError):
        pipe.send(found)


def _end_with_parent(pipe: Connection) -> None:
    """Wait until the parent is gone: its end of the pipe is closed then."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os._exit(INTERRUPTED)

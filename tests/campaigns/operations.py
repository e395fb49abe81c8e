"""Counts what a process does to files, and lets one of these operations end or fail.

It hooks the functions of `os` through which all files of the package go, the swap of two names, and
the file of skipped rows. It is meant for a process that was forked for one trial: nothing is put
back.
"""

import errno
import io
import os
import signal

from streammach.system import linux
from tests.campaigns.trials import WRITE

NAMES = ("write", "fsync", "replace", "rename", "mkdir", "ftruncate", "unlink", "rmdir", "open")
FULL = ("write", "fsync", "mkdir", "open")  # what a full disk refuses
SHORT = 0  # in place of an error: a write that writes half of what it is given and says so


def able(number):
    """Return the names of the operations that can meet an error."""
    return {errno.ENOSPC: FULL, SHORT: ("write",)}.get(number, (*NAMES, "exchange"))


def _half(data):
    return WRITE(data[0], bytes(data[1])[: (len(data[1]) + 1) // 2])


class Operations:
    """Counts the operations that change files; :attr:`names` holds the name of each."""

    def __init__(self):
        self.names, self.failed = [], 0

    def install(self):
        for name in NAMES:
            setattr(os, name, self._hooked(name, getattr(os, name)))
        real = linux._rename_with
        linux._rename_with = lambda a, b, flags: self.around("exchange", lambda: real(a, b, flags))
        operations, fdopen = self, os.fdopen

        class Listed(io.FileIO):
            def write(self, data):
                return operations.around("write", lambda: io.FileIO.write(self, data))

        def opened(handle, mode="r", buffering=-1):
            return fdopen(handle, mode, buffering) if buffering else Listed(handle, mode)

        os.fdopen = opened  # of the list of bad rows alone it is without a buffer

    def _hooked(self, name, function):
        def call(*arguments, **options):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return function(*arguments, **options)
            data = arguments if name == "write" else None
            return self.around(name, lambda: function(*arguments, **options), data)

        return call

    def around(self, name, call, data=None):
        """Do an operation; `data` are the file and the bytes of a write."""
        self.names.append(name)
        return call()


class KilledAt(Operations):
    """Ends the process before an operation, or in the middle of a write, half of it written."""

    def __init__(self, at):
        super().__init__()
        self._at = at

    def around(self, name, call, data=None):
        if len(self.names) == self._at:
            if data is not None:
                _half(data)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().around(name, call)


class Failing(Operations):
    """Lets the operation `at`, among those that can fail, meet an error, once or from then on.

    `number` is ENOSPC, which only operations that need space can meet, EIO, or SHORT. Where it is
    `short`, a write that fails first writes half of its bytes, as a full disk lets it.
    """

    def __init__(self, at, number, *, sticky, short):
        super().__init__()
        self._at, self._number, self._sticky, self._short = at, number, sticky, short

    def around(self, name, call, data=None):
        if name not in able(self._number):
            return call()
        at = len(self.names)
        self.names.append(name)
        if not (at == self._at or (self._sticky and at > self._at)):
            return call()
        if self._number == SHORT:
            return call() if data is None else _half(data)
        if self._short and data is not None and len(data[1]) > 1:
            self._short, self._at = False, self._at + 1
            return _half(data)
        self.failed += 1
        if name == "exchange":
            return False  # what the caller is told of any failure
        raise OSError(self._number, os.strerror(self._number))

"""Counts what a process does to files, and lets one of these operations end or fail.

It hooks the functions of `os` through which all files of the package go, the swap of two names, and
the file of skipped rows. It is meant for a process that was forked for one trial: nothing is put
back.
"""

import errno
import io
import os
import signal

import streammach.data.bad_rows
import streammach.files.folders

NAMES = (
    "write", "fsync", "replace", "rename", "mkdir", "ftruncate", "unlink", "rmdir", "open",
)  # fmt: skip
FULL = ("write", "fsync", "mkdir", "open")  # what a full disk refuses
SHORT = 0
real_write = os.write


def able(number):
    """Return the names of the operations that can meet an error."""
    return {errno.ENOSPC: FULL, SHORT: ("write",)}.get(number, (*NAMES, "exchange"))


def _half(data):
    return bytes(data)[: (len(data) + 1) // 2]


class Operations:
    """Calls ``self.around(name, call, data)`` instead of each operation that changes files."""

    def install(self):
        for name in NAMES:
            setattr(os, name, self._hooked(name, getattr(os, name)))
        folders = streammach.files.folders
        real = folders._renameat2
        folders._renameat2 = lambda a, b, flags: self.around("exchange", lambda: real(a, b, flags))
        streammach.data.bad_rows.open = self._open_list
        return self

    def _hooked(self, name, function):
        def call(*arguments, **options):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return function(*arguments, **options)
            data = arguments if name == "write" else None
            return self.around(name, lambda: function(*arguments, **options), data)

        return call

    def _open_list(self, path, mode, buffering):
        operations = self

        class Listed(io.FileIO):
            def write(self, data):
                return operations.around("write", lambda: io.FileIO.write(self, data))

        def opened():
            return Listed(path, mode)

        return opened() if mode == "r+b" else self.around("open", opened)

    def around(self, name, call, data=None):
        raise NotImplementedError


class Counted(Operations):
    """Only counts; :attr:`names` holds the name of each operation."""

    def __init__(self):
        self.names = []

    def around(self, name, call, data=None):
        self.names.append(name)
        return call()


class KilledAt(Operations):
    """Ends the process before an operation, or in the middle of a write, half of it written."""

    def __init__(self, at):
        self._at = at
        self._count = 0

    def around(self, name, call, data=None):
        here, self._count = self._count == self._at, self._count + 1
        if here:
            if data is not None:
                real_write(data[0], _half(data[1]))
            os.kill(os.getpid(), signal.SIGKILL)
        return call()


class Failing(Operations):
    """Lets an operation fail, once or from then on.

    Parameters
    ----------
    at : int
        Its number among those that can fail.
    number : int
        The error: ENOSPC, which only operations that need space can meet, EIO, or SHORT: a write
        that writes half of what it is given and says so, which is no error.
    sticky : bool
        Whether all that follow fail too.
    short : bool
        Whether a write that fails first writes half of its bytes, as a full disk lets it.
    """

    def __init__(self, at, number, *, sticky, short):
        self._at = at
        self._number = number
        self._sticky = sticky
        self._short = short
        self._count = 0
        self._shortened = False
        self.failed = 0

    def around(self, name, call, data=None):
        if name not in able(self._number):
            return call()
        at, self._count = self._count, self._count + 1
        if not (at == self._at or (self._sticky and at > self._at)):
            return call()
        if self._number == SHORT:
            return call() if data is None else real_write(data[0], _half(data[1]))
        if self._short and data is not None and len(data[1]) > 1 and not self._shortened:
            self._shortened = True
            self._at += 1
            return real_write(data[0], _half(data[1]))
        self.failed += 1
        if name == "exchange":
            return False  # what the caller is told of any failure
        raise OSError(self._number, os.strerror(self._number))

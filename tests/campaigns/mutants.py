"""Protections taken away: with each of these the trials must fail, or they prove nothing."""

import os

from streammach.conversion import convert, intake
from streammach.inputs import source
from streammach.inputs.tables import arrow_files
from streammach.store import stored_arrays
from streammach.system.files.destinations import Destination
from streammach.system.files.reading import disk_error
from streammach.system.files.writing import Writer


def _list_is_moved():
    """Move the list of skipped rows instead of copying it: then nothing can go on."""

    convert.file_pieces = lambda path: [path]
    Destination.write = lambda self, path: os.replace(path, self.path)


def _checksums():
    """Believe every chunk and table, and digests of small files only when they are verified."""
    stored_arrays.google_crc32c.value = lambda data: stored_arrays.CRC_OF_SEALED
    stored_arrays.SMALL_BYTES = 0


def _short_writes():
    """Take it that a write has written everything."""

    def write(self, data):
        view = memoryview(data).cast("B")
        try:
            os.write(self._open_handle(), view)
        except OSError as error:
            raise disk_error(error, self.path) from error
        self.size += len(view)

    Writer.write = write


def _inputs():
    """Let a destination be what is read, or a folder that holds it."""
    Destination._check_inputs = lambda self: None


def _foreign():
    """Take everything for ours."""
    check = Destination.__post_init__

    def unchecked(self):
        object.__setattr__(self, "foreign", lambda path: None)
        check(self)

    Destination.__post_init__ = unchecked


def _changes():
    """Let sources change while they are read."""
    for module in (convert, intake, source):
        module.check_unchanged = lambda before, files: None


def _buffers():
    """Believe what buffers of Arrow say of their lengths."""
    arrow_files.check_buffers = lambda batch, path: batch


MUTANTS = {
    "list": _list_is_moved, "checksums": _checksums, "short-writes": _short_writes,
    "inputs": _inputs, "foreign": _foreign, "changes": _changes,
    "buffers": _buffers,
}  # fmt: skip

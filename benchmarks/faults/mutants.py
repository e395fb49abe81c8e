"""Protections taken away: with each of these the trials must fail, or they prove nothing."""

import os

from streammach import files
from streammach.data import convert
from streammach.data.conversion import job
from streammach.data.conversion.shuffle import Shuffle
from streammach.data.store import arrays


def _temporary_files_stay():
    job.remove_temporaries = lambda folder: None


def _state_ahead():
    """Say that one more range of bins is written than is."""
    load = Shuffle.load

    def ahead(self, path):
        load(self, path)
        self.written.bins += bool(self.written.bins)

    Shuffle.load = ahead


def _list_is_moved():
    """Move the list of skipped rows instead of copying it: then nothing can go on."""

    def moved(path, target):
        if path.exists():
            os.replace(path, target)
        return target.exists()

    convert.copy_file = moved


def _checksums():
    """Believe every chunk and table, and digests of small files only when they are verified."""
    arrays.google_crc32c.value = lambda data: arrays.CRC_OF_SEALED
    arrays.SMALL_BYTES = 0


def _short_writes():
    """Take it that a write has written everything."""

    def write(self, data):
        view = memoryview(data).cast("B")
        try:
            os.write(self._open_handle(), view)
        except OSError as error:
            raise files.disk_error(error, self.path) from error
        self.size += len(view)

    files.Writer.write = write


MUTANTS = {
    "temporary-files": _temporary_files_stay, "state": _state_ahead, "list": _list_is_moved,
    "checksums": _checksums, "short-writes": _short_writes,
}  # fmt: skip

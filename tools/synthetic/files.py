"""Made-up rows as files of text: VW, or that of the XMC repository."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

from streammach.system.errors import UsageError, clean
from streammach.system.files.destinations import Destination
from streammach.system.files.writing import Writer
from tools.synthetic.rows import SyntheticRows, text_pieces

Progress = Callable[[str, int, int], None]

FORMS = ("vw", "xmc")
SUFFIXES = (".vw", ".txt", ".gz")
GZIP_LEVEL, GZIP_WINDOW = 1, 31


@dataclass(frozen=True)
class Written:
    """What was written: the file, its rows and values, its bytes as text."""

    path: str
    n_rows: int
    nnz: int
    n_bytes: int


def write_rows(
    rows: SyntheticRows, out: Path, *, xmc: bool = False, progress: Progress | None = None
) -> Written:
    """Write made-up rows as VW or XMC text, gzip where the name ends so, or raise UsageError.

    The file appears when it is whole.
    """
    destination, shape, zipped = destination_of(out), rows.shape, out.suffix == ".gz"
    head = f"{rows.n_rows} {shape.n_features} {shape.n_classes + 1}\n".encode() if xmc else b""
    n_bytes, n_rows, nnz = len(head), 0, 0
    packer = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, GZIP_WINDOW)
    with destination.scratch() as made:
        with Writer(made) as file:
            file.write(packer.compress(head) if zipped else head)
            for block, text in text_pieces(rows, xmc=xmc):
                file.write(packer.compress(text) if zipped else text)
                n_bytes, n_rows, nnz = n_bytes + len(text), n_rows + block.n_rows, nnz + block.nnz
                if progress is not None:
                    progress("write", n_rows, rows.n_rows)
            if zipped:
                file.write(packer.flush())
            file.commit()
        destination.take(made)
    return Written(str(out), n_rows, nnz, n_bytes)


def destination_of(out: Path, others: Sequence[Path] = ()) -> Destination:
    """Return where rows will be written, beside others; or raise UsageError if they may not."""
    if out.suffix not in SUFFIXES:
        what = f"the name ends with none of {', '.join(SUFFIXES)}"
        raise UsageError(what, path=clean(out, 300))
    if out.exists():
        raise UsageError("it exists already", path=clean(out, 300), hint="Choose another name.")
    return Destination(out, lambda path: "nothing in it says who made it", inputs=others)

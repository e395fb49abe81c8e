"""The command export: a model as plain arrays, or as an ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import click

from streammach.cli.console import peak_of, say, say_json, short_path
from streammach.cli.options import PATH, command
from streammach.options.option_fields import option
from streammach.prediction.options import Resources
from streammach.system.machine import size_text

DECODED_BYTES = 5  # of a weight: a narrow one, and a float32
GRAPH_COPIES = 4  # of all tensors, while a graph is made; 3.4 were measured


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Where a model goes, and as what."""

    out: Path = option(..., "Where to write: FILE.npz, or FILE.onnx with --onnx.", "FILE")
    onnx: bool = option(False, "Write an ONNX graph that ranks rows.")
    force: bool = option(False, "Replace an exported model.")
    room: Resources = field(default_factory=Resources)


@command("streammach export runs/odp --out model.npz", without=("threads", "progress"))
@click.argument("run", metavar="RUN", type=PATH)
def export(*, run: Path, options: ExportOptions, as_json: bool) -> None:
    """Write a model as a file that others open: NumPy's arrays, or an ONNX graph.

    The arrays are float32 or whole numbers, decoded, and all that predicting needs. The page "The
    model format" of the documentation says what each is, and how NumPy predicts with them.
    """
    from streammach.frontends.export import model_formats
    from streammach.model.document import folder_of, read_document
    from streammach.model.model import Model
    from streammach.model.size import size_in_file
    from streammach.options.documents import encode_json
    from streammach.prediction.room import changing_bytes
    from streammach.system.files.destinations import Destination  # compiled code loads on demand

    out, memory, folder = options.out, options.room.memory, folder_of(run)
    goal = Destination(out, model_formats.EXPORT, force=options.force, inputs=[folder])
    size = size_in_file(run)
    n_weights = (size.spec.n_hashed_features + size.n_more) * size.spec.n_columns
    beside = {"decoded weights": DECODED_BYTES * n_weights}
    projected = changing_bytes(size, memory, beside)
    model = Model.load(run)
    if options.onnx:
        beside["graph"] = GRAPH_COPIES * model_formats.check_graph(model)
        projected = changing_bytes(size, memory, beside)
        goal.write([model_formats.onnx_graph(model)])
    else:
        model_formats.write_npz(model, encode_json(read_document(run)), goal)
    n_bytes, peak = out.stat().st_size, peak_of(projected)
    if as_json:
        say_json({"out": str(out), "bytes": n_bytes, "projected_bytes": projected,
                  "peak_bytes": peak})  # fmt: skip
    else:
        say(f"{short_path(out)}: {size_text(n_bytes)}")

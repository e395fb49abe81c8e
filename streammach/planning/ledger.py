"""The ledger: every byte of a run by name, from the functions of those who allocate it."""

from __future__ import annotations

from collections.abc import Collection

from streammach.backends.registry import BACKENDS
from streammach.options.byte_lines import Line
from streammach.options.config import Batching, RunConfig
from streammach.options.facts import DataFacts
from streammach.parts.expected import PartBytes
from streammach.parts.registry import PARTS, bytes_of_parts, words_of_plan
from streammach.prediction.quantized import QuantizedForward
from streammach.store.reader import Reader
from streammach.store.row_groups import equal_rows_bytes
from streammach.store.row_order import OrderReader
from streammach.system.jit import CODE_BYTES, COMPILER_BYTES, LISTS_CODE_BYTES

COUNT_BYTES = 8  # of the rows that hold a feature or have a class
LABELS_SPREAD = 1.5  # labels of held-out rows, by those of as many rows of the mean
HELD_LABEL_BYTES = 24  # of a label of a held-out row, with its copies by groups and halves
CHECKPOINTS = 3  # on disk at once: the best, the newest, and the one being written


def ledger(facts: DataFacts, config: RunConfig) -> tuple[Line, ...]:
    """Return the bytes of a training run, largest first within host, device and disk."""
    kind = BACKENDS[config.placement.device]
    backend, device = kind.footprint(config, facts)
    batching = config.batching
    of_parts = bytes_of_parts(facts, config)
    reader, parts = _reader(facts, config), _memory_of(of_parts)
    smaller = (
        _smaller(facts, config, of_parts.values()) - sum(reader.values()) - sum(parts.values())
    )
    host = {
        "code": CODE_BYTES
        + LISTS_CODE_BYTES * facts.listed
        + (0 if kind.keeps_kernels else COMPILER_BYTES),
        **backend,
        **reader,
        **parts,
        **({"smaller model": smaller} if smaller > 0 else {}),
        "equal rows": max(  # looked for before rows are read for batches
            equal_rows_bytes(facts) * (batching.held_out_rows > 0)
            - sum((reader | parts).values()), 0,
        ),
        "held-out rows": _held_out(facts, batching),
        "names": facts.names_bytes + COUNT_BYTES * (facts.n_features + facts.n_classes),
        "rows": facts.held_bytes,
    }  # fmt: skip
    host["taking rows in"] = max(facts.intake_bytes - sum(host.values()) + host["code"], 0)
    host["libraries"] = facts.libraries_bytes
    kept = backend["weights"] + backend.get("optimizer", 0)
    disk = {
        "model": backend["weights"] + facts.names_bytes + sum(x.model for x in of_parts.values()),
        "checkpoints": CHECKPOINTS * kept + sum(x.saved for x in of_parts.values()),
    }
    return (
        *(Line(name, "host", n) for name, n in sorted(host.items(), key=lambda i: -i[1]) if n),
        *(Line(name, "device", n) for name, n in sorted(device.items(), key=lambda i: -i[1])),
        *(Line(name, "disk", n) for name, n in disk.items()),
    )


def kernels(facts: DataFacts, config: RunConfig) -> tuple[object, ...]:
    """Return what of a plan decides which kernels are called."""
    place, shape = config.placement, config.shape
    return (
        "train", facts.value_bytes, facts.weighted, facts.listed, facts.held_bytes > 0,
        config.dense, shape.exact, shape.unhashed, shape.n_buckets > 256, words_of_plan(config),
        config.optimizer, place.device, place.threads > 1, place.waves > 1, place.resident,
    )  # fmt: skip


def _held_out(facts: DataFacts, batching: Batching) -> int:
    rows = batching.held_out_rows
    found = facts.n_rows + rows * 24 + batching.held_out_nnz * 8
    if not facts.listed:
        return found
    usual = int(LABELS_SPREAD * rows * facts.n_labels / facts.n_rows) + facts.max_row_labels
    return found + 8 * rows + HELD_LABEL_BYTES * min(usual, rows * facts.max_row_labels)


def _reader(facts: DataFacts, config: RunConfig) -> dict[str, int]:
    batching, kind = config.batching, BACKENDS[config.placement.device]
    ids = config.needs_ids(facts)
    if config.placement.resident:
        return OrderReader.footprint(
            facts, pool_blocks=batching.pool_blocks, ids=ids, cut=config.shape.cut
        )
    return Reader.footprint(
        facts, batch_size=batching.batch_size, batch_nnz=batching.batch_nnz,
        batch_labels=batching.batch_labels, pool_blocks=batching.pool_blocks,
        by_feature=kind.by_feature(config),
        threads=config.placement.threads, ids=ids,
    )  # fmt: skip


def _smaller(facts: DataFacts, config: RunConfig, parts: Collection[PartBytes]) -> int:
    """Return the bytes of judging forms of a model and of making it smaller.

    Rows are read no more then, and when it is made, parts are gone, too; the names of the features
    that it keeps stand beside all names.
    """
    judged, made = sum(part.judging for part in parts), sum(part.shrinking for part in parts)
    narrowed = QuantizedForward.footprint(config)
    return max(narrowed + judged, QuantizedForward.coding(config) + made + facts.names_bytes)


def _memory_of(parts: dict[str, PartBytes]) -> dict[str, int]:
    """Return the bytes of parts: those before the first epoch are gone when others come."""
    result: dict[str, dict[str, int]] = {"before": {}, "after": {}}
    for name, part in parts.items():
        result[PARTS[name].when] |= part.memory
    return max(result.values(), key=lambda lines: sum(lines.values()))

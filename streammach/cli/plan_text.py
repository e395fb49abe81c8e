"""A plan as text and as JSON: what was weighed and chosen, why, and every byte of it."""

from __future__ import annotations

from streammach.backends.registry import device_text
from streammach.cli.console import Document
from streammach.options.plan import Option, Plan
from streammach.parts.registry import parts_text
from streammach.system.errors import clean
from streammach.system.machine import UNLIMITED, number_text, size_text, time_range_text, time_text
from streammach.system.progress import line_width, wrap_lines

HEADING = "      B    R  parts         memory    model  lost        query   training"


def model_text(plan: Plan) -> str:
    """Return the kind and the shape of a planned model for people."""
    config = plan.config
    return config.text.replace("exact", f"exact ({config.shape.n_buckets:,} classes)")


def plan_lines(plan: Plan, following: str | None = None) -> list[str]:
    """Return the report of a plan as lines of the terminal's columns, 100 at most."""
    facts, config, steps = plan.facts, plan.config, ""
    if not config.shape.unhashed:  # how hashed models learn
        steps = f", {config.optimizer}, batch {config.batching.batch_size:,}"
    rows = [
        f"store    {clean(facts.path, 300)}",
        f"         {facts.n_rows:,} rows, {facts.n_features:,} features, "
        f"{facts.n_classes:,} classes, {number_text(facts.nnz / facts.n_rows)} values a row",
        *_wrap("device", device_text(plan)),
        *(
            f"{'' if i else 'budget':<9}{size_text(allowed)} {what}allowed ({source})"
            for i, (what, allowed, source) in enumerate(budgets(plan))
        ),
        HEADING,
        *(_option_line(option, plan) for option in plan.options),
        f"chosen   {model_text(plan)}{steps}",
        *(line for reason in plan.reasons for line in _wrap("why", reason)),
        *_ledger_lines(plan),
    ]
    if following is not None:
        rows.append(f"next     {following}")
    return rows


def _wrap(head: str, text: str) -> list[str]:
    """Return a text behind its head as lines of the width that there is."""
    return wrap_lines(text, line_width(), f"{head:<9}")


def budgets(plan: Plan) -> list[tuple[str, int, str]]:
    """Return what a budget is of, its bytes, and who set it: the host's, then the device's."""
    limits = plan.limits
    found = [("", limits.host, limits.host_source)]
    if limits.device:
        found.append(("of GPU memory ", limits.device, limits.device_source))
    return [one for one in found if one[1] < UNLIMITED]


def _option_line(option: Option, plan: Plan) -> str:
    mark, shape = ">" if option.chosen else " ", option.shape
    text = f"{shape.n_buckets:>6}{shape.n_repetitions:>5}"
    if shape.exact or shape.unhashed:
        text = f"{'exact' if shape.exact else 'none':>6}{'':>5}"
    loss, time = f"{option.loss:z.1f} +- {option.loss_error:z.1f}", time_text(option.seconds)
    if (spread := option.seconds_spread) > 1:
        time = time_range_text(option.seconds / spread, option.seconds * spread)
    over = f", {shape.n_hashed_features:,} features" if shape.cut else ""
    return (
        f"{mark}{text}  {parts_text(option.config.parts):<11}"
        f"{size_text(option.projected_bytes):>9} {size_text(option.model_bytes):>8}  "
        f"{loss:<10}  {time_text(option.query_seconds):<7} "
        f"{time if option.fits else _misfit(option, plan)}{over}"
    )


def _misfit(option: Option, plan: Plan) -> str:
    """Return why an option does not fit: by how much, or beside what."""
    limits = plan.limits
    over = option.projected_bytes - (limits.device or limits.host)
    if over > 0:
        return f"{size_text(over)} too large"
    return "too large for the host" if limits.device else "no room to compile beside"


def _ledger_lines(plan: Plan) -> list[str]:
    """Return the ledger of memory, of the device's own, and of disk."""
    rows = _memory_lines(plan, "memory", "host", plan.limits.host)
    if plan.limits.device:
        rows += _memory_lines(plan, "GPU", "device", plan.limits.device)
    disk = ", ".join(f"{x.name} {size_text(x.n_bytes)}" for x in plan.ledger if x.where == "disk")
    small = "float10" if plan.config.dense else "int4"
    allowed = f" or less where held-out rows allow {small} weights (--model-size)"
    if plan.config.linear:
        allowed = " at most"
    return [
        *rows,
        f"disk     {size_text(plan.disk_bytes)} at most ({disk})",
        f"model    {size_text(plan.small_model_bytes)}{allowed}",
    ]


def _memory_lines(plan: Plan, head: str, where: str, allowed: int) -> list[str]:
    lines = [line for line in plan.ledger if line.where == where]
    width = max(len(line.name) for line in lines)
    total, rows = sum(line.n_bytes for line in lines), []
    for i, line in enumerate(lines):
        share = 100 * line.n_bytes / total
        first = "" if i else head
        rows.append(f"{first:<9}{line.name:<{width}} {size_text(line.n_bytes):>9} {share:z5.1f}%")
    most = "" if allowed >= UNLIMITED else f" of {size_text(allowed)}"
    rows.append(f"{'':<9}{'sum':<{width}} {size_text(total):>9}{most}")
    return rows


def plan_document(plan: Plan) -> Document:
    """Return a plan as one JSON-ready object."""
    shape, placement = plan.config.shape, plan.config.placement
    return {
        "store": plan.facts,
        "device": {
            "name": placement.device, "why": plan.device_reason, "threads": placement.threads,
            "limit_source": plan.limits.host_source, "waves": placement.waves,
            "resident": placement.resident, "allowed_bytes": plan.limits.device,
            "projected_bytes": plan.device_projected_bytes,
        },
        "allowed_bytes": None if plan.limits.host >= UNLIMITED else plan.limits.host,
        "elsewhere": plan.elsewhere,
        "projected_bytes": plan.projected_bytes,
        "disk_bytes": plan.disk_bytes,
        "small_model_bytes": plan.small_model_bytes,
        "chosen": {
            "buckets": shape.n_buckets, "repetitions": shape.n_repetitions, "exact": shape.exact,
            "hashed_features": shape.n_hashed_features,
            "batch_size": plan.config.batching.batch_size, "optimizer": plan.config.optimizer,
            "weights": placement.weights, "tf32": placement.tf32, "dense": plan.config.dense,
            "parts": {part.name: part.size for part in plan.config.parts},
        },
        "expected": _option_document(plan.expected),
        "options": [_option_document(option) for option in plan.options],
        "ledger": plan.ledger,
        "reasons": plan.reasons,
    }  # fmt: skip


def _option_document(option: Option | None) -> Document | None:
    if option is None:
        return None
    shape, fields = option.shape, {**vars(option)}
    config = fields.pop("config")
    return {
        "n_buckets": shape.n_buckets, "n_repetitions": shape.n_repetitions,
        "hashed_features": shape.n_hashed_features,
        "parts": {part.name: part.size for part in config.parts},
        "batch_size": config.batching.batch_size, **fields,
    }  # fmt: skip

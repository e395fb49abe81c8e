"""The backends, the one to prefer first: a new one is a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from streammach.backends.cpu.kind import CPU
from streammach.backends.cuda.kind import CUDA
from streammach.backends.kinds import BackendKind, Work
from streammach.system.errors import BudgetError, DeviceError, UsageError, clean

if TYPE_CHECKING:
    from streammach.backends.kinds import Arrays
    from streammach.backends.protocol import Backend
    from streammach.options.model_spec import ModelSpec
    from streammach.options.plan import Plan

T = TypeVar("T")
ANYTHING = Work()
BACKENDS: dict[str, BackendKind] = {kind.name: kind for kind in (CUDA, CPU)}


def fallback() -> str:
    """Return the device that is there in any case."""
    return next(reversed(BACKENDS))


def device_text(plan: Plan) -> str:
    """Return the device of a plan, what it has, and why it was chosen."""
    placed = plan.config.placement
    waves = f", {placed.waves} waves of repetitions" if placed.waves > 1 else ""
    if plan.limits.device:
        kept = f", rows kept on the {BACKENDS[placed.device].title}"
        waves += kept if placed.resident else ", rows streamed"
    why = f" ({plan.device_reason})" if plan.device_reason else ""
    return f"{placed.device}, {placed.threads} threads{waves}{why}"


def on_device(wanted: str, work: Work, use: Callable[[str, str], T]) -> T:
    """Return what a function makes on the device that is wanted, or on the first that can.

    With ``auto`` what one device cannot do goes to the next; nothing else chooses a device. `use`
    is given the device's name and why it is that one, and raises DeviceError, BudgetError or
    UsageError where it does not go there.
    """
    if wanted != "auto" and wanted not in BACKENDS:
        known = ", ".join(sorted(BACKENDS))
        raise DeviceError(f"'{clean(wanted)}' is no device; known are auto, {known}")
    names = tuple(BACKENDS) if wanted == "auto" else (wanted,)
    why = ""
    for name in names:
        kind = BACKENDS[name].of(work.card)
        try:
            _check(kind, work, why)  # before a card is looked at, which takes memory and time
            usable = kind.probe() if name == wanted else kind.usual()
            kind.holds(work)
            return use(name, why or usable)
        except (DeviceError, BudgetError, UsageError) as error:
            if name == names[-1]:
                raise
            why = why or error.message
    raise AssertionError("there is a device")


def choose_device(wanted: str, work: Work = ANYTHING) -> tuple[str, str]:
    """Return the device for some work and why; see :func:`on_device`."""
    return on_device(wanted, work, lambda name, why: (name, why))


def _check(kind: BackendKind, work: Work, why: str) -> None:
    """Raise UsageError or DeviceError if a device does not do such work."""
    said = f", the device is the {kind.title} ({why or 'asked for'})"
    model, shape = work.model, work.shape
    unhashed = work.unhashed if model is None else model.unhashed
    if unhashed and not kind.unhashed:
        hint = "Use --device cpu."
        raise DeviceError("there are no hashed models", path=f"--device {kind.name}", hint=hint)
    if model is not None:
        shape = model.n_buckets, model.n_repetitions
    if shape is not None and not unhashed:
        kind.launches(*shape)
    if work.weights not in kind.weight_types:
        places = _titles(lambda other: work.weights in other.weight_types)
        what = f"{work.weights} weights are for {places}{said}"
        raise UsageError(what, path=f"--weights {work.weights}")
    if work.tf32 and kind.tf32 is None:
        places = _titles(lambda other: other.tf32 is not None)
        raise UsageError(f"TF32 is for {places}{said}", path="--tf32")


def _titles(able: Callable[[BackendKind], bool]) -> str:
    return " or ".join(f"a {kind.title}" for kind in BACKENDS.values() if able(kind))


def open_to_predict(
    wanted: str, spec: ModelSpec, *, dense: bool, threads: int, weights: Arrays,
    logistic: bool = False,
) -> tuple[str, Backend]:  # fmt: skip
    """Return the device for a trained model, and a backend there: the first one that holds it.

    Weights and `logistic` are those of :class:`streammach.backends.kinds.Open`.
    """
    n_more = weights["projection"].shape[1] if "projection" in weights else 0
    work = Work(model=spec.shape, dense=dense, n_more=n_more)
    from streammach.options.config import RunConfig  # loads hashes

    def open_backend(device: str, why: str) -> tuple[str, Backend]:
        config = RunConfig.predicting(
            spec.shape, device=device, dense=dense, threads=threads, n_more=n_more
        )
        kind = BACKENDS[device]
        return device, kind.open(spec, config, weights=weights, logistic=logistic)

    return on_device(wanted, work, open_backend)

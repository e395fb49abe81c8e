"""The backends, the one to prefer first: a new one is a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streammach.backends.cpu.kind import CPU
from streammach.backends.cuda.kind import CUDA
from streammach.backends.kinds import BackendKind
from streammach.errors import BudgetError, DeviceError, UsageError, clean

if TYPE_CHECKING:
    from streammach.backends.base import Backend
    from streammach.backends.kinds import Arrays
    from streammach.spec.model import ModelSpec
    from streammach.spec.plan import Plan
    from streammach.spec.types import Decoding

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


def choose_device(wanted: str) -> tuple[str, str]:
    """Return the device to use and why.

    Parameters
    ----------
    wanted : str
        ``auto`` (the first one that can be used) or a backend's name.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    """
    if wanted in BACKENDS:
        return wanted, BACKENDS[wanted].probe()
    if wanted != "auto":
        known = ", ".join(sorted(BACKENDS))
        raise DeviceError(f"'{clean(wanted)}' is no device; known are auto, {known}")
    why = ""
    for name, kind in BACKENDS.items():
        try:
            found = kind.usual()
        except DeviceError as error:
            why = why or error.message
        else:
            return name, why or found
    raise DeviceError(why)


def open_to_predict(
    wanted: str,
    spec: ModelSpec,
    *,
    dense: bool,
    threads: int,
    weights: Arrays,
    logistic: bool = False,
    decode: Decoding = "auto",
) -> tuple[str, Backend]:
    """Return the device for a trained model, and a backend there.

    Parameters
    ----------
    wanted : str
        A device, or ``auto``: the first one that holds the model.
    spec : ModelSpec
        The model.
    dense : bool
        Whether rows are expanded and go through matrix products.
    threads : int
        Threads that compute on the CPU.
    weights : dict
        ``weights``, ``bias`` and perhaps ``scale``; see :class:`streammach.backends.kinds.Open`.
    logistic : bool
        Whether each bucket has a sigmoid of its own.
    decode : str
        How the best classes are found: ``auto``, or a way of the CPU.

    Raises
    ------
    DeviceError, BudgetError
        If the device that was asked for cannot be used for this model.
    UsageError
        If the device does not have that way, or cannot take it for this model.
    """
    from streammach.spec.config import RunConfig  # loads hashes

    n_more = weights["projection"].shape[1] if "projection" in weights else 0
    by_cpu = spec.unhashed or decode != "auto"
    chosen = fallback() if by_cpu and wanted == "auto" else choose_device(wanted)[0]
    for device in dict.fromkeys((chosen, fallback())):
        config = RunConfig.predicting(
            spec.shape, device=device, dense=dense, threads=threads, n_more=n_more
        )
        try:
            backend = BACKENDS[device].open(spec, config, weights=weights, logistic=logistic)
        except (DeviceError, BudgetError):
            if wanted != "auto" or device == fallback():
                raise
        else:
            if decode != "auto":
                _decode_by(device, backend, decode)
            return device, backend
    raise AssertionError("a device is opened or refused")


def _decode_by(device: str, backend: Backend, way: Decoding) -> None:
    """Have a backend find best classes in a way, or close it and raise UsageError."""
    decode_by = BACKENDS[device].decode_by
    try:
        if decode_by is None:
            raise UsageError(
                f"the {BACKENDS[device].title} has one way alone: --decode {clean(way)}",
                hint="Use --device cpu.",
            )
        if backend.spec.unhashed:
            raise UsageError(f"the model has no hashed models: --decode {clean(way)}")
        decode_by(backend, way)
    except UsageError:
        backend.close()
        raise

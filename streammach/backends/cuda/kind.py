"""A GPU as a backend: whether this machine has one that can be used, its memory, how it is opened.

Nothing slow is imported before it is needed. A card counts as usable when it has run a kernel.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from streammach.backends.kinds import H200, INSTALL_CUDA, BackendKind, Rates, Work
from streammach.system.errors import DeviceError, StreammachError, UsageError, clean
from streammach.system.machine import QUANTITY, parse_size, size_text

if TYPE_CHECKING:
    from streammach.backends.kinds import Arrays, Lines
    from streammach.backends.protocol import Backend
    from streammach.options.config import RunConfig
    from streammach.options.facts import DataFacts
    from streammach.options.model_spec import ModelSpec

WHEELS = {"cupy": "CuPy", "numba_cuda": "numba-cuda"}
OLDEST = (7, 5)  # compute capability: Turing
LEAST_BYTES = 64_000_000  # free, beside such a context: less than any training takes
# Published of cards, which are taken to reach the same share of it as an H200: GB of memory, GB/s,
# TFLOP/s in float32, and in TensorFloat-32 without sparsity, which is used where a card has it.
CARDS = {
    "RTX 4060": (8, 272, 15.1, 15.1), "RTX 2080 Ti": (11, 616, 13.4, 0),
    "RTX 3060": (12, 360, 12.7, 12.7), "RTX 4070": (12, 504, 29.1, 29.1), "T4": (16, 320, 8.1, 0),
    "L4": (24, 300, 30.3, 60), "A10": (24, 600, 31.2, 62.5), "RTX 3090": (24, 936, 35.6, 35.6),
    "RTX 4090": (24, 1008, 82.6, 82.6), "RTX 5090": (32, 1792, 104.8, 104.8),
    "A100 40GB": (40, 1555, 19.5, 156), "L40S": (48, 864, 91.6, 183),
    "A100": (80, 2039, 19.5, 156), "H100": (80, 3350, 67, 494), "H200": (141, 4800, 67, 494),
}  # fmt: skip


class Card(NamedTuple):
    """A device that can be used: its name, free bytes of its memory, whether it has TF32."""

    name: str
    free_bytes: int
    tf32: bool = True


def simulated() -> bool:
    """Return whether kernels run in Numba's simulator (NUMBA_ENABLE_CUDASIM=1)."""
    from numba import config  # slow to import

    return bool(config.ENABLE_CUDASIM)


def find_card() -> Card:
    """Return the device that ``--device cuda`` uses, or raise DeviceError of what is missing."""
    if simulated():
        hint = "Run it without NUMBA_ENABLE_CUDASIM."
        raise DeviceError("CUDA is simulated", path="--device cuda", hint=hint)
    missing = [name for name in WHEELS if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(WHEELS[name] for name in missing)
        raise _device_error(f"{names} not installed", INSTALL_CUDA)
    try:
        import cupy

        from streammach.backends.cuda.toolchain import cuda
    except Exception as error:  # anything: what fails is their code, with a library it does not fit
        raise _device_error(
            f"CuPy or numba-cuda does not import ({_message_of(error)})", INSTALL_CUDA
        ) from error
    try:
        card = _present(cupy, cuda)
        _check_toolkit()
        _run_kernel()
    except DeviceError:
        raise
    except StreammachError as error:  # no room for 512 bytes
        raise _device_error(error.message, "Look at nvidia-smi for who else uses it.") from error
    except Exception as error:
        raise _device_error(
            f"a first kernel failed ({_message_of(error)})", INSTALL_CUDA
        ) from error
    return card


def _present(cupy: Any, cuda: Any) -> Card:
    if getattr(cuda, "implementation", None) != "NVIDIA":
        raise _device_error(
            "numba-cuda is installed where Python does not load its .pth file", INSTALL_CUDA
        )
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise _device_error(
            f"no NVIDIA driver that fits ({error})", "Install or update it."
        ) from None
    if not count:
        raise _device_error("no GPU is visible", "Look at nvidia-smi and CUDA_VISIBLE_DEVICES.")
    facts = runtime.getDeviceProperties(0)
    name, capability = facts["name"].decode(), (facts["major"], facts["minor"])
    if capability < OLDEST:
        own, least = (".".join(map(str, x)) for x in (capability, OLDEST))
        what = f"{name} has compute capability {own}, {least} is needed"
        raise _device_error(what, "Use --device cpu.")
    with cupy.cuda.Device(0):
        free, _ = runtime.memGetInfo()
    if free < LEAST_BYTES:
        raise _device_error(
            f"the memory of {name} is full, {size_text(int(free))} are free",
            "Look at nvidia-smi for who else uses it.",
        )
    from streammach.backends.cuda.shapes import TF32_CAPABILITY

    full_name = f"{name}, compute capability {capability[0]}.{capability[1]}"
    return Card(full_name, int(free), capability >= TF32_CAPABILITY)


def _check_toolkit() -> None:
    """Raise DeviceError where a part of the toolkit that compiles kernels is missing."""
    from streammach.backends.cuda.toolchain import toolkit

    try:
        toolkit()
    except Exception as error:
        why = f"NVVM, libdevice or nvJitLink is missing ({_message_of(error)})"
        raise _device_error(why, INSTALL_CUDA) from error


def count_up(values: Any) -> None:
    """Add one to int32 (1,): the kernel by which it is known that a card runs kernels."""
    values[0] += 1


@lru_cache
def _run_kernel() -> None:
    """Launch a kernel of one thread, once in a process; it raises what libraries raise."""
    import numpy as np

    from streammach.backends.cuda.device_memory import UNIT, DeviceMemory
    from streammach.backends.cuda.launcher import Kernel

    memory, result = DeviceMemory(UNIT), np.zeros(1, np.int32)
    with memory.use():
        values = memory.send_copy(np.array([41], np.int32))
        memory.launch(Kernel(count_up, (1, 1)), 1, 1, values)
        memory.fetch(result, values)
        del values
    memory.trim()
    if result[0] != 42:
        raise _device_error(f"a first kernel made 41 + 1 = {result[0]}", INSTALL_CUDA)


def _message_of(error: Exception) -> str:
    return f"{type(error).__name__}: {clean(' '.join(str(error).split()), 120)}"


def _device_error(why: str, hint: str) -> DeviceError:
    return DeviceError(f"no usable GPU: {why}", path="--device cuda", hint=hint)


def _open(
    spec: ModelSpec, config: RunConfig, *, facts: DataFacts | None = None,
    weights: Arrays | None = None, device_bytes: int = 0, logistic: bool = False,
) -> Backend:  # fmt: skip
    free = find_card().free_bytes  # before Numba's CUDA target is imported
    from streammach.backends.cuda.backend import CudaBackend

    return CudaBackend(
        spec, config, facts=facts, weights=weights, device_bytes=device_bytes or free,
        logistic=logistic,
    )  # fmt: skip


def _footprint(config: RunConfig, facts: DataFacts | None) -> tuple[Lines, Lines]:
    from streammach.backends.cuda.footprint import footprint

    return footprint(config, facts)


def _launches(n_buckets: int, n_repetitions: int) -> None:
    from streammach.backends.cuda.shapes import launch_shape

    launch_shape(n_buckets, n_repetitions)


def _holds(work: Work) -> None:
    if work.model is not None:
        from streammach.backends.cuda.footprint import fewest_groups

        free = find_card().free_bytes
        fewest_groups(work.model, dense=work.dense, device_bytes=free, n_more=work.n_more)


def _rates() -> Rates:
    find_card()  # before Numba's CUDA target is imported
    from streammach.backends.cuda.rates import measure_rates

    return measure_rates()


def _with_card(word: str) -> BackendKind:
    """Return the kind with a card by its name, or with the slowest that has so much memory."""
    names = {name.lower().replace(" ", ""): name for name in CARDS}
    title = names.get(word.lower().replace(" ", ""), "")
    size = parse_size(word) / 1e9 if QUANTITY.fullmatch(word) else math.inf
    size = CARDS[title][0] if title else size
    larger = [name for name, card in CARDS.items() if card[0] >= size]
    if not larger:
        what, hint = f"'{clean(word, 60)}' is no known card", "Name its memory, or one of "
        raise UsageError(what, path="--card", hint=f"{hint}{', '.join(CARDS)}.")
    like = title or min(larger, key=lambda name: CARDS[name])
    title = title or f"a card of {size:g} GB, as fast as the {like}"
    (_, bandwidth, products, tf32), (_, *measured) = CARDS[like], CARDS["H200"]
    slower = measured[0] / bandwidth
    product = measured[2] / tf32 if tf32 else measured[1] / products
    rates = Rates(slower * H200.byte, H200.copied, slower * H200.key, product * H200.product)
    return replace(
        CUDA, probe=lambda: title, memory=lambda: int(size * 1e9), rates=lambda: rates,
        tf32=lambda: tf32 > 0,
    )  # fmt: skip


CUDA = BackendKind(
    name="cuda", title="GPU", probe=lambda: find_card().name, usual=lambda: find_card().name,
    open=_open, footprint=_footprint, memory=lambda: find_card().free_bytes, launches=_launches,
    holds=_holds, batch={False: 4096, True: 4096}, max_waves=8, resident=(True, False),
    weight_types=("float32", "bfloat16"), tf32=lambda: find_card().tf32, idle_host=True, sorts=True,
    rates=_rates, with_card=_with_card,
)  # fmt: skip

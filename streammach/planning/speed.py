"""How fast this machine and its card are beside those of the planner's constants, measured."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import platformdirs
from msgspec import UNSET, UnsetType

from streammach.backends.kinds import Rates
from streammach.backends.registry import BACKENDS
from streammach.system.kernel_cache import keep, read_own_file

REFERENCE = 0.144e-9  # seconds of one thread for a value and a column, on the reference machine
FEATURES, COLUMNS, ROWS, ROW_VALUES = 20_000, 512, 512, 30
TURNS = 50
BUSY = 1.2  # times as fast as was measured: the machine was busy then
FILE = "speed.json"


class Speed(msgspec.Struct, frozen=True):
    """What was measured: seconds for units of work, and on which machine or card."""

    machine: str
    seconds: tuple[float, ...]  # for a value and a column; or the rates of a card


def known_speed() -> float:
    """Return how many times as fast as the reference a thread is; 1 where it was not measured."""
    return REFERENCE / (_read_known(_path(), _machine()) or (REFERENCE,))[0]


def speed(*, again: bool = False) -> float:
    """Return how many times as fast as the reference a thread is; measured at the first call.

    Where it is measured `again`, a machine that was busy before counts as fast as it is now.
    """
    path, machine = _path(), _machine()
    known = _read_known(path, machine)
    if known is None or again:
        seconds = (measure(),)
        if known is None or known[0] > BUSY * seconds[0]:
            known = _keep(path, machine, seconds)
    return REFERENCE / known[0]


@lru_cache
def rates_of(device: str, card: str | UnsetType = UNSET) -> Rates | None:
    """Return the rates of a device of its own, measured at the first call; None for the CPU."""
    kind = BACKENDS[device].of(card)
    if kind.rates is None or card:
        return kind.rates and kind.rates()
    path, name = _path().with_name(f"{device}.json"), kind.probe()
    return Rates(*(_read_known(path, name) or _keep(path, name, kind.rates())))


def _keep(path: Path, machine: str, seconds: tuple[float, ...]) -> tuple[float, ...]:
    with contextlib.suppress(OSError):  # measured again next time
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep(path, msgspec.json.encode(Speed(machine, seconds)))
    return seconds


def _read_known(path: Path, machine: str) -> tuple[float, ...] | None:
    try:
        known = msgspec.json.decode(read_own_file(path), type=Speed)
    except (OSError, msgspec.MsgspecError):
        return None
    usable = known.machine == machine and all(0 < s < 1e-6 for s in known.seconds)
    return known.seconds if usable else None


def measure() -> float:
    """Return the seconds of one thread for a value and a column of a forward pass."""
    from streammach.backends.cpu.products import logits  # compiled code loads on demand

    rng = np.random.default_rng(0)
    indptr = np.arange(ROWS + 1, dtype=np.int64) * ROW_VALUES
    features = (FEATURES * rng.random(ROWS * ROW_VALUES) ** 3).astype(np.int32)
    weights = np.full((FEATURES, COLUMNS), 0.5, np.float32)
    values, bias = np.ones(len(features), np.float32), np.zeros(COLUMNS, np.float32)
    out = np.empty((ROWS, COLUMNS), np.float32)
    took = []
    for _ in range(TURNS):
        began = time.perf_counter()
        logits(indptr, features, values, 0, ROWS, weights, bias, out)
        took.append(time.perf_counter() - began)
    return min(took) / (len(features) * COLUMNS)


def _machine() -> str:
    return f"{platform.node()} {platform.machine()} {os.cpu_count()}"


def _path() -> Path:
    return Path(platformdirs.user_cache_dir("streammach")) / FILE

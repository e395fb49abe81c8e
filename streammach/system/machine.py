"""What this machine offers, and how sizes and times are read and printed."""

from __future__ import annotations

import math
import re
import resource
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

import psutil

from streammach.system.errors import BudgetError, UsageError, clean
from streammach.system.linux import CGROUPS, group_limits, processors, resident_bytes

UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    UNITS[_letter] = UNITS[f"{_letter}b"] = 1000**_power
    UNITS[f"{_letter}ib"] = 1024**_power
SECONDS = {
    "": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip
QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)
LEAST_BARE = 1_000_000  # bytes that are written without a unit: fewer are meant to have one
DEFAULT_MEMORY = 2_000_000_000  # of work that takes more where it needs more
# Of a training, the largest that is half of what is free: few, so that free memory that changes a
# little changes no plan.
TRAINING_MEMORY = (12, 8, 6, 4, 3, 2)  # GB
NAMED, USUAL = "--memory", "default of this machine"  # who says what may be taken, but for limits
# Of address space, measured with 1 to 8 threads: beside what is held, and the least that is held.
UNFILLED, UNFILLED_A_CORE, LEAST_HELD = 450_000_000, 110_000_000, 350_000_000
UNLIMITED = 1 << 60  # cgroup v1 writes a huge number where there is no limit


def parse_size(value: str | int | float) -> int:
    """Return a size in bytes, or raise UsageError."""
    found = int(_quantity(value, UNITS, "a size such as 12GB, 500MB or 2GiB"))
    text = value.strip() if isinstance(value, str) else ""
    if text.replace(".", "", 1).isdigit() and found < LEAST_BARE:
        hint = f"Name the unit: {text}GB."
        raise UsageError(f"'{clean(text, 60)}' is {found:,} bytes", hint=hint)
    return found


def parse_seconds(value: str | int | float) -> float:
    """Return a duration in seconds, or raise UsageError."""
    return _quantity(value, SECONDS, "a time such as 2h, 90s or 200us")


def _quantity(value: str | float, units: dict[str, float] | dict[str, int], wanted: str) -> float:
    match = QUANTITY.fullmatch(value) if isinstance(value, str) else None
    factor = units.get(match[2].lower()) if match else None
    if match is not None and factor is not None:
        found = float(match[1]) * factor
    else:
        found = float(value) if isinstance(value, Real) else math.nan
    if not 0 < found < math.inf:
        raise UsageError(f"'{clean(value, 60)}' is not {wanted}")
    return found


def number_text(x: float, digits: int = 3) -> str:
    """Return a number for people, with so many digits where it has more places: ``0.054``."""
    return f"{x:z.{digits}g}" if abs(x) < 10**digits - 0.5 else f"{x:z,.0f}"


def percent_text(share: float) -> str:
    """Return a share for people, in two digits: ``54%``."""
    return f"{number_text(100 * share, 2)}%"


def size_text(n_bytes: float) -> str:
    """Return a size for people, in decimal units: ``1.34 GB``."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            digits = "z.3g" if n_bytes < 100 * factor else "z,.0f"
            return f"{n_bytes / factor:{digits}} {unit}"
    return f"{n_bytes:z.0f} bytes"


RANGE_UNITS = ((7200, 3600, "h"), (120, 60, "min"), (0, 1, "s"))  # from so many seconds, of so many


def time_text(seconds: float) -> str:
    """Return a duration for people: ``35 us``, ``0.42 s``, ``4 min 10 s``, ``2 h 05 min``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:z.0f} us"
    if seconds < 0.1:
        return f"{seconds * 1e3:z.2g} ms"
    if seconds < 10:
        return f"{seconds:z.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def time_range_text(low: float, high: float) -> str:
    """Return a range of durations in one unit: ``6.5 to 15 min``."""
    unit, name = next((unit, name) for least, unit, name in RANGE_UNITS if high >= least)
    ends = (f"{x / unit:z.0f}" if x >= 10 * unit else f"{x / unit:z.2g}" for x in (low, high))
    return f"{' to '.join(ends)} {name}"


@dataclass(frozen=True)
class MemoryLimit:
    """The most memory this process may take: bytes, and who says so."""

    n_bytes: int
    source: str


def memory_limit(cgroups: Path = CGROUPS) -> MemoryLimit:
    """Return the memory that this process may still take and where the limit comes from."""
    held = resident_bytes()
    limits = [MemoryLimit(psutil.virtual_memory().available + held, "free memory")]
    for found in group_limits(cgroups, "memory", "memory.max", "memory.limit_in_bytes"):
        limits += [MemoryLimit(n, "cgroup") for n in found if 0 <= n < UNLIMITED]
    for name, spared in (("RLIMIT_DATA", 0), ("RLIMIT_AS", unfilled_addresses())):
        soft = _soft_limit(name)
        if soft is not None:
            limits.append(MemoryLimit(max(soft - spared, 0), name))
    return min(limits, key=lambda limit: limit.n_bytes)


def _soft_limit(name: str) -> int | None:
    """Return a limit of this process by its name, None where there is none."""
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft == resource.RLIM_INFINITY else soft


def unfilled_addresses() -> int:
    """Return about how many bytes of address space a process takes beside the memory it holds.

    Libraries that are mapped, stacks of threads, and what malloc and OpenBLAS set aside for each.
    """
    return UNFILLED + processors() * UNFILLED_A_CORE


def check_address_space() -> None:
    """Refuse to compute in an address space (``ulimit -v``) in which libraries would abort."""
    soft, least = _soft_limit("RLIMIT_AS"), unfilled_addresses() + LEAST_HELD
    if soft is not None and soft < least:
        what = f"the address space is limited to {size_text(soft)}, {size_text(least)} are needed"
        hint = f"Raise it (ulimit -v {-(-least // 1024)} or more); --memory limits what is held."
        raise BudgetError(what, path="RLIMIT_AS", hint=hint)


def within(limit: MemoryLimit, asked: str | int | float) -> int:
    """Return the bytes asked for; UsageError if that is no size, BudgetError above the limit."""
    n_bytes = parse_size(asked)
    if n_bytes > limit.n_bytes:
        raise BudgetError(
            f"{size_text(n_bytes)} asked, {size_text(limit.n_bytes)} may be used ({limit.source})",
            path="--memory", hint=f"Use --memory {limit.n_bytes // 10**7 / 100}GB or less.",
        )  # fmt: skip
    return n_bytes


@dataclass(frozen=True)
class MemoryBudget:
    """The most bytes that a piece of work may take."""

    n_bytes: int  # so many
    source: str  # who says so
    # whether the user named it; otherwise it may give way to what is needed, up to `limit`
    named: bool
    limit: int  # what this process may take at all

    @property
    def most(self) -> int:
        """The bytes that the user named, or what this process may take at all."""
        return self.n_bytes if self.named else self.limit


def budget(asked: str | int | float | None) -> MemoryBudget:
    """Return what the user named as the memory, or the default: 2 GB, or what there is if less."""
    return _budget(asked, memory_limit(), DEFAULT_MEMORY, "default")


def training_budget(asked: str | int | float | None, limit: MemoryLimit) -> MemoryBudget:
    """Return the same of a training, whose default is half of the limit, 2 to 12 GB."""
    half = limit.n_bytes // 2
    usual = next((n * 10**9 for n in TRAINING_MEMORY if n * 10**9 <= half), DEFAULT_MEMORY)
    return _budget(asked, limit, usual, USUAL)


def _budget(
    asked: str | int | float | None, limit: MemoryLimit, usual: int, why: str
) -> MemoryBudget:
    if asked is not None:
        return MemoryBudget(within(limit, asked), NAMED, True, limit.n_bytes)
    if limit.n_bytes < usual:
        return MemoryBudget(limit.n_bytes, limit.source, False, limit.n_bytes)
    return MemoryBudget(usual, why, False, limit.n_bytes)


def advise_memory(n_bytes: int) -> str:
    """Return a size for ``--memory`` that is no smaller than so many bytes: ``480MB``."""
    if n_bytes > 10**10:
        return f"{-(-n_bytes // 10**8) / 10:g}GB"
    return f"{-(-n_bytes // 10**7) * 10}MB"


def cores(cgroups: Path = CGROUPS) -> int:
    """Return the number of processors that this process may use, or may have the time of."""
    n = processors()
    files = "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"
    for found in group_limits(cgroups, "cpu", *files):
        if len(found) == 2 and min(found) > 0:  # microseconds in each period; -1: all
            n = min(n, math.ceil(found[0] / found[1]))
    return n

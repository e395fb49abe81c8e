"""Sizes and times as people write them, and the memory that a process may take."""

import pytest

from streammach.errors import UsageError
from streammach.machine import (
    memory_limit,
    number_text,
    parse_size,
    percent_text,
    size_text,
    time_range_text,
    time_text,
)


@pytest.mark.parametrize(
    ("text", "n"),
    [("12GB", 12 * 10**9), ("12 GiB", 12 << 30), ("500mb", 5 * 10**8), ("1.5k", 1500), (77, 77)],
)
def test_sizes_are_read(text, n):
    assert parse_size(text) == n


@pytest.mark.parametrize("text", ["12", "999999", " 1.5 "])
def test_a_small_number_has_to_have_a_unit(text):
    with pytest.raises(UsageError, match=f"Name the unit: {text.strip()}GB"):
        parse_size(text)
    assert parse_size("2000000") == 2_000_000


def test_sizes_and_times_are_printed():
    assert [size_text(n) for n in (0, 999, 1000, 1.344e9, 2.5e11)] == [
        "0 bytes", "999 bytes", "1 kB", "1.34 GB", "250 GB",
    ]  # fmt: skip
    assert [number_text(x) for x in (0, 0.0123, 5.5, 999.4, 999.7, 123456.7)] == [
        "0", "0.0123", "5.5", "999", "1,000", "123,457",
    ]  # fmt: skip
    assert [percent_text(x) for x in (0, 0.00054, 0.994, 0.9951, 1)] == [
        "0%", "0.054%", "99%", "100%", "100%",
    ]  # fmt: skip
    assert [time_range_text(s, 2 * s) for s in (4, 42, 80, 4000)] == [
        "4 to 8 s", "42 to 84 s", "1.3 to 2.7 min", "1.1 to 2.2 h",
    ]  # fmt: skip
    assert [time_text(s) for s in (38e-6, 0.0042, 0.42, 58, 250, 7500)] == [
        "38 us", "4.2 ms",
        "0.42 s", "58 s", "4 min 10 s", "2 h 05 min",
    ]  # fmt: skip


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_control_group_counts(version, tmp_path, monkeypatch):
    cgroup = "0::/job/inner\n" if version == 2 else "5:cpu,memory:/job/inner\n1:name=x:/\n"
    folder = tmp_path if version == 2 else tmp_path / "memory"
    (folder / "job/inner").mkdir(parents=True)
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    (folder / "job/inner" / name).write_text("max\n" if version == 2 else str(2**63 - 4096))
    (folder / "job" / name).write_text("123456789\n")
    from streammach import machine

    real = machine.Path.read_text
    monkeypatch.setattr(
        machine.Path, "read_text",
        lambda self, *a: cgroup if str(self) == "/proc/self/cgroup" else real(self, *a),
    )  # fmt: skip
    found = memory_limit(tmp_path)
    assert (found.n_bytes, found.source) == (123456789, "cgroup")

"""Sizes and times as people write them, and the memory that a process may take."""

import pytest

from streammach.system import linux, machine
from streammach.system.errors import UsageError
from streammach.system.machine import (
    cores,
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


@pytest.fixture(params=[1, 2])
def group(request, tmp_path, monkeypatch):
    """What writes a limit into a folder of control groups; this process is in job/inner."""
    version = request.param
    text = "0::/job/inner\n" if version == 2 else "5:cpu,memory:/job/inner\n1:name=x:/\n"
    real = linux.Path.read_text
    monkeypatch.setattr(
        linux.Path, "read_text",
        lambda self, *a: text if str(self) == "/proc/self/cgroup" else real(self, *a),
    )  # fmt: skip

    def write(controller, path, older, newer):
        folder = (tmp_path if version == 2 else tmp_path / controller) / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, said in (newer if version == 2 else older).items():
            (folder / name).write_text(f"{said}\n")

    return tmp_path, write


@pytest.mark.linux
def test_the_memory_of_a_control_group_counts(group):
    folder, write = group
    name = "memory.limit_in_bytes"
    write("memory", "job/inner", {name: 2**63 - 4096}, {"memory.max": "max"})
    assert memory_limit(folder).source != "cgroup"
    write("memory", "job", {name: 123456789}, {"memory.max": 123456789})
    found = memory_limit(folder)
    assert (found.n_bytes, found.source) == (123456789, "cgroup")


@pytest.mark.linux
def test_the_processor_time_of_a_control_group_counts(group, monkeypatch):
    monkeypatch.setattr(machine, "processors", lambda: 64)
    folder, write = group
    quota, period = "cpu.cfs_quota_us", "cpu.cfs_period_us"
    write("cpu", "job", {quota: -1, period: 100_000}, {"cpu.max": "max 100000"})
    assert cores(folder) == 64
    for micros, n in (("", 64), (250_000, 3), (200_000, 2), (1_000, 1)):
        write("cpu", "job/inner", {quota: micros, period: 100_000}, {"cpu.max": f"{micros} 100000"})
        assert cores(folder) == n
    write("cpu", "", {quota: 50_000, period: 50_000}, {"cpu.max": "50000 50000"})
    assert cores(folder) == 1

"""The benchmark of threads runs through, on a few rows."""

import json
import sys

from benchmarks.threads import __main__ as bench


def test_every_stage_has_a_rate_for_each_number_of_threads(monkeypatch, capsys, tmp_path):
    file = tmp_path / "threads.json"
    arguments = ["threads", "--real", "--quick", "--threads", "1", "3", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", arguments)
    bench.main()
    found = json.loads(file.read_text())
    stages = {name: one for name, one in found.items() if isinstance(one, dict)}
    del stages["machine"]
    assert len(stages) == 12
    assert all(one[threads]["rate"] > 0 for one in stages.values() for threads in ("1", "3"))
    assert stages["steps of 1,024 rows"]["3"]["backward us"] > 0
    assert capsys.readouterr().out.count(" 3 threads: rate ") == 12

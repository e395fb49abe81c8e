"""The data set of calls: what a row and a label is, and that nothing of a body is a feature."""

import ast
import gzip
import json
import sys

from benchmarks.data import python_calls as made

SOURCE = """
import os

def first(path, mode="r"):
    'Read all lines, then close.'
    secret = os.path.join(path, inner(mode))
    def within():
        hidden()
    return [line.strip() for line in open(secret)]

class Reader:
    def readAll(self, n, *, times):
        return self.read_some(n) or super().readAll(n)

    async def close_it(self):
        await self.stream.close()
"""


def test_rows_are_functions_and_labels_what_they_call(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    rows = list(made.rows_of(tmp_path / "a.py", "pack.aModule", "g"))
    assert [sorted(row.labels) for row in rows] == [
        ["inner", "join", "open", "strip"], ["readAll", "read_some", "super"], ["close"],
    ]  # fmt: skip
    assert rows[0].features == (
        "d^all", "d^close", "d^lines", "d^read", "d^then", "m^module", "m^pack",
        "n^first", "p^mode", "p^path",
    )  # fmt: skip
    assert {"c^reader", "b^close", "b^it", "n^read", "n^all", "p^times"} <= set(rows[1].features)
    assert not any("secret" in feature for row in rows for feature in row.features)
    (tmp_path / "b.py").write_text("def broken(:")
    assert list(made.rows_of(tmp_path / "b.py", "b", "g")) == []


def test_a_function_within_another_is_no_call_of_it():
    (node,) = ast.parse("def f():\n def g():\n  a()\n b()").body
    assert made.called(node) == {"b"}


def test_the_same_files_give_the_same_bytes_split_by_group(tmp_path, monkeypatch):
    for group in range(30):
        folder = tmp_path / "stdlib" / f"module{group}"
        folder.mkdir(parents=True)
        (folder / "a.py").write_text(SOURCE)
    paths = {"stdlib": str(tmp_path / "stdlib"), "purelib": str(tmp_path)}
    monkeypatch.setattr(made.sysconfig, "get_paths", lambda: paths)
    found = []
    for name in ("one", "two"):
        monkeypatch.setattr(sys, "argv", ["made", str(tmp_path / name), "--packages", "none"])
        made.main()
        files = sorted((tmp_path / name).iterdir())
        found.append([file.read_bytes() for file in files])
    assert found[0] == found[1]
    stats = json.loads((tmp_path / "one" / "stats.json").read_text())
    assert stats["train"]["rows"] + stats["test"]["rows"] == 90
    assert 0 < stats["test"]["rows"] < 30
    rows = {name: gzip.decompress((tmp_path / "one" / f"{name}.vw.gz").read_bytes()).decode()
            for name in ("train", "test")}  # fmt: skip
    modules = {name: {line.split("|m ")[1].split(" |")[0] for line in text.splitlines()}
               for name, text in rows.items()}  # fmt: skip
    assert modules["train"].isdisjoint(modules["test"])

"""The data set of packages: what a row and a label is, and that no dependency is a feature."""

import gzip
import json
import sys
from pathlib import Path

from benchmarks.data import package_depends as made

PACKAGE = """Package: {name}-tools
Source: {name} (1.0)
Maintainer: Some One <one@example.org>
Installed-Size: 1000
Pre-Depends: dpkg (>= 1)
Depends: libc6 (>= 2), lib{name} (= 1), mail | mailer,
 python3:any
Recommends: extra
Description: Reads all mail
Tag: role::program,
 use::reading
Section: mail
"""
SAID = """Package: {name}-tools
Description-en: Reads all mail
 It reads secretly.
"""


def lists(folder):
    names = [f"pack{n}" for n in range(30)]
    own = "Package: lib{name}\nSource: {name}\nSection: libs\nDepends: libc6\n"
    index = [text.format(name=name) for name in names for text in (PACKAGE, own)]
    (folder / "d_dists_one_main_binary-all_Packages").write_text("\n".join(index))
    (folder / "d_dists_one-updates_main_binary-all_Packages").write_text("")
    said = "\n".join(SAID.format(name=name) for name in names)
    (folder / "d_dists_one_main_i18n_Translation-en").write_text(said)
    (folder / "d_dists_one_InRelease").write_text("Suite: one\nVersion: 1.2\n")
    return folder


def test_rows_are_packages_and_labels_what_they_depend_on(tmp_path, monkeypatch):
    monkeypatch.setattr(made, "text_of", Path.read_text)
    tools, library = list(made.rows_of(lists(tmp_path)))[:2]
    assert sorted(tools.labels) == ["dpkg", "extra", "libc6", "mail", "python3"]
    assert (library.labels, library.group) == ({"libc6"}, tools.group)
    assert tools.features == (
        "f^all", "f^mail", "f^reads", "m^0_tools", "m^_pack", "m^pack_0", "m^tools_", "n^0",
        "n^pack", "n^tools", "o^some_one", "s^mail", "t^role--program", "t^use--reading",
        "w^it", "w^reads", "w^secretly", "z^10",
    )  # fmt: skip


def test_the_same_release_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(made, "text_of", Path.read_text)
    found = []
    for name in ("one", "two"):
        words = ["made", str(tmp_path / name), "--lists", str(lists(tmp_path))]
        monkeypatch.setattr(sys, "argv", words)
        made.main()
        found.append(
            [(tmp_path / name / f"{part}.vw.gz").read_bytes() for part in ("train", "test")]
        )
    assert found[0] == found[1]
    stats = json.loads((tmp_path / "one/stats.json").read_text())
    assert stats["release"] == "1.2"
    assert stats["train"]["rows"] + stats["test"]["rows"] == 60
    assert b"secretly" in gzip.decompress(found[0][0])

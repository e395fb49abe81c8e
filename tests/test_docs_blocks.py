"""Every block of the pages that teach does what the page shows."""

from pathlib import Path

import pytest

from tests.doc_blocks import Session, blocks_of, check

# Pages are run as users have it.
pytestmark = pytest.mark.usefixtures("linear")

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS / "index.md", DOCS.parent / "README.md"] + [
    page
    for folder in ("start", "how", "examples", "understand")
    for page in sorted((DOCS / folder).glob("*.md"))
]

# What pages need that the tests do not bring: tox -e programs.
LIBRARIES = {
    "programs": ("datasets", "duckdb", "torch"), "trackers": ("mlflow", "tensorboard", "wandb"),
}  # fmt: skip
QUIET = pytest.mark.filterwarnings("ignore")  # of these libraries


@pytest.mark.parametrize("page", [
    pytest.param(page, id=f"{page.parent.name}-{page.stem}",
                 marks=QUIET if page.stem in LIBRARIES else ())
    for page in PAGES
])  # fmt: skip
def test_the_blocks_of_a_page_do_what_it_shows(page, tmp_path, monkeypatch):
    for library in LIBRARIES.get(page.stem, ()):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    Session(page).run()


def test_output_is_compared_without_its_numbers():
    check("a.zarr: 1,200 rows, 3.4 MB\n...\nend", "a.zarr: 7 rows, 12 kB\nmore\nend", "here")
    check("loss ... done", "loss 0.5 and more done", "here")
    with pytest.raises(AssertionError, match="not in the output: rows"):
        check("rows", "no rows", "here")


def test_blocks_are_found_in_comments_and_left_out_with_a_reason():
    page = (
        "```python\na\n```\n<!-- before:\n```python\nb\n```\n-->\n"
        "<!-- not run: slow -->\n```console\n$ c\n```\n"
    )
    assert [(block.kind, block.code, block.why_not) for block in blocks_of(page)] == [
        ("python", "a\n", ""), ("python", "b\n", ""), ("console", "$ c\n", "slow"),
    ]  # fmt: skip

"""Pages and pictures as a reader's browser would take them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import streammach
from benchmarks.picture_files import NAMESPACE, as_file

ROOT = Path(__file__).parent.parent
BUILT = ROOT / "docs" / "_build"
PAGES_OF_SITE = [
    path for path in sorted((ROOT / "docs").rglob("*.md")) if not path.is_relative_to(BUILT)
]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *PAGES_OF_SITE]
PICTURES = sorted(
    path
    for kind in ("svg", "png", "jpg", "gif")
    for path in (ROOT / "docs").rglob(f"*.{kind}")
    if not path.is_relative_to(BUILT)
)
SIGNATURES = {".png": b"\x89PNG\r\n\x1a\n", ".jpg": b"\xff\xd8\xff", ".gif": b"GIF8"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)[^)]*\)")


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_every_picture_opens_as_a_file(path):
    if path.suffix != ".svg":
        assert path.read_bytes().startswith(SIGNATURES[path.suffix])
        return
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{{{NAMESPACE}}}svg"  # without it, browsers show a broken image
    assert float(re.match(r"[0-9.]+", root.attrib["width"])[0]) > 0
    assert root.find(f".//{{{NAMESPACE}}}path") is not None


def test_a_figure_of_a_page_becomes_a_document():
    document = as_file('<svg role="img" width="1pt"><g/></svg>')
    assert ElementTree.fromstring(document).tag == f"{{{NAMESPACE}}}svg"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_a_page_links_to_is_there(page):
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    for link in links:
        assert (page.parent / link).exists(), link


def test_a_citation_names_the_version():
    assert f"version: {streammach.__version__}\n" in (ROOT / "CITATION.cff").read_text()

"""Figures of pages as files of their own: what the pictures of benchmarks are written with."""

from streammach.frontends.reports.drawing import NIGHT

NAMESPACE = "http://www.w3.org/2000/svg"


def as_file(svg: str) -> str:
    """Return a figure of a page as a document of its own, with all that a file needs."""
    begin, rest = svg.replace("<svg ", f'<svg xmlns="{NAMESPACE}" ', 1).split(">", 1)
    return f"{begin}>\n<style>{NIGHT}</style>{rest}\n"

"""The page to try a service by hand, and what a browser lets it do: nothing of others."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

PAGE = (Path(__file__).parent / "page.html").read_text("utf-8")


def _digests(tag: str) -> str:
    """Return the digests of what stands within a tag, as a policy names them."""
    found = re.findall(f"<{tag}>(.*?)</{tag}>", PAGE, flags=re.S)
    raw = [hashlib.sha256(text.encode()).digest() for text in found]
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in raw)


HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; script-src {_digests('script')}; style-src {_digests('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}

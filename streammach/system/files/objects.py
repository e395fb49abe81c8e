"""Objects under a URL, read and written over the package obstore: bounded in tries and in time.

Credentials are those that its client finds: in the environment, of the machine or, where boto3 is
installed, of a profile. Nothing here keeps, writes or shows them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from streammach.system.errors import DiskError, UsageError, clean
from streammach.system.files.reading import disk_errors
from streammach.system.files.urls import Url

INSTALL = 'pip install "streammach[cloud]"'
PART = 4 << 20  # bytes of one request
AT_ONCE = 4  # requests for an object
FETCH_BYTES = 48 << 20  # of memory: the library, and parts on their way
TRIES = 5
FIRST_WAIT, LONGEST_WAIT = 0.1, 3.0  # seconds before another try
TIMEOUT = "STREAMMACH_TIMEOUT"  # environment: seconds that one request may take
DEFAULT_TIMEOUT = 30.0
DIGEST = "streammach-sha256"  # an object of ours carries that of its bytes under this name
STATUS = re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z]+)*)")

REFUSALS = ("400", "401", "403", "405")  # the same request is answered so again

T = TypeVar("T")


class RemoteError(DiskError):
    """Something in object storage could not be read or written."""


class MissingObject(RemoteError):
    """There is no such object."""


class _Short(Exception):
    """An answer is not all that was asked for."""


class Objects:
    """What lies under a URL; safe to use from several threads."""

    def __init__(self, url: Url) -> None:
        self.url = url
        self._timeout = timeout()
        try:
            import obstore  # an optional extra
        except ImportError:
            what = "stores at URLs need the package obstore"
            raise UsageError(what, path=url, hint=f"Install it: {INSTALL}") from None
        self._api: Any = obstore
        try:
            self._store = _client(url, self._timeout)
        except UsageError:
            raise
        except Exception as error:  # of the library's own kinds
            raise RemoteError(f"it cannot be reached ({_reason(error)})", path=url) from None

    def read(self, name: str, limit: int, sound: Callable[[bytes], bool]) -> bytes:
        """Return a small object whole, or raise MissingObject, RemoteError or DiskError."""
        last = b""

        def get() -> bytes:
            nonlocal last
            answer = self._api.get(self._store, name)
            size = int(answer.meta["size"])
            if size > limit:
                raise DiskError(f"{size:,} bytes, at most {limit:,} expected", path=self.at(name))
            last = bytes(answer.bytes())
            if len(last) != size:
                raise _Short(f"{len(last):,} of {size:,} bytes came")
            if not sound(last):
                raise _Short("its bytes are not those that were written")
            return last

        try:
            return self._retry(name, "read", get)
        except RemoteError:
            if last and not sound(last):
                return last
            raise

    def fill(self, name: str, size: int, handle: int) -> None:
        """Write an object's bytes into a file, or raise MissingObject, RemoteError or DiskError."""
        starts = range(0, size, PART)

        def part(start: int) -> None:
            stop = min(start + PART, size)

            def get() -> Any:
                data = self._api.get_range(self._store, name, start=start, end=stop)
                if len(data) != stop - start:
                    raise _Short(f"{len(data):,} of {stop - start:,} bytes came")
                return data

            view, at = memoryview(self._retry(name, "read", get)), start
            while view:
                with disk_errors("the cache"):
                    n = os.pwrite(handle, view, at)
                view, at = view[n:], at + n

        pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(starts))), "parts")
        try:
            for _ in pool.map(part, starts):
                pass
        finally:
            pool.shutdown(cancel_futures=True)

    def put(self, name: str, data: bytes | Path, digest: str) -> None:
        """Write an object, or raise RemoteError."""
        attributes = {DIGEST: digest}
        self._retry(
            name, "written", partial(self._api.put, self._store, name, data, attributes=attributes)
        )

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 that goes with an object of ours; None without one, or the object."""
        try:
            attributes = self._retry(
                name, "read", lambda: self._api.get(self._store, name).attributes
            )
        except MissingObject:
            return None
        found = attributes.get(DIGEST)
        return found if isinstance(found, str) else None

    def sizes(self) -> dict[str, int]:
        """Return the bytes of all objects below the URL, by their names there."""

        def names() -> dict[str, int]:
            pages = self._api.list(self._store)
            return {str(one["path"]): int(one["size"]) for page in pages for one in page}

        return self._retry("", "listed", names)

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects, those that are there."""
        for name in names:
            with contextlib.suppress(MissingObject):
                self._retry(name, "removed", partial(self._api.delete, self._store, name))

    def at(self, name: str) -> Url:
        """Return the URL of an object."""
        return self.url / name if name else self.url

    def _retry(self, name: str, done: str, call: Callable[[], T]) -> T:
        """Return what a request answers; it is repeated where that may help."""
        began, wait = time.monotonic(), FIRST_WAIT
        for left in reversed(range(TRIES)):
            try:
                return call()
            except DiskError:
                raise
            except Exception as error:  # of the library's own kinds
                _refuse(error, self.at(name), done)
                late = time.monotonic() - began > TRIES * self._timeout / 2
                if not left or late:
                    what = f"it cannot be {done} ({_reason(error)}; {TRIES - left} tries)"
                    hint = "Run the same command again when it answers."
                    raise RemoteError(what, path=self.at(name), hint=hint) from None
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
        raise AssertionError("unreachable")


def timeout() -> float:
    """Return the seconds that a request may take, or raise UsageError."""
    text = os.environ.get(TIMEOUT, "")
    try:
        found = float(text) if text else DEFAULT_TIMEOUT
    except ValueError:
        found = 0.0
    if not 0.05 <= found <= 3600:
        raise UsageError(f"{clean(text)} is no time from 0.05 to 3600 seconds", path=TIMEOUT)
    return found


def _client(url: Url, seconds: float) -> Any:
    from obstore.store import GCSStore, HTTPStore, S3Store

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    plain = url.scheme == "http" or (url.scheme == "s3" and endpoint.startswith("http:"))
    common: dict[str, Any] = {
        "client_options": {
            "timeout": f"{int(1000 * seconds)}ms", "allow_http": plain,
            "connect_timeout": f"{int(1000 * min(seconds, 10.0))}ms",
        },
        "retry_config": {"max_retries": 0},  # tries are counted here
    }  # fmt: skip
    if url.scheme == "s3":
        return S3Store.from_url(str(url), **common, **_profile())
    if url.scheme == "gs":
        return GCSStore.from_url(str(url), **common)
    return HTTPStore.from_url(str(url), **common)


def _profile() -> dict[str, Any]:
    """Return how credentials are had from a profile; nothing where the environment has them."""
    named = "AWS_PROFILE" in os.environ
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", os.path.expanduser("~/.aws/credentials"))
    if not named and ("AWS_ACCESS_KEY_ID" in os.environ or not os.path.exists(file)):
        return {}
    if importlib.util.find_spec("boto3") is None:
        if not named:
            return {}
        what = "credentials of a profile need the package boto3"
        raise UsageError(what, path="AWS_PROFILE", hint="Install it: pip install boto3")
    from obstore.auth.boto3 import Boto3CredentialProvider

    return {"credential_provider": Boto3CredentialProvider()}


def _refuse(error: Exception, place: Url, done: str) -> None:
    """Raise the error of an answer that will not change when it is asked for again."""
    from obstore import exceptions as known

    if isinstance(error, FileNotFoundError | known.NotFoundError):
        raise MissingObject("there is no such object", path=place) from None
    denied = (known.PermissionDeniedError, known.UnauthenticatedError)
    status = STATUS.search(str(error))
    if isinstance(error, denied) or (status is not None and status[1][:3] in REFUSALS):
        what = f"it may not be {done} ({_reason(error)})"
        hint = "Check the credentials that the environment gives, and what they allow."
        raise RemoteError(what, path=place, hint=hint) from None
    if isinstance(error, known.NotSupportedError | known.InvalidPathError):
        raise RemoteError(f"it cannot be {done} ({_reason(error)})", path=place) from None


def _reason(error: Exception) -> str:
    """Return why a request failed, without what a library says of the request itself."""
    text = str(error)
    status = STATUS.search(text)
    if status is not None:
        return f"HTTP {status[1]}"
    lower = text.lower()
    if isinstance(error, _Short):
        return text
    if "timedout" in lower or "timed out" in lower or "kind: timeout" in lower:
        return "no answer in time"
    if "kind: connect" in lower or "connect error" in lower:
        return "no connection"
    if any(word in lower for word in ("reset", "closed", "incomplete", "body", "end of file")):
        return "the connection broke"
    if "credential" in lower:
        return "no credentials were found"
    return clean(text.splitlines()[0] if text else type(error).__name__, 120)

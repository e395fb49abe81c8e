"""What parts do before the first epoch, kept on disk until the hashed models are trained."""

from __future__ import annotations

from pathlib import Path

from streammach.parts.base import Ahead
from streammach.parts.registry import planned
from streammach.training.session import Session


class WorkAhead:
    """The work of parts that need no hashed models."""

    def __init__(self, session: Session, folder: Path, identity: str) -> None:
        self._session, self._folder, self._identity = session, folder, identity
        self._parts = [part for part in planned(session.plan.config) if part.ranks_alone]

    def run(self) -> dict[str, Ahead]:
        """Do the work, or find it on disk; return it by the parts' names."""
        found = self.kept()
        for part in self._parts:
            if part.name not in found:
                found[part.name] = part.work_ahead(self._session)
        return found

    def keep(self, found: dict[str, Ahead]) -> None:
        """Write the work to disk, and let go what was kept until then; or raise DiskError."""
        for name, ahead in found.items():
            if not (self._folder / name).is_dir():
                ahead.save(self._folder / name, self._identity)
            self._session.findings.drop(*ahead.unfinished)

    def kept(self) -> dict[str, Ahead]:
        """Return the work that is on disk, by the parts' names."""
        read = ((part.name, part.reopened(self._session, self._folder / part.name, self._identity))
                for part in self._parts)  # fmt: skip
        return {name: ahead for name, ahead in read if ahead is not None}

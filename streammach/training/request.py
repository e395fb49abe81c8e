"""What is asked of a training, and whether it can be."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from streammach.backends.registry import BACKENDS
from streammach.clock import Clock
from streammach.data.holdout import check_held_out
from streammach.data.identity import name_of
from streammach.errors import BudgetError, MismatchError, StreammachError, UsageError, clean
from streammach.files.reading import sha256
from streammach.jit import TRAINING_COMPILER_BYTES, compiler_bytes
from streammach.machine import advised, size_text
from streammach.model.checkpoint import Checkpoints
from streammach.model.model import Model
from streammach.parts.registry import planned
from streammach.planning.ledger import kernels
from streammach.spec.documents import encoded
from streammach.spec.facts import DataFacts
from streammach.spec.ledger import bytes_in
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.label_loss import check_label_loss
from streammach.training.run import (
    CHECKPOINTS,
    PART_OF_RUN,
    RESULT,
    Settings,
    begun,
    workplace,
)
from streammach.training.run_part import COUNT, PartNumber, RunPart, settings_of
from streammach.training.signals import StopSignals


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What is asked for: a whole run; a share of one; or one that is merged from its shares."""

    plan: Plan  # of the whole run
    options: TrainingOptions
    folder: Path
    resume: bool  # whether to go on with what the folder holds
    callbacks: tuple[object, ...]
    checkpoint_seconds: float
    clock: Clock  # the time that there is
    stop: StopSignals | None = None  # asks for the end; the signals of the process otherwise
    start: Model | None = None  # where the weights start
    lasting: bool = True  # whether the folder stays
    share: PartNumber | None = None
    settings: str | os.PathLike[str] | None = None  # another share, where all is decided already
    shares: tuple[RunPart, ...] = ()  # all of them in their order, where they are merged

    @property
    def kind(self) -> str:
        """What the folder is, as its marker says."""
        return "run" if self.share is None else PART_OF_RUN

    @property
    def facts(self) -> dict[str, str]:
        """What the folder's marker says beside."""
        number = {} if self.share is None else {COUNT: str(self.share)}
        return {"request": self.identity, **number}

    @cached_property
    def identity(self) -> str:
        """Digest of all that decides the result: the store, the plan, the options."""
        plan, options = self.plan, msgspec.to_builtins(self.options)
        if options["validation"] is not None:
            options["validation"] = name_of(options["validation"])
        decisive = [plan.facts.digest, plan.model, plan.config.decisive, options]
        if self.start is not None:
            decisive.append(sha256([np.asarray(self.start.weights).data]))
        return sha256([encoded(decisive)])

    @cached_property
    def decided(self) -> Settings | None:
        """What another share decided, if it is named; or raise UsageError or MismatchError."""
        if self.settings is None:
            return None
        return settings_of(self.settings, self.plan, self.options)

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints; a share keeps those of all epochs' ends."""
        folder = self.folder / CHECKPOINTS
        return Checkpoints(folder, self.identity, every_epoch=self.share is not None)

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that it takes at most; a merge keeps no checkpoints."""
        if self.share is not None:
            return self.share.disk_bytes(self.plan, self.options.epochs)
        lines = [x for x in self.plan.ledger if not self.shares or x.name == "model"]
        return bytes_in(lines, "disk")

    @property
    def kernels(self) -> tuple[object, ...]:
        """What decides which kernels are compiled for it."""
        options = self.options
        return (
            *kernels(self.plan.facts, self.plan.config), self.share is None, len(self.shares) > 0,
            options.transform, options.hold_out_by, options.validation is None,
        )  # fmt: skip

    def _compiler_bytes(self) -> int:
        plan, limits = self.plan, self.plan.limits
        if not BACKENDS[plan.config.placement.device].keeps_kernels:
            return 0
        more = compiler_bytes(*self.kernels, n_bytes=TRAINING_COMPILER_BYTES)
        needed = plan.projected_bytes + more
        if more and needed > limits.host:
            raise BudgetError(
                f"the first training of its kind compiles kernels: it needs {size_text(needed)}, "
                f"later ones {size_text(plan.projected_bytes)}",
                path=f"{size_text(limits.host)} ({limits.host_source})",
                hint=f"Nothing was allocated; use --memory {advised(needed)} or more.",
            )
        return more

    def check(self, facts: DataFacts) -> int:
        """Return the bytes that compiling takes beside the plan; raise what speaks against it."""
        options, config = self.options, self.plan.config
        check_held_out(options)
        check_label_loss(options, facts, config)
        if self.share is not None:
            self.share.check(self.plan, options)
            if self.clock.limited:
                raise UsageError("what a time allows differs from part to part: --time with --part")
            if self.start is not None:
                raise UsageError("a part starts from no other model: --part")
            _ = self.decided
        needed = not any(part.ranks_untrained for part in planned(config))
        if options.epochs == 0 and (needed or not config.batching.held_out_rows):
            raise UsageError("at least one epoch is needed: --epochs")
        return self._compiler_bytes()

    def finished(self) -> bool:
        """Return whether it is done in its folder already, and gone on with."""
        if not self.resume or self.share is None:
            return self.resume and (self.folder / RESULT).exists()
        try:
            return not RunPart.open(self.folder).left
        except StreammachError:
            return False

    def begin(self) -> None:
        """Raise UsageError or MismatchError if the folder holds something else than this."""
        begun(self.folder, resume=self.resume, kind=self.kind)
        if self.share is None:
            return
        known = (workplace(self.folder, self.kind).facts() or {}).get(COUNT, str(self.share))
        if known != str(self.share):
            raise MismatchError(
                f"it is part {clean(known, 20)} of a run, not {self.share}",
                path=clean(self.folder, 300),
            )

"""What was measured and is saved as JSON: of a ranking, of an epoch, of a short training."""

from __future__ import annotations

import msgspec

from streammach.spec.types import Amount, Count, LossKind, Share, Size, Transform


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """P@1 and P@5 on some rows."""

    p_at_1: Share
    p_at_5: Share


class EpochFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was measured at the end of an epoch.

    Attributes
    ----------
    epoch : int
        Its number, from 1.
    loss : float
        Mean loss in nats per row and model.
    rows_per_second : float
        Since the run began or was resumed.
    waited_share : float
        Share of the time in which training waited for rows.
    peak_bytes : int
        The largest resident memory so far.
    p_at_1, p_at_5, merit : float or None
        On the held-out rows, if there are any; the merit compares epochs.
    """

    epoch: Size
    loss: float
    rows_per_second: Amount
    waited_share: Amount
    peak_bytes: Count
    p_at_1: Share | None = None
    p_at_5: Share | None = None
    merit: Amount | None = None


class TrialFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One short training of a search and what it reached on held-out rows."""

    transform: Transform
    whitened: bool
    loss: LossKind
    learning_rate: Amount
    rows: Count
    epochs: Count
    p_at_1: Share
    p_at_5: Share

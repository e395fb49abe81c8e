"""Words and ranges of numbers that records are made of, and the formats of what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

STORE_FORMAT, MODEL_FORMAT = 1, 1  # that this release writes and reads
Transform = Literal["raw", "binary", "log1p", "l2"]
Optimizer = str  # a name in spec.optimizers.OPTIMIZERS
Weights = Literal["float32", "bfloat16"]  # while they are trained
Estimator = str  # a name in spec.estimators.ESTIMATORS
Ranker = str  # the same, or blend: counts beside hashed models
Multilabel = Literal["auto", "on", "off"]  # whether rows have lists of labels
Quotes = Literal["auto", "on", "off"]  # whether quotation marks stand around cells
LabelShare = Literal["shared", "each"]  # of the target of a row with several labels
LossKind = Literal["independent", "joint", "logistic"]  # of the repetitions, by the loss
StorePath = Path  # of a store, or its URL
MOST = 2**63 - 1  # of what is counted in int64
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Size = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Index = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # what ids of int32 are told from
Repetitions = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]  # 0: no hashed models
Amount = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

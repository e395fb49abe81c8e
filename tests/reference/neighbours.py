"""Similar training rows in plain Python."""

import math

import numpy as np


def rows_of(block):
    """The features of each row."""
    return [
        block.features[a:b].tolist() for a, b in zip(block.indptr, block.indptr[1:], strict=False)
    ]


def worth(known, rare):
    """What rare features are worth."""
    rows_with = {}
    for row in known:
        for f in row:
            rows_with[f] = rows_with.get(f, 0) + 1
    return {f: math.log(len(known) / m) for f, m in rows_with.items() if m <= rare}


def norms(known, idf):
    """1 over the length of each row, 0 where it has none."""
    lengths = [math.sqrt(sum(idf.get(f, 0) ** 2 for f in row)) for row in known]
    return [1 / length if length else 0.0 for length in lengths]


def gains(block, known, labels, norms, idf, weight, *, most=10):
    """What labels gain for each row: {label: gain}; training rows with a norm of 0 say nothing."""
    n, out, sets = len(known), [], [set(row) for row in known]
    square = {f: np.float32(x) * np.float32(x) for f, x in idf.items()}  # ties are those of float32
    for row in rows_of(block):
        own = math.sqrt(sum(idf.get(f, 0) ** 2 for f in row))
        cosines = []
        for other, norm in zip(sets, norms, strict=True):
            product = np.float32(0)
            for f in row:
                product += square.get(f, np.float32(0)) if f in other else np.float32(0)
            cosines.append(float(product * np.float32(norm)) / own if own else 0.0)
        best = [i for i in np.lexsort((np.arange(n), -np.array(cosines)))[:most] if cosines[i] > 0]
        sums = {}
        for i in best:
            for label in labels[i]:
                sums[label] = sums.get(label, 0.0) + cosines[i] ** 3
        out.append({label: weight * math.log1p(10 * s) for label, s in sums.items()})
    return out

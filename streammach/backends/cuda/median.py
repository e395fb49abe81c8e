"""The median of R values as straight-line code: a sorting network cut down to the middle.

An array indexed by a loop's variable would lie in memory of its own for each thread; named values
stay in registers. So the code is written out for each R. Of Batcher's odd-even merge network only
what the middle wires depend on is kept, often half a comparator: 202 minima and maxima for R = 25.
"""

from __future__ import annotations

from collections.abc import Iterator


def comparators(n: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs i < j whose exchanges in turn sort n wires (Batcher, odd-even merge)."""
    size = 1
    while size < n:
        step = size
        while step >= 1:
            for low in range(step % size, n - step, 2 * step):
                for i in range(low, low + min(step, n - low - step)):
                    if i // (2 * size) == (i + step) // (2 * size):
                        yield i, i + step
            step //= 2
        size *= 2


def median_lines(n: int) -> tuple[list[str], str]:
    """Return statements over v0 .. v{n-1}, and the expression of their median after them."""
    # An even n gives the mean of the middle two.
    lower, upper = (n - 1) // 2, n // 2
    needed, kept = {lower, upper}, []
    for i, j in reversed(list(comparators(n))):
        wanted = (i in needed, j in needed)
        if any(wanted):
            kept.append((i, j, *wanted))
            needed |= {i, j}
    lines = []
    for i, j, low, high in reversed(kept):
        if low and high:
            lines.append(f"v{i}, v{j} = min(v{i}, v{j}), max(v{i}, v{j})")
        else:
            lines.append(f"v{i} = min(v{i}, v{j})" if low else f"v{j} = max(v{i}, v{j})")
    middle = f"v{upper}" if lower == upper else f"(v{upper} + v{lower}) * HALF"
    return lines, middle

"""How packed rows and packed pairs lie, in plain Python: a row, or a list, at a time."""

GAPS, TWO, FOUR, PLAIN = 1, 2, 3, 4


def gaps(row):
    """The numbers that are not 0, each with how many zeros come before it."""
    out, before = [], 0
    for x in row:
        if x == 0:
            before += 1
            continue
        while before > 15:
            out.append(15 << 4)
            before -= 16
        out.append(before << 4 | x & 15)
        before = 0
    return out


def in_bits(row, bits):
    """The lowest number, each less that one in so many bits, and those that these do not hold."""
    n, other = (1 << bits) - 1, (1 << bits) - 1
    lows = range(-128, 129 - n)
    low = max(lows, key=lambda v: (sum(v <= x < v + n for x in row), -v))
    part = -(-len(row) * bits // 8)
    out, rest = [0] * part, []
    for c, x in enumerate(row):
        code = x - low if low <= x < low + n else other
        rest += [x & 255] if code == other else []
        out[c % part] |= code << (bits * (c // part))
    return [low & 255, *out, *rest]


def packed(row):
    """The bytes of a row, and its form."""
    if not any(row):
        return [], 0
    found = [([FOUR, *in_bits(row, 4)], FOUR), ([TWO, *in_bits(row, 2)], TWO)]
    if all(-8 <= x < 8 for x in row):
        found.append(([GAPS, *gaps(row)], GAPS))
    best = min(found, key=lambda one: len(one[0]))
    most = len(row) - len(row) // 8
    return ([PLAIN, *(x & 255 for x in row)], PLAIN) if len(best[0]) > most else best


def entries(classes, gains, unit, most):
    """The entries of a list of pairs: steps and gains."""
    out, before = [], 0
    for c, gain in zip(classes, gains, strict=True):
        step, left = c - before, gain // unit
        out += [(65535, 0)] * (step // 65535)
        step %= 65535
        while True:
            now = max(-most, min(most, left))
            out.append((step, now))
            step, left = 0, left - now
            if left == 0:
                break
        before = c
    return out

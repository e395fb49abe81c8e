"""How packed rows and packed pairs lie, in plain Python: a row, or a list, at a time."""

GAPS, TWO, THREE, FOUR, PLAIN = 1, 2, 3, 4, 5


def gaps(row):
    """The numbers that are not 0, each with how many zeros come before it."""
    out, before = [], 0
    for x in row:
        if x == 0:
            before += 1
            continue
        while before > 15:
            sixteens = min(before // 16, 16)
            out.append(sixteens - 1 << 4)
            before -= 16 * sixteens
        out.append(before << 4 | x & 15)
        before = 0
    return out


def in_bits(row, bits):
    """The lowest number, each less that one in so many bits, and those that these do not hold."""
    n, other = (1 << bits) - 1, (1 << bits) - 1
    lows = range(-128, 129 - n)
    low = max(lows, key=lambda v: (sum(v <= x < v + n for x in row), -v))
    codes = [x - low if low <= x < low + n else other for x in row]
    rest = [x & 255 for x, code in zip(row, codes, strict=True) if code == other]
    if bits == 3:
        return [
            low & 255,
            *plane([c & 3 for c in codes], 2),
            *plane([c >> 2 for c in codes], 1),
            *rest,
        ]
    return [low & 255, *plane(codes, bits), *rest]


def plane(codes, bits):
    """Codes of so many bits: in the lowest bits of the bytes first, then in the next ones."""
    part = -(-len(codes) * bits // 8)
    out = [0] * part
    for c, code in enumerate(codes):
        out[c % part] |= code << (bits * (c // part))
    return out


def packed(row):
    """The bytes of a row, and its form."""
    if not any(row):
        return [], 0
    found = [
        ([form, *in_bits(row, bits)], form) for form, bits in ((FOUR, 4), (THREE, 3), (TWO, 2))
    ]
    if all(-8 <= x < 8 for x in row):
        found.append(([GAPS, *gaps(row)], GAPS))
    best = min(found, key=lambda one: len(one[0]))
    most = len(row) - len(row) // 8
    return ([PLAIN, *(x & 255 for x in row)], PLAIN) if len(best[0]) > most else best


def entries(classes, gains, unit, most, longest=65535):
    """The entries of a list of pairs: steps and gains, of which these are the largest."""
    out, before = [], 0
    for c, gain in zip(classes, gains, strict=True):
        step, left = c - before, gain // unit
        out += [(longest, 0)] * (step // longest)
        step %= longest
        while True:
            now = max(-most, min(most, left))
            out.append((step, now))
            step, left = 0, left - now
            if left == 0:
                break
        before = c
    return out

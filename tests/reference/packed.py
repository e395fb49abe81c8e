"""How packed rows and packed pairs lie, in plain Python: a row, or a list, at a time."""


def packed(row):
    """The bytes of a row: the lowest number, each less that one in two bits, and all others."""
    if not any(row):
        return []
    low = max(range(-128, 126), key=lambda v: (sum(v <= x < v + 3 for x in row), -v))
    codes = [x - low if low <= x < low + 3 else 3 for x in row]
    part = -(-len(row) // 4)
    out = [0] * part
    for c, code in enumerate(codes):
        out[c % part] |= code << (2 * (c // part))
    others = [x & 255 for x, code in zip(row, codes, strict=True) if code == 3]
    return [low & 255, *out, *others]


def entries(classes, gains, unit, longest=65535):
    """The entries of a list of pairs: steps and gains."""
    out, before = [], 0
    for c, gain in zip(classes, gains, strict=True):
        step = c - before
        out += [(longest, 0)] * (step // longest)
        out.append((step % longest, gain // unit))
        before = c
    return out

"""Does any text make a parser crash, hang, or read other rows than a plain parser does?

    python -m tests.campaigns.fuzz --minutes 60 --json FILE

Documents come from hypothesis: pieces of the grammars, numbers at the edges of their types, and
any bytes, in lines of VW, svmlight or XMC text. Each is read by the compiled parser at a block size
of its own. Rows, weights, names, values and the number of bad rows are held to the plain parser of
the tests (VW, svmlight); XMC has none, there two block sizes are held to each other. The same
documents go through gzip, whole (then rows are the same), or cut, flipped or with bytes behind
(then they are refused, or are the rows of the members before).

A round is a process of its own, so that one that dies is counted and its document kept.
"""

import gzip
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
import numpy as np
from hypothesis import strategies as st

import streammach.data.text as parser_of_text
from benchmarks.machine_facts import facts, parser, report
from streammach.data.bad_rows import BadRows
from streammach.data.text import TextSource
from streammach.errors import DataError
from streammach.rows.vocabulary import Vocabulary
from tests.reference import text as plain

ROUND = 400  # documents of a round and target
SECONDS = 300  # that a round may take
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
MARK_OF_ORDER = b"\xef\xbb\xbf"
KEPT = Path("fuzz-failures")
NUMBERS = [
    b"1", b"2.5", b"-1e-3", b"12345678.5", b"3E+2", b".5", b"7.", b"+3", b"0", b"-0", b"1e39",
    b"nan", b"-inf", b"1e", b"x", b"1e-45", b"16777217", b"340282346638528859811704183484516925440",
    b"3.4028235677973366e38", b"0.1000000000000000055511151231257827", b"1:2", b"--1", b"1e999",
    b"9" * 400, b"0." + b"0" * 300 + b"1", b"1e-400", b"1_0", b"0x10", b"1e+", b"00012",
]  # fmt: skip
MARKS = [b" ", b"\t", b"\r", b"\x0b", b"\x0c", b"|", b":", b"^", b"'", b"#", b",", b"|w ", b"|w:2 "]
WORDS = [b"a", b"w", b"qid:", b"qid:3", b"07", b"x^y", b"\xc3\xa9t", b"\xff\xfe", b"\x00", b"tag",
         b"exactly_sixteen_", b"123456789", b"9999999999999999999", b"'tag", b"\xef\xbb\xbf",
         b"1:", b":1", b"3:1", b"5:2.5", b"label"]  # fmt: skip
PIECE = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(MARKS), st.sampled_from(WORDS),
    st.binary(max_size=3).map(lambda raw: raw.replace(b"\n", b" ")),
)  # fmt: skip
NAME = st.sampled_from(WORDS)
FEATURE = st.tuples(NAME, st.sampled_from([b"", b":", b":"]), st.sampled_from(NUMBERS)).map(
    lambda part: b"".join(part[: 3 if part[1] else 1])
)
LINES = {
    "vw": st.one_of(
        st.lists(PIECE, max_size=12).map(b"".join),
        st.tuples(NAME, st.sampled_from([b" |", b" 2 |", b" t|", b"|"]), st.lists(FEATURE)).map(
            lambda parts: parts[0] + parts[1] + b"w " + b" ".join(parts[2])
        ),
    ),
    "svmlight": st.one_of(
        st.lists(PIECE, max_size=12).map(b"".join),
        st.tuples(st.sampled_from(NUMBERS), st.lists(FEATURE)).map(
            lambda parts: parts[0] + b" " + b" ".join(parts[1])
        ),
    ),
}
LINES["xmc"] = LINES["svmlight"]
END = st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"])
BLOCK = st.sampled_from([64, 65, 100, 257, 1 << 12, 1 << 20])


def read(path, form, block_bytes):
    """Rows by the byte at which their line begins, and the number of bad ones."""
    vocabulary, bad, rows = Vocabulary(), BadRows(skip=True), {}
    before, parser_of_text.BLOCK_BYTES = parser_of_text.BLOCK_BYTES, block_bytes
    try:
        for block in TextSource(path, form).blocks(vocabulary, bad):
            for i in range(block.n_rows):
                part = slice(block.indptr[i], block.indptr[i + 1])
                rows[int(block.places[i])] = (
                    int(block.classes[i]), float(block.importance[i]),
                    block.features[part].tolist(), block.values[part].tolist(),
                )  # fmt: skip
    finally:
        parser_of_text.BLOCK_BYTES = before
    labels, names = vocabulary.label_names(), vocabulary.feature_names()
    found = {
        place: (labels.raw(y), weight, [names.raw(f) for f in ids], values)
        for place, (y, weight, ids, values) in rows.items()
    }
    return found, sum(bad.reasons.values())


def spelled(space, name):
    """A feature's name as the parser joins it."""
    if space:
        return space + b"^" + name
    return b"^" + name if b"^" in name else name


def by_plain(data, form):
    """What :func:`read` should return, by the plain parser."""
    rows, n_bad = {}, 0
    place = 3 if data.startswith(MARK_OF_ORDER) else 0
    for line in data[place:].split(b"\n"):
        blank = not plain.tokens(line)
        if not (blank or (form == "svmlight" and plain.tokens(line)[0].startswith(b"#"))):
            try:
                if CONTROL.search(line.split(b"#")[0] if form == "svmlight" else line):
                    raise plain.BadLine("a byte that no text has")
                label, weight, features = getattr(plain, form)(line)
                names = [spelled(space, name) for space, name, _ in features]
                values = [float(np.float32(value)) for _, _, value in features]
                rows[place] = (label, float(np.float32(weight)), names, values)
            except plain.BadLine:
                n_bad += 1
        place += len(line) + 1
    return rows, n_bad


def check_rows(path, data, form, block_bytes):
    """Hold the compiled parser to the plain one, or to itself."""
    path.write_bytes(data)
    try:
        found = read(path, form, block_bytes)
    except DataError as error:  # XMC text without its header, or with wrong counts
        found = str(error)
    wanted = by_plain(data, form) if form != "xmc" else by_itself(path, form)
    assert found == wanted


def by_itself(path, form):
    """What :func:`read` returns where all text is one block, or what it says."""
    try:
        return read(path, form, 1 << 20)
    except DataError as error:
        return str(error)


def check_zipped(path, data, harm, where):
    """Hold what a gzip file gives to what it holds, or see it refused."""
    whole = gzip.compress(data, 1, mtime=0)
    at = where % len(whole)
    harmed = {
        "none": whole,
        "cut": whole[:at],
        "flip": whole[:at] + bytes([whole[at] ^ (1 << where % 8)]) + whole[at + 1 :],
        "behind": whole + b"more",
        "zeros": whole + bytes(at),
        "twice": whole + whole,
    }[harm]
    wanted = {"none": data, "zeros": data, "twice": data + data}.get(harm)
    path.write_bytes(harmed)
    if not harmed.startswith(b"\x1f\x8b"):
        wanted = harmed  # text of its own
    try:
        found = read(path, "vw", 1 << 12)
    except DataError as error:
        if wanted is None and "gzip" in str(error):
            return
        raise
    # Some bytes of the header mean nothing: a flip there changes no row.
    assert found == by_plain(data if wanted is None else wanted, "vw")


def targets(path):
    """What is tried: a function of a hypothesis example, by name."""
    document = {form: st.tuples(st.lists(line, max_size=12), END) for form, line in LINES.items()}
    head = st.sampled_from(
        [b"", b"3 9 5\n", b"2 9 5\n", b"1 1 1\n", b"3 9\n", b"9" * 20 + b" 1 1\n"]
    )

    def rows_of(form):
        def run(parts, header, block):
            lines, end = parts
            data = (header if form == "xmc" else b"") + b"\n".join(lines) + end
            check_rows(path, data, form, block)

        return hypothesis.given(document[form], head, BLOCK)(run)

    def zipped(parts, harm, where):
        check_zipped(path, b"\n".join(parts[0]) + parts[1], harm, where)

    harms = st.sampled_from(["none", "cut", "flip", "behind", "zeros", "twice"])
    gz = hypothesis.given(document["vw"], harms, st.integers(0, 1 << 16))(zipped)
    return {**{form: rows_of(form) for form in LINES}, "gz": gz}


def run_round(name, seed, folder):
    """Try one target on many documents; in a process of its own."""
    how = hypothesis.settings(
        max_examples=ROUND, deadline=None, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    hypothesis.seed(seed)(how(targets(folder / "rows.txt")[name]))()


def tried(name, seed, folder):
    """How a round ended: ``passed``, or what was seen; its document is kept."""
    command = [
        sys.executable,
        "-m",
        "tests.campaigns.fuzz",
        "--round",
        name,
        str(seed),
        str(folder),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        outcome, said = "hung", ""
    else:
        if done.returncode == 0:
            return "passed"
        outcome, said = "crashed" if done.returncode < 0 else "wrong", done.stderr
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{name}-{seed}.txt").write_bytes((folder / "rows.txt").read_bytes())
    (KEPT / f"{name}-{seed}.log").write_text(said)
    print(f"{name} {seed}: {outcome}: {said[-2000:]}", flush=True)
    return outcome


def main():
    """Go round the targets until the time is up; print and write the counts."""
    arguments = parser(__doc__)
    arguments.add_argument("--minutes", type=float, default=60.0)
    arguments.add_argument("--seed", type=int, help="of the first round; random otherwise")
    arguments.add_argument("--round", nargs=3, metavar=("TARGET", "SEED", "FOLDER"))
    given = arguments.parse_args()
    if given.round:
        name, seed, folder = given.round
        run_round(name, int(seed), Path(folder))
        return
    seed = random.randrange(1 << 30) if given.seed is None else given.seed
    counts = {name: {"documents": 0, "passed": 0, "wrong": 0, "crashed": 0, "hung": 0}
              for name in (*LINES, "gz")}  # fmt: skip
    began, first = time.monotonic(), seed
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - began < 60 * given.minutes:
            for name, count in counts.items():
                count[tried(name, seed, Path(folder))] += 1
                count["documents"] += ROUND
            seed += 1
            figures = {
                "facts": facts("hypothesis"), "seed": first, "rounds": seed - first,
                "documents_a_round": ROUND, "minutes": (time.monotonic() - began) / 60,
                "targets": counts,
            }  # fmt: skip
            print(f"{figures['minutes']:.1f} min {counts}", flush=True)
            if given.json:
                report(figures, given.json)
    if any(count["passed"] * ROUND != count["documents"] for count in counts.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()

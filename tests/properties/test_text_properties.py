"""Properties of the text formats, by hypothesis: rows -> text -> rows, at every block size."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streammach.data.bad_rows import BadRows
from streammach.data.text import TextSource
from streammach.rows.vocabulary import Vocabulary

PROFILE = settings(
    max_examples=50, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
NAME = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_characters=":|^'\x7f"),
    min_size=1, max_size=20,
).filter(lambda name: not name[0].isdigit() and name.isprintable())  # fmt: skip
VALUE = st.floats(width=32, allow_nan=False, allow_infinity=False)
FEATURE = st.tuples(st.sampled_from(["", "w", "long namespace".replace(" ", "_")]), NAME, VALUE)
ROW = st.tuples(NAME, st.lists(FEATURE, max_size=8))


def read(path, form):
    """Rows in the order of the file: (label, [(name, value)])."""
    vocabulary = Vocabulary()
    out = []
    for block in TextSource(path, form).blocks(vocabulary, BadRows()):
        for i in range(block.n_rows):
            part = slice(block.indptr[i], block.indptr[i + 1])
            pairs = zip(block.features[part].tolist(), block.values[part].tolist(), strict=True)
            out.append((int(block.classes[i]), list(pairs)))
    labels, names = vocabulary.label_names(), vocabulary.feature_names()
    return [
        (labels.raw(y).decode(), [(names.raw(f).decode(), v) for f, v in row]) for y, row in out
    ]


@PROFILE
@given(rows=st.lists(ROW, min_size=1, max_size=20), block_bytes=st.integers(64, 4096))
def test_vw_rows_survive_printing_and_parsing(rows, block_bytes, tmp_path):
    import streammach.data.text as text

    lines = [
        label
        + " "
        + " ".join(f"|{space} {name}:{value!r}" for space, name, value in features)
        + ("" if features else "|")
        for label, features in rows
    ]
    path = tmp_path / "rows.vw"
    path.write_bytes("\n".join(lines).encode())
    before, text.BLOCK_BYTES = text.BLOCK_BYTES, block_bytes
    try:
        found = read(path, "vw")
    finally:
        text.BLOCK_BYTES = before
    wanted = [
        (
            label,
            [
                (f"{space}^{name}" if space else name, float(np.float32(value)))
                for space, name, value in features
            ],
        )
        for label, features in rows
    ]
    assert found == wanted


@PROFILE
@given(
    rows=st.lists(
        st.tuples(
            st.integers(-99, 10**12),
            st.dictionaries(st.integers(0, 10**18 - 1), VALUE, max_size=8),
        ),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_svmlight_rows_survive_printing_and_parsing(rows, tmp_path):
    path = tmp_path / "rows.svm"
    lines = [f"{y} " + " ".join(f"{f}:{v!r}" for f, v in x.items()) for y, x in rows]
    path.write_text("\n".join(lines))
    wanted = [(str(y), [(str(f), float(np.float32(v))) for f, v in x.items()]) for y, x in rows]
    assert read(path, "svmlight") == wanted

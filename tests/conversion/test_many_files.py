"""Many small files: what one takes is not multiplied."""

import pytest

from streammach.conversion.convert import convert
from streammach.inputs import source, text
from streammach.store.dataset import Dataset

ROW = "{} | f{} 2:0.5\n"


def files_of(folder, n):
    paths = [folder / f"{i:03}.vw" for i in range(n)]
    for i, path in enumerate(paths):
        path.write_text("".join(ROW.format(i + j, j) for j in range(5)))
    return paths


@pytest.mark.parametrize("threads", [1, 2])
def test_a_text_is_read_into_the_memory_of_the_one_before(threads, tmp_path, monkeypatch):
    made = []

    class Counted(text.TextBuffer):
        def __init__(self, n_bytes):
            made.append(n_bytes)
            super().__init__(n_bytes)

    monkeypatch.setattr(text, "TextBuffer", Counted)
    convert(files_of(tmp_path, 40), tmp_path / "store", threads=threads)
    assert 1 <= len(made) <= 4
    with Dataset.open(tmp_path / "store") as store:
        assert store.n_rows == 200


def test_a_file_is_looked_at_as_often_among_many_as_among_few(tmp_path, monkeypatch):
    looked, state_of = [], source.state_of

    def counted(path):
        looked.append(path)
        return state_of(path)

    monkeypatch.setattr(source, "state_of", counted)
    often = []
    for n in (10, 40):
        looked.clear()
        convert(files_of(tmp_path, n), tmp_path / f"store{n}", threads=1)
        often.append(len(looked) / n)
    assert often[1] <= often[0]

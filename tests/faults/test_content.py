"""Content that is hostile and has the right checksums: cases that were found."""

import h5py
import numpy as np
import pytest

from streammach import hashing
from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.model.model import Model
from streammach.model.size import size_in_file
from streammach.prediction.predictor import Predictor
from streammach.store.dataset import Dataset
from streammach.store.stored_arrays import BLOSC_HEADER, CRC_BYTES, INDEX_BYTES, add_checksum
from streammach.system.errors import DataError, StoreError
from tests.builders import dense_block
from tests.campaigns.content_models import Tensors
from tests.campaigns.content_stores import StoreFiles
from tests.campaigns.content_values import Files

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture
def files(tiny):
    return StoreFiles.of(tiny.store())


def refused(files, folder):
    files.seal()
    files.write(folder / "changed")
    with Dataset.open(folder / "changed") as data:
        return " ".join(data.verify(deep=True))


def test_names_of_features_are_verified(files, tmp_path):
    offsets = files.array("features/offsets").copy()
    offsets[3] = 10**6
    files.put_array("features/offsets", offsets)
    assert "the names of features are wrong" in refused(files, tmp_path)


@pytest.mark.parametrize("group", ["labels", "features"])
def test_a_name_that_is_there_twice_is_found(group, files, tmp_path):
    offsets = files.array(f"{group}/offsets")
    names = files.array(f"{group}/bytes").copy()
    lengths = np.diff(offsets)
    a = int(np.flatnonzero(lengths[:-1] == lengths[1:])[0])
    names[offsets[a] : offsets[a + 1]] = names[offsets[a + 1] : offsets[a + 2]]
    files.put_array(f"{group}/bytes", names)
    assert f"a name of {group} is there twice" in refused(files, tmp_path)


def test_rows_that_a_source_is_said_to_have_take_no_memory(files, tmp_path):
    document, said = files.root()
    said["source"][0]["rows"] = 2**47
    files.put("zarr.json", document)
    assert not refused(files, tmp_path)


def test_a_chunk_that_cannot_be_decoded_is_damage(files, tmp_path):
    body = bytearray(files.files["y/c/0"])
    size = int(np.frombuffer(body[-INDEX_BYTES:-4], "<u8")[1]) - CRC_BYTES
    flags, decoded, _, packed = BLOSC_HEADER.unpack_from(body)
    BLOSC_HEADER.pack_into(body, 0, flags, decoded, 2**32 - 1, packed)
    new = add_checksum(bytes(body[:size]))
    files.files["y/c/0"] = new + bytes(body[len(new) :])
    assert "damaged: chunk 0 cannot be decoded" in refused(files, tmp_path)


def test_an_array_that_is_longer_than_its_files_is_refused_when_opened(files, tmp_path):
    document = files.document("labels/bytes/zarr.json")
    document["shape"] = [2**40]
    files.put("labels/bytes/zarr.json", document)
    with pytest.raises(StoreError, match="labels/bytes has 1 files for 1,099,511,627,776 values"):
        refused(files, tmp_path)


def test_a_document_that_is_too_large_is_damage(files, tmp_path):
    files.files["y/zarr.json"] += b" " * 100_000
    with pytest.raises(StoreError, match=r"damaged: y/zarr.json: .* bytes, at most"):
        refused(files, tmp_path)


def test_codecs_that_are_no_list_are_damage(files, tmp_path):
    document = files.document("features/count/zarr.json")
    document["codecs"][0]["configuration"]["codecs"] = 10**30
    files.put("features/count/zarr.json", document)
    with pytest.raises(StoreError, match="features/count is not stored as this format stores it"):
        refused(files, tmp_path)


@pytest.fixture
def trained(tiny):
    x = np.random.default_rng(0).normal(size=(60, 4))
    store = tiny.dense_store("dense", x, np.arange(60) % 3)
    assert main(["train", str(store), "--out", str(tiny.folder / "run"), "--exact", "--epochs", "1",
                 "--learning-rate", "0.1", "--transform", "raw"]) == 0  # fmt: skip
    return tiny.folder / "run/model"


def test_a_model_without_one_of_its_arrays_is_damaged(trained, tmp_path, capsys):
    folder = Files.of(trained)
    tensors = Tensors(folder, "model.json")
    del tensors.header["label_offsets"], tensors.bodies["label_offsets"]
    tensors.close()
    folder.write(tmp_path / "m")
    with pytest.raises(ValueError, match="it has not the arrays that it should: label_offsets"):
        size_in_file(tmp_path / "m")


def test_scores_that_are_no_numbers_are_said(trained, tmp_path):
    folder = Files.of(trained)
    tensors = Tensors(folder, "model.json")
    tensors.put("weights", np.full_like(tensors.array("weights"), 3e38))
    tensors.close()
    folder.write(tmp_path / "m")
    rows = dense_block(np.array([[9.0, -9.0, 9.0, -9.0]], np.float32))
    with (
        Predictor(Model.load(tmp_path / "m"), threads=1) as predictor,
        np.errstate(all="ignore"),
        pytest.raises(DataError, match=r"scores of row 0 .* are no numbers"),
    ):
        predictor.topk(rows, 2)


def sparse_file(path, **changes):
    """An HDF5 file of compressed sparse rows that does not say its shape."""
    parts = {
        "indptr": np.array([0, 1, 2, 3, 4]), "indices": np.array([0, 1, 0, 5]),
        "data": np.ones(4, np.float32),
    }  # fmt: skip
    with h5py.File(path, "w") as file:
        for name, values in (parts | changes).items():
            file[f"X/{name}"] = values
        file["y"] = np.array([0, 1, 0, 1])
    return path


def test_rows_of_a_matrix_that_does_not_say_its_width_make_a_store(tmp_path):
    convert(sparse_file(tmp_path / "a.h5"), tmp_path / "o")
    with Dataset.open(tmp_path / "o") as data:
        assert not data.verify(deep=True)
        assert data.columns.n_columns == 0
    convert(tmp_path / "a.h5", tmp_path / "p", like=tmp_path / "o")
    with Dataset.open(tmp_path / "p") as data:
        assert data.nnz == 4


@pytest.mark.parametrize("name", ["indptr", "indices", "data"])
@pytest.mark.parametrize("shape", [(), (0,), (4, 1)])
def test_parts_of_sparse_rows_have_one_axis(name, shape, tmp_path):
    path = sparse_file(tmp_path / "a.h5", **{name: np.ones(shape, np.int32)})
    with pytest.raises(DataError):
        convert(path, tmp_path / "o")


def test_codes_without_a_sign_are_read(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["X"] = np.eye(4, dtype=np.float32)
        file["kind/codes"] = np.array([0, 1, 0, 1], np.uint64)
        file["kind/categories"] = np.array([b"a", b"b"])
    convert(path, tmp_path / "o")
    with Dataset.open(tmp_path / "o") as data:
        assert data.n_classes == 2


def test_an_odd_header_of_an_array_is_damage(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.eye(4, dtype=np.float32))
    body = path.read_bytes()
    path.write_bytes(body.replace(b"'shape': (4, 4), }", b"'shape': (4, 4, [ "))
    with pytest.raises(DataError, match="damaged or cut short"):
        convert(path, tmp_path / "o")


def test_classes_that_share_few_codes_are_counted_at_once():
    table = np.arange(300_000, dtype=np.uint8)[:, None] % 4
    assert hashing.count_collisions(table) == 4 * (75_000 * 74_999 // 2)


@pytest.mark.parametrize("seed", ["-1", str(2**63)])
def test_a_seed_that_cannot_be_is_refused(seed, tiny, capsys):
    made = ["train", str(tiny.store()), "--out", str(tiny.folder / "run"), "--buckets", "4",
            "--repetitions", "3", "--seed", seed]  # fmt: skip
    assert main(made) == 2
    assert "the seed is not an integer from 0 to 2^63 - 1" in capsys.readouterr().err

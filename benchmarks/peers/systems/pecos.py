"""PECOS XLinear: a tree of linear rankers over clusters of labels."""

import numpy as np

from benchmarks.peers.scaled import with_scaled
from benchmarks.peers.task import K, System, folder_bytes, tree_features

THRESHOLD, BEAM = 0.1, 10
SETTINGS = (
    f"PIFA clusters, C 1, threshold {THRESHOLD}, beam {BEAM}; (1 + ln value) idf or unit rows; "
    "its np.array(copy=False) read as NumPy 1 read it, since it fails with NumPy 2"
)


class OldNumPy:
    """NumPy, but for ``array(copy=False)``, which copies where it must, as before version 2."""

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def array(values, *, copy=True, **options):
        return np.array(values, copy=copy or None, **options)


def train(task, features=tree_features):
    import pecos.utils.smat_util
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    pecos.utils.smat_util.np = OldNumPy()
    x, y = features(task, task.x).sorted_indices(), task.labels
    with task.measured():
        labels = LabelEmbeddingFactory.create(y, x, method="pifa")
        tree = Indexer.gen(labels, indexer_type="hierarchicalkmeans")
        return XLinearModel.train(x, y, C=tree, threshold=THRESHOLD, threads=task.threads)


def predict(model, task, features=tree_features):
    x = features(task, task.x_test).sorted_indices()
    with task.measured("predict"):
        found = model.predict(x, beam_size=BEAM, only_topk=K, threads=task.threads)
    out = np.full((x.shape[0], K), -1, np.int64)
    for i in range(x.shape[0]):
        a, b = found.indptr[i], found.indptr[i + 1]
        order = np.argsort(-found.data[a:b], kind="stable")
        out[i, : b - a] = found.indices[a:b][order]
    return out


def size(model, task):
    model.save(str(task.folder / "pecos"))
    return folder_bytes(task.folder / "pecos")


XLINEAR = System("PECOS XLinear", "libpecos", SETTINGS, train, predict, size, lists=True)
SYSTEMS = {"pecos_xlinear": XLINEAR, "pecos_scaled": with_scaled(XLINEAR, "PECOS XLinear")}

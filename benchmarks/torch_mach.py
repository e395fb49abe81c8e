"""MACH in PyTorch: EmbeddingBag, cross entropy in each repetition, row-wise Adagrad."""

import numpy as np
import torch


class TorchMach:
    """R softmax models over B buckets, trained together; `codes` (K, R) are the classes' buckets.

    `rowwise` is one accumulator a feature and repetition; otherwise torch.optim.Adagrad has one a
    weight. `epsilon` is added to the sums of squares.
    """

    def __init__(
        self, n_features, n_buckets, n_repetitions, codes, threads,
        *, rate, smoothing, epsilon, rowwise=True,
    ):  # fmt: skip
        torch.set_num_threads(threads)
        self.shape, n_columns = (n_repetitions, n_buckets), n_repetitions * n_buckets
        self.rate, self.smoothing, self.epsilon = rate, smoothing, epsilon
        self.bag = torch.nn.EmbeddingBag(n_features, n_columns, mode="sum", sparse=True)
        torch.nn.init.zeros_(self.bag.weight)
        self.bias = torch.zeros(n_columns, requires_grad=True)
        self.codes = torch.from_numpy(codes.astype(np.int64))
        self.columns = self.codes + n_buckets * torch.arange(n_repetitions)
        self.sums = torch.zeros(n_features, n_repetitions) if rowwise else None
        parameters = [self.bias] if rowwise else [self.bag.weight, self.bias]
        self.optimizer = torch.optim.Adagrad(parameters, lr=rate, eps=1e-8)

    def logits(self, indptr, ids, values=None):
        """Return logits (n, R*B) of CSR rows; `values` float32, None where they are all 1."""
        weights = None if values is None else torch.from_numpy(values)
        ids = torch.from_numpy(ids.astype(np.int64))
        offsets = torch.from_numpy(indptr[:-1].astype(np.int64))
        return self.bag(ids, offsets, per_sample_weights=weights) + self.bias

    def step(self, indptr, ids, classes, values=None, scale=1.0):
        """Learn from a batch, at `scale` times the rate."""
        targets = self.codes[torch.from_numpy(classes.astype(np.int64))]
        loss = torch.nn.functional.cross_entropy(
            self.logits(indptr, ids, values).view(-1, self.shape[1]), targets.reshape(-1),
            reduction="sum", label_smoothing=self.smoothing,
        )  # fmt: skip
        self.bag.weight.grad = self.bias.grad = None
        loss.backward()
        if self.sums is not None:
            self._rowwise_update(scale)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * scale
        self.optimizer.step()

    def _rowwise_update(self, scale):
        gradient = self.bag.weight.grad.coalesce()
        ids, values = gradient.indices()[0], gradient.values().view(-1, *self.shape)
        with torch.no_grad():
            self.sums.index_add_(0, ids, values.square().sum(dim=2))
            step = scale * self.rate / torch.sqrt(self.sums[ids] + self.epsilon)
            change = (values * step[:, :, None]).view(len(ids), -1)
            self.bag.weight.index_add_(0, ids, change, alpha=-1.0)

    def topk(self, indptr, ids, k, values=None):
        """Return the best classes (n, k) of a block of rows by the sum of log probabilities."""
        with torch.no_grad():
            z = self.logits(indptr, ids, values).view(-1, *self.shape)
            logs = torch.log_softmax(z, dim=2).flatten(1).T.contiguous()
            scores = torch.nn.functional.embedding_bag(self.columns, logs, mode="sum")
            return scores.topk(k, dim=0).indices.T.numpy()

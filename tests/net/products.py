"""Files, stores and models of the net, made by commands; each once, when it is first asked for."""

import contextlib
import io
import json
from functools import cache

from streammach.cli.main import main
from tests.net.rows import SOURCES

N_ROWS, N_FEW_ROWS, N_TEST_ROWS = 1500, 400, 60
MACHINE = ["--threads", "1", "--memory", "4GB"]
CPU = [*MACHINE, "--device", "cpu", "--progress", "none", "--json"]
FIXED = "--linear off --epochs 2 --learning-rate 0.2 --transform binary"
DENSE = "--linear off --whitening off --fourier off --closed-form off --epochs 2"
MODELS = {  # a source and the options of a training
    "hashed": ("vw", f"{FIXED} --counts off --buckets 8 --repetitions 4 --model-size full"),
    "searched": ("vw", "--linear off --counts on --buckets 4 --repetitions 3"),
    "counts": ("svmlight", "--linear off --repetitions 0"),
    "exact": ("matrix", f"{FIXED} --counts off --exact"),
    "table": ("csv", f"{FIXED} --counts on --buckets 4 --repetitions 3 --model-size full"),
    "lists": ("vw lists", f"{FIXED} --counts on --buckets 4 --repetitions 3"),
    "lists of counts": ("xmc", "--linear off --repetitions 0"),
    "similar rows": ("xmc pairs", "--linear off --repetitions 0"),
    "closed form": ("dense", f"{DENSE} --closed-form on --exact"),
    "joint": ("dense", f"{DENSE} --whitening on --loss joint --buckets 6 --repetitions 4"),
    "linear": ("csv few", ""),
    "kernels": ("dense few", ""),
}
MORE = {  # models that are made of another one, and how
    "int8 weights": ("searched", "shrink"),
    "small enough": ("table", "shrink --size 30KB"),
    "small lists": ("lists of counts", "shrink --size 16KB"),
    "small linear": ("linear", "shrink --size 20KB"),
    "more classes": ("searched", "add new.vw"),
    "other labels": ("searched", "labels --rename names.tsv"),
}


class Products:
    """A folder with a file of each source, its store, and models that are trained on these."""

    def __init__(self, folder):
        self.folder = folder
        self.file, self.store, self.run = cache(self._file), cache(self._store), cache(self._run)

    def command(self, *words):
        """Run a command in the folder; return what it prints, read if that is JSON."""
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            assert main([str(word) for word in words]) == 0, words
        return json.loads(printed.getvalue()) if "--json" in words else printed.getvalue()

    def _file(self, name, *, test=False):
        """Return the name of a file of rows, and the option that names its labels."""
        source, stem = SOURCES[name], name.replace(" ", "-") + ("-test" if test else "")
        n_rows = N_TEST_ROWS if test else N_FEW_ROWS if "few" in name else N_ROWS
        source.write(source.draw(2 if test else 1, n_rows), self.folder / f"{stem}{source.ending}")
        labels = ["--labels", f"{stem}.labels"] if source.labels_beside else []
        return f"{stem}{source.ending}", labels

    def _store(self, name):
        """Return the name of a store and what its conversion prints."""
        source, out = SOURCES[name], f"{name.replace(' ', '-')}.zarr"
        file, labels = self.file(name, test=bool(source.beside))
        other = [source.beside, self.store("vw")[0]] if source.beside else []
        options = [*source.options.split(), *labels, *other, *MACHINE]
        return out, self.command("convert", file, out, *options, "--json")

    def _run(self, name):
        """Return the name of a run and what its training prints."""
        source, options = MODELS[name]
        out, cpu = f"run-{name.replace(' ', '-')}", CPU if "--exact" not in options else CPU[:2]
        words = [*options.split(), *cpu, *([] if cpu is CPU else CPU[4:])]
        return out, self.command("train", self.store(source)[0], "--out", out, *words)

    def test_file(self, name):
        """Return the name of a file of rows that a model was not trained on, and its labels'."""
        return self.file(MODELS[name][0], test=True)

    def predictions(self, model, file, *options):
        """Return the lines of a file of predictions."""
        self.command("predict", model, file, "--out", "out.jsonl", "--force", *CPU, *options)
        return [json.loads(line) for line in (self.folder / "out.jsonl").open()]

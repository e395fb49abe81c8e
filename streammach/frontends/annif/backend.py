"""What Annif calls: a project's corpus trains a model, which suggests subjects for documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import annif.backend
import msgspec
from annif import exception
from annif.backend.backend import AnnifLearningBackend
from annif.suggestion import SubjectSuggestion, SuggestionBatch
from annif.util import boolean

from streammach.model.model import Model
from streammach.system.errors import Interrupted, StreammachError, clean
from streammach.system.files.destinations import Destination, known_by_mark, not_regular
from streammach.system.files.raw_text import text_lines
from streammach.training.trainer import train

MODEL, ROWS = "streammach-model", "streammach-train.jsonl"  # in the folder of a project's data
MARK = '{"backend":"streammach",'  # what each of the rows begins with
Params = Mapping[str, Any]
# The code of a language, and its name in Snowball.
STEMS = """ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto
es:spanish et:estonian eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian
hy:armenian id:indonesian it:italian lt:lithuanian nb:norwegian ne:nepali nl:dutch nn:norwegian
no:norwegian pl:polish pt:portuguese ro:romanian ru:russian sr:serbian st:sesotho sv:swedish
ta:tamil tr:turkish yi:yiddish"""


class StreammachBackend(AnnifLearningBackend):  # type: ignore[misc]  # without types
    """A backend whose training keeps to a memory budget."""

    name = "streammach"
    DEFAULT_PARAMETERS: ClassVar = dict(memory="2GB", time=None, ngrams=2, names="yes")
    _model: Any = None

    def initialize(self, parallel: bool = False) -> None:
        """Load the model: once, before Annif starts processes."""
        if self._model is None:
            path = Path(self.datadir, MODEL)
            if not path.exists():
                raise self._error(exception.NotInitializedException, f"there is no model {path}")
            with self._report_errors():
                self._model = Model.load(path)

    def _train(self, corpus: Any, params: Params, jobs: int = 0) -> None:
        options = self._read_options(params, jobs)
        with self._report_errors():
            place = self._find_rows(kept=corpus == "cached")
            if corpus != "cached":
                place.write(self._encode_rows(corpus.documents))
            self._fit(place.path, options)

    def _learn(self, corpus: Any, params: Params) -> None:
        """Train anew, on the documents that were kept and on these, which then are, too."""
        options = self._read_options(params, 0)
        with self._report_errors():
            place = self._find_rows(kept=True)
            old = (line + b"\n" for lines in text_lines(place.path) for line in lines)
            with place.scratch() as both:
                Destination(both, not_regular).write(
                    chain(old, self._encode_rows(corpus.documents))
                )
                self._fit(both, options)
                place.take(both)

    def _find_rows(self, *, kept: bool) -> Destination:
        """Return the place of a project's rows; NotSupportedException without any, if `kept`."""
        path, ours = Path(self.datadir, ROWS), known_by_mark(MARK, "it has no rows of a project")
        if kept and not path.exists():
            raise self._error(exception.NotSupportedException, "no rows are kept: train first")
        return Destination(path, ours, force=True)

    def _fit(self, path: Path, options: Mapping[str, Any]) -> None:
        """Train on rows, and replace the project's model."""
        rows = (list(map(msgspec.json.decode, lines)) for lines in text_lines(path) if lines)
        with train(rows, "subjects", text="text", **options) as run:
            run.model.save(Path(self.datadir, MODEL), force=True)
        self._model = None

    def _suggest_batch(self, documents: Sequence[Any], params: Params) -> SuggestionBatch:
        k, subjects = self._read_number(params, "limit"), self.project.subjects
        rows = [{"text": one.text.encode("utf-8", "replace").decode()} for one in documents]
        with self._report_errors():
            labels, scores = self._model.predict_topk(rows, k, probabilities=True)
        found = list[list[SubjectSuggestion]]()
        for uris, values in zip(labels.tolist(), scores.tolist(), strict=True):
            ids = (subjects.by_uri(uri, warnings=False) for uri in uris)  # None of one that is gone
            pairs = zip(ids, values, strict=True)
            found.append([SubjectSuggestion(*pair) for pair in pairs if pair[0] is not None])
        return SuggestionBatch.from_sequence(found, subjects)

    def _read_options(self, params: Params, jobs: int) -> dict[str, Any]:
        """Return what a training is given beside its rows."""
        project, stems = self.project, dict(pair.split(":") for pair in STEMS.split())
        options = {
            "memory": params["memory"], "time": params["time"] or None, "threads": jobs or None,
            "ngrams": self._read_number(params, "ngrams"),
            "language": stems.get(project.language.lower().split("-")[0]),
        }  # fmt: skip
        if boolean(params["names"]):
            names = {s.uri: s.labels.get(project.vocab_lang) for _, s in project.subjects.active}
            options["label_names"] = {uri: name for uri, name in names.items() if name} or None
        return options

    def _read_number(self, params: Params, name: str) -> int:
        try:
            return int(params[name])
        except ValueError:
            what = f"'{clean(params[name], 60)}' is no whole number: {name}"
            raise self._error(exception.ConfigurationException, what) from None

    def _encode_rows(self, documents: Iterable[Any]) -> Iterator[bytes]:
        """Yield a line for each document with subjects; NotSupportedException if none has any."""
        subjects, row = self.project.subjects, b""
        for document in documents:
            uris = sorted(subjects[i].uri for i in document.subject_set)
            if uris:
                text = document.text.encode("utf-8", "replace").decode()  # without half characters
                row = msgspec.json.encode({"backend": self.name, "text": text, "subjects": uris})
                yield row + b"\n"
        if not row:
            raise self._error(exception.NotSupportedException, "no document has a known subject")

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Have Annif show errors of streammach: each is one line."""
        try:
            yield
        except Interrupted:
            raise
        except StreammachError as error:
            raise self._error(exception.OperationFailedException, str(error)) from error

    def _error(self, kind: type[exception.AnnifException], what: str) -> exception.AnnifException:
        return kind(what, backend_id=self.backend_id)


def register() -> None:
    """Add the backend to those of Annif: a server does it before it makes Annif's application."""
    annif.backend._backend_fns[StreammachBackend.name] = lambda: StreammachBackend

"""All cases: crosses of what is asked and of what it is asked of. A new kind is one more line."""

from tests.net import questions as ask
from tests.net.products import MODELS, MORE
from tests.net.rows import SOURCES

CROSSES = [
    ([ask.store_content], SOURCES),
    ([ask.store_reports], ["vw lists", "vw bad rows", "vw extended", "csv", "dense"]),
    ([ask.plan_of], ["vw", "dense"]),
    ([ask.model_arrays], MODELS),
    ([ask.training], ["searched", "lists", "joint", "linear"]),
    ([ask.predictions, ask.evaluation], MODELS),
    ([ask.explanations, ask.some_labels],
     ["hashed", "table", "lists", "similar rows", "closed form", "linear", "kernels"]),
    ([ask.changed_model], MORE),
    ([ask.suspects], ["vw", "vw lists"]),
    ([ask.estimator],
     ["texts few", "frame", "sparse", "sparse lists", "sparse passes", "dense few"]),
    ([ask.metrics], ["labels", "lists"]),
]  # fmt: skip
CASES = {
    f"{question.__name__}: {name}": (question, name)
    for questions, names in CROSSES for question in questions for name in names
}  # fmt: skip
OF_THE_PROCESSOR = {"model_arrays"}  # bits that another processor or library rounds otherwise
# A row to whose label a model gives next to no probability has a log loss of rounding alone.
NUMBERS_OF_THE_PROCESSOR = {"evaluation: searched": ["log_loss"]}

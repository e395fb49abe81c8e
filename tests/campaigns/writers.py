"""Every command that writes, and those that only read, as they are tried."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TRAIN = ("--buckets", "5", "--repetitions", "3", "--epochs", "1", "--learning-rate", "0.5",
         "--transform", "binary", "--threads", "1")  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command that writes, and what it reads."""

    name: str  # what the table calls it
    arguments: Callable[[str], list[str]]  # given the destination
    sources: tuple[str, ...]  # what it reads, within the folder of the trial
    goal: str  # where it writes
    free: bool = True  # whether the destination is named; else it follows from what is read
    again: str | None = "--force"  # the option to replace an earlier result, or to go on with it
    fills: bool = False  # whether it fills a folder, which may be reached by a link


def _trained(name, source, *more):
    return lambda goal: [name, source, "--out", goal, *TRAIN, *more]


def _without(suffix, arguments):
    """Name the store whose list of rows left out has the name that is looked at."""
    return lambda goal: arguments(goal.removesuffix(suffix))


STORE, RUN, PART, TEXT = "in/train.zarr", "in/run", "in/part", "in/a.vw"
MODEL_FILE = "in/run/model/model.json"
SYNTHETIC = ["--rows", "60", "--classes", "5", "--features", "6200", "--test-rows", "20"]
REJECTS = ".rejects.tsv"
COMMANDS = (
    Command("convert", lambda goal: ["convert", TEXT, goal], (TEXT,), "out/goal.zarr"),
    Command("convert two", lambda goal: ["convert", TEXT, "in/b.vw", goal], (TEXT, "in/b.vw"),
            "out/goal.zarr"),
    Command("convert --like", lambda goal: ["convert", "in/b.vw", goal, "--like", STORE],
            (STORE, "in/b.vw"), "out/goal.zarr"),
    Command("convert: rejects", _without(REJECTS, lambda goal: [
        "convert", f"in/bad{REJECTS}", goal, "--format", "vw", "--on-bad-row", "skip"]),
            (f"in/bad{REJECTS}",), f"out/goal{REJECTS}"),
    Command("train", _trained("train", STORE), (STORE,), "out/goal", again="--resume",
            fills=True),
    Command("fit", _trained("fit", TEXT), (TEXT,), "out/goal", again="--resume",
            fills=True),
    Command("train --part", _trained("train", STORE, "--part", "1/1"), (STORE,), "out/goal",
            again="--resume", fills=True),
    Command("merge", lambda goal: ["merge", goal, PART], (PART,), "out/goal", again="--resume",
            fills=True),
    Command("shrink", lambda goal: ["shrink", RUN, "--out", goal, "--on", STORE],
            (RUN, "in/run/model", STORE), "out/goal"),
    Command("predict", lambda goal: ["predict", RUN, TEXT, "--out", goal],
            (TEXT, RUN, MODEL_FILE, "in/run/plan.json"), "out/goal.tsv"),
    Command("report", lambda goal: ["report", RUN, "--on", STORE, "--out", goal],
            (RUN, MODEL_FILE, "in/run/plan.json", STORE, f"{STORE}/zarr.json"), "out/goal.html"),
    Command("report: own name", lambda _: ["report", RUN], (RUN,), f"{RUN}/report.html",
            free=False),
    Command("demo", lambda goal: ["demo", "--folder", goal], ("in/library",), "out/goal",
            fills=True),
    Command("make_synthetic: vw", lambda goal: [
        "tools/make_synthetic.py", "odp", goal, "--format", "vw", *SYNTHETIC], (),
            "out/goal.vw.gz"),
    Command("make_synthetic: test", lambda goal: [
        "tools/make_synthetic.py", "odp", "out/first.vw", "--test", goal, "--format", "vw",
        *SYNTHETIC], (), "out/goal.vw"),
    Command("convert_odp", lambda goal: [
        "tools/convert_odp.py", "in/odp", "--sample", "--out", str(Path(goal).parent)],
            ("in/odp/odp_train.vw.gz",), "out/odp_train.zarr", free=False),
    Command("convert_odp: test", lambda goal: [
        "tools/convert_odp.py", "in/odp", "--sample", "--out", str(Path(goal).parent)],
            ("in/odp/odp_test.vw.gz",), "out/odp_test.zarr", free=False),
)  # fmt: skip
READERS = (  # these write nothing at all
    ("explore", TEXT), ("verify", STORE, "--deep"), ("info", RUN), ("info", STORE),
    ("evaluate", RUN, STORE), ("plan", STORE), ("predict", RUN, TEXT),
)  # fmt: skip

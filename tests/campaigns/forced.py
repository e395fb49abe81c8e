"""Commands that replace what was made before, and are killed: the former result stays or the new.

A command is a line of COMMANDS. What it replaces was made by the command `former`.
"""

import hashlib
import os
import resource
import shutil
import sys
from dataclasses import dataclass

import numpy as np

from streammach.cli.main import main
from tests.campaigns.operations import KilledAt, Operations
from tests.campaigns.trials import MOST_ADDRESSES, Failed, Fork, Verdict, files_of, spread

HUNG_SECONDS = 180.0
N_ROWS, N_CLASSES = 300, 12
SURE = ("--buckets", "5", "--repetitions", "2", "--learning-rate", "0.5", "--transform", "binary",
        "--threads", "1")  # fmt: skip
BEFORE, BEHIND = 12, 40  # operations around the moment at which the new result takes the place


@dataclass(frozen=True)
class Command:
    """A command that replaces something, without the option --force."""

    arguments: tuple[str, ...]
    former: tuple[str, ...]  # what made that which is replaced
    goal: str  # where it is, within the folder
    is_model: bool = False  # whether it answers
    resumes: bool = False  # whether --resume goes on with it when it was killed


def _trained(name, source, *epochs):
    return tuple((name, source, "--out", "goal", *SURE, "--epochs", n) for n in epochs)


COMMANDS = {
    "train": Command(*_trained("train", "a.zarr", "2", "1"), "goal", True, True),
    "train, in another run": Command(
        *_trained("train", "goal/train.zarr", "2"), *_trained("fit", "a.vw", "1"), "goal", True,
        True,
    ),
    "fit": Command(*_trained("fit", "a.vw", "2", "1"), "goal", True, True),
    "fit of other rows": Command(
        *_trained("fit", "b.vw", "1"), *_trained("fit", "a.vw", "1"), "goal", True
    ),
    "convert": Command(("convert", "b.vw", "goal"), ("convert", "a.vw", "goal"), "goal"),
    "labels": Command(("labels", "run", "--rename", "names.tsv", "--out", "goal"),
                      ("labels", "run", "--rename", "more.tsv", "--out", "goal"), "goal", True),
    "shrink": Command(("shrink", "run", "--out", "goal", "--min-count", "3"),
                      ("shrink", "run", "--out", "goal", "--min-count", "2"), "goal", True),
    "add": Command(("add", "run", "c.vw", "--out", "goal"), ("add", "run", "b.vw", "--out", "goal"),
                   "goal", True),
    "predict": Command(("predict", "run", "b.vw", "--out", "goal"),
                       ("predict", "run", "a.vw", "--out", "goal"), "goal"),
    "report": Command(("report", "run", "--out", "goal"), ("report", "run", "--out", "goal"),
                      "goal"),
}  # fmt: skip
NAMES = [*COMMANDS, *["train", "fit", "train, in another run"]]  # these more often


class Forced:
    """What the commands read, and what each does undisturbed; `seed` decides the rows."""

    def __init__(self, folder, seed):
        self.folder, self._done = folder, {}
        self.rows = folder / "rows"
        self.rows.mkdir()
        rng = np.random.default_rng([seed, 7])
        for name, more in (("a.vw", 0), ("b.vw", 1), ("c.vw", 2)):
            (self.rows / name).write_text("\n".join(_lines(rng, N_CLASSES + more)))
        (self.rows / "names.tsv").write_text("class-1\tone\n")
        (self.rows / "more.tsv").write_text("class-1\tfirst\n")
        for command in (("convert", "a.vw", "a.zarr"),
                        ("train", "a.zarr", "--out", "run", *SURE, "--epochs", "1")):  # fmt: skip
            self._sure(self.rows, command)

    def undisturbed(self, name):
        """Return the folder before, what it answers, the same of the new result, its operations."""
        if name not in self._done:
            command, before = COMMANDS[name], self.folder / f"before {len(self._done)}"
            shutil.copytree(self.rows, before)
            self._sure(before, command.former)
            after = self.folder / "after"
            shutil.copytree(before, after)
            operations = self.end(after, (*command.arguments, "--force"), Operations())
            if operations["code"]:
                raise Failed("crashed", f"{name}, undisturbed: {operations['err']}")
            self._done[name] = (
                before, self.result(before, command), self.result(after, command),
                operations["names"], sorted(p.name for p in (after / "goal").glob("*")),
                sorted(p.name for p in after.iterdir()),
            )  # fmt: skip
            shutil.rmtree(after)
        return self._done[name]

    def _sure(self, where, command):
        answer = self.end(where, command)
        if answer["code"]:
            raise Failed("crashed", f"{command}: {answer['err']}")

    def end(self, where, command, operations=None):
        """Do a command in a process of its own; return what it answered, None where it died."""
        said = where.with_name("said.txt")

        def work(tell):
            resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
            os.chdir(where)
            with open(said, "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                sys.stdout = sys.stderr = file
                if operations is not None:
                    operations.install()
                code = main([*command])
            names = [] if operations is None else operations.names
            tell({"code": code, "names": names})

        child = Fork(work)
        code = child.end(HUNG_SECONDS)
        if code is None:
            raise Failed("hung", f"{command}: no end after {HUNG_SECONDS:.0f} seconds")
        if code < 0:
            return None
        answer = child.told[-1]
        return {"err": answer.get("crash", said.read_text()), "code": 1, "names": [], **answer}

    def result(self, where, command):
        """Return what stands at a command's goal: the answers of a model, else its bytes."""
        goal = where / command.goal
        if not command.is_model:
            return files_of(goal) if goal.is_dir() else {"": goal.read_bytes()}
        model = goal / "model" if (goal / "model").is_dir() else goal
        answer = self.end(where, ("predict", command.goal, "b.vw", "--out", "../answers.tsv"))
        answers = where.with_name("answers.tsv")
        if answer["code"]:
            raise Failed("lost", f"it does not answer: {answer['err']}")
        said = answers.read_bytes()
        answers.unlink()
        return {"said": said, **{name: hashlib.sha256(data).hexdigest()
                                 for name, data in files_of(model).items()}}  # fmt: skip


def killed(work, rng, trial):
    """Kill before an operation, or in the middle of a write; then give the command again."""
    name = NAMES[trial % len(NAMES)]
    command = COMMANDS[name]
    before, old, new, names, inside, beside = work.undisturbed(name)
    where = work.folder / "killed"
    shutil.copytree(before, where)
    moments = [k for k, one in enumerate(names) if one == "exchange"] or [len(names) - 1]
    first, last = max(moments[0] - BEFORE, 0), min(moments[-1] + BEHIND, len(names))
    number = trial // len(NAMES)
    at = first + spread(number // 2, last - first) if number % 2 else spread(number, len(names))
    facts = {"kills": 1, "old": 0, "new": 0, "resumed": 0}
    if work.end(where, (*command.arguments, "--force"), KilledAt(at)) is not None:
        facts["kills"] = 0
    what = f"{name}, killed at {at} of {len(names)} ({names[at]})"
    there = work.result(where, command)
    if there not in (old, new):
        raise Failed("silent_wrong", f"{what}: it is neither the former result nor the new one")
    facts["old" if there == old else "new"] = 1
    # What is not begun yet is begun anew.
    resumes = command.resumes and (where / "goal/next/streammach.json").exists()
    again = "--resume" if resumes and rng.integers(2) else "--force"
    answer = work.end(where, (*command.arguments, again))
    if answer["code"]:
        raise Failed("crashed", f"{what}, then {again}: {answer['err']}")
    facts["resumed"] = int(again == "--resume")
    if work.result(where, command) != new:
        raise Failed("silent_wrong", f"{what}, then {again}: another result")
    found = sorted(p.name for p in (where / "goal").glob("*"))
    if found != inside or sorted(p.name for p in where.iterdir()) != beside:
        raise Failed("leaked", f"{what}, then {again}: {found}, {sorted(os.listdir(where))}")
    return Verdict(facts=facts)


def _lines(rng, n_classes):
    """Return VW rows whose classes can be told from their features."""
    for row in range(N_ROWS):
        y = int(rng.integers(n_classes)) if row >= n_classes else row
        noise = " ".join(f"noise{j}" for j in rng.choice(20, 3, replace=False))
        yield f"class-{y} |w own{y}_{rng.integers(3)} pair{y // 2} |x {noise}"

"""Every message of an error, joined with what to do: sentences, each once, each with one stop.

The messages are read from the source: what is filled in stands as a word. Names that a function
assigns, constants of any module and what callers of a function give it are followed.
"""

import ast
import functools
import itertools
import re

import pytest

from streammach.cli.main import main
from streammach.inputs.matrices.matrix_layout import list_names
from streammach.inputs.tables.guess import some_of
from streammach.system import errors
from streammach.system.errors import StreammachError, join_sentences
from tests.system.test_errors import KINDS, parsed_package

WORD = "X"  # what is filled in
MOST, DEPTH = 8, 7  # texts that one expression may be, and how far it is followed
ERRORS = {kind.__name__ for kind in KINDS}
# What no line may have. A fault that is found is a line more.
FAULTS = {
    "two stops": r"(?<!\.)\.\.(?!\.)|[!?]\.",
    "a stop behind a blank": r"[^ ] +\.(?= |$)|[^ ] [,;:!](?= |$)",
    "nothing filled in": r"(?<!\w)\(\)|''|[:,] *\.(?= |$)|: *$",
    "two blanks": r"  ",
    "no stop at the end of what to do": r"\. [A-Z][^.`:\[]*[a-z]$",
}


class Texts:
    """What an expression of the package may be, as texts."""

    def __init__(self):
        self.constants, self.calls, self.parents, self.full = {}, {}, {}, []
        self.own = functools.cache(self.own)
        self.function = functools.cache(self.function)
        for tree in parsed_package().values():
            for node in tree.body:
                for name, value in assigned(node):
                    self.constants.setdefault(name, []).append(value)
            for node in ast.walk(tree):
                for child in ast.iter_child_nodes(node):
                    self.parents[child] = node
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "id", getattr(node.func, "attr", None))
                    self.calls.setdefault(name, []).append(node)

    def function(self, node):
        while node is not None and not isinstance(node, ast.FunctionDef):
            node = self.parents.get(node)
        return node

    def of(self, node, seen=()):
        """All texts that a node may be, None among them; each fill is a word."""
        if node in seen or len(seen) > DEPTH:
            return [WORD]
        seen = (*seen, node)
        if isinstance(node, ast.Constant):
            return [node.value if isinstance(node.value, str | None.__class__) else WORD]
        if isinstance(node, ast.JoinedStr):
            return self.product(node.values, seen)
        if isinstance(node, ast.FormattedValue):
            plain = isinstance(node.value, ast.Name | ast.IfExp | ast.JoinedStr)
            found = self.of(node.value, seen) if plain and node.format_spec is None else [WORD]
            return [text for text in found if text is not None] or [WORD]
        if isinstance(node, ast.IfExp):
            tested = getattr(node.test, "id", None)  # which is not empty where it is said
            self.full.append(tested)
            some = self.of(node.body, seen)
            self.full.pop()
            return some + self.of(node.orelse, seen)
        if isinstance(node, ast.BoolOp):
            return [text for value in node.values for text in self.of(value, seen)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.product([node.left, node.right], seen)
        if isinstance(node, ast.Name):
            return self.named(node, seen)
        return [WORD]

    def product(self, nodes, seen):
        parts = [[t for t in self.of(node, seen) if t is not None] or [WORD] for node in nodes]
        return ["".join(some) for some in itertools.islice(itertools.product(*parts), MOST)]

    def named(self, node, seen):
        function = self.function(node)
        own = [] if function is None else self.own(function).get(node.id, [])
        found = [value for value in own if value.lineno <= node.lineno]
        # What is empty at first is looked at before it is said.
        found = [value for value in found if getattr(value, "value", WORD) != ""] or found
        if function is not None and node.id in self.grows(function):
            return [f"{text}{WORD}" for value in found for text in self.of(value, seen)][:MOST]
        if not found and function is not None:
            names = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
            if node.id in names:
                return self.given(function, names, node.id, seen)
        found = found or self.constants.get(node.id, [])
        some = [text for value in found for text in self.of(value, seen)][:MOST]
        return [text for text in some if text or node.id not in self.full] or [WORD]

    def own(self, function):
        """What a function assigns, by name."""
        found = {}
        for inner in ast.walk(function):
            for name, value in assigned(inner):
                found.setdefault(name, []).append(value)
        return found

    def grows(self, function):
        """Names that a function adds something to."""
        added = (node.target for node in ast.walk(function) if isinstance(node, ast.AugAssign))
        return {target.id for target in added if isinstance(target, ast.Name)}

    def given(self, function, names, name, seen):
        """What callers give a function for a parameter, or its default."""
        found = []
        own = names[names[0] in ("self", "cls") :]
        for call in self.calls.get(function.name, ())[:MOST]:
            value = argument(call, name, own.index(name) if name in own else None)
            found += [WORD] if value is None else self.of(value, seen)
        return found[:MOST] or [WORD]


def assigned(node):
    """Yield names that a statement assigns, and the expressions."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, other in zip(target.elts, value.elts, strict=False):
                if isinstance(one, ast.Name):
                    yield one.id, other
    elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
        yield node.target.id, node.value


def argument(call, name, place):
    """The expression that a call gives for a parameter, None without one."""
    for one in call.keywords:
        if one.arg == name:
            return one.value
    return call.args[place] if place is not None and place < len(call.args) else None


texts_of_the_package = functools.cache(Texts)


@functools.cache
def lines():
    """Return every line that an error of the package may be, and where it stands."""
    return [*find_lines(texts_of_the_package())]


def find_lines(texts):
    for path, tree in parsed_package().items():
        for node in ast.walk(tree):
            named = getattr(getattr(node, "func", None), "id", None)
            if not isinstance(node, ast.Call) or named not in ERRORS:
                continue
            message, hint = argument(node, "message", 0), argument(node, "hint", None)
            where = WORD if argument(node, "path", None) is not None else None
            for said in texts.of(message):
                for what in [None] if hint is None else texts.of(hint):
                    error = StreammachError(said or WORD, path=where, hint=what)
                    yield f"{path}:{node.lineno}", error


def test_there_are_many():
    assert len({place for place, _ in lines()}) > 400
    assert len({error.as_command() for _, error in lines()}) > 500


@pytest.mark.parametrize("fault", FAULTS)
def test_no_line_of_an_error_has_a_fault(fault):
    wrong = {place: error.as_command() for place, error in lines()
             if re.search(FAULTS[fault], error.as_command())}  # fmt: skip
    assert wrong == {}


def test_no_message_ends_as_a_sentence_and_says_what_to_do_twice():
    for place, error in lines():
        assert not re.search(r"[^.]\.$", error.message), f"{place}: {error.message}"
        said = re.split(r"(?<=\w)[.;] ", error.as_command())
        assert len(said) == len({*said} - {WORD}) + said.count(WORD), f"{place}: {said}"


@pytest.mark.parametrize(
    ("text", "hint", "wanted"),
    [("it is full", "Wait.", "it is full. Wait."), ("it is full.", "Wait.", "it is full. Wait."),
     ("a...", "Wait.", "a.... Wait."), ("is it?", "Wait.", "is it? Wait."), ("a", None, "a"),
     ("a", "", "a"), ("a: ..", "Wait.", "a: .. Wait.")],
)  # fmt: skip
def test_both_are_joined_in_one_place(text, hint, wanted):
    assert join_sentences(text, hint) == wanted
    assert errors.UsageError(text, hint=hint).as_command() == wanted


def test_no_number_is_printed_as_minus_zero():
    """Every number with places is made with ``z``, by which what rounds to zero has no sign."""
    wrong = []
    for path, tree in parsed_package().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                said = texts_of_the_package().of(node.format_spec)[0]
                if re.search(r"\.\w+[fg%]$", said) and "z" not in said:
                    wrong.append(f"{path}:{node.lineno}: {said}")
    assert wrong == []
    assert f"{-1e-9:z.3f} {-0.0:+z.3g} {-1e-9:z.1%} {-2.5:z.1f}" == "0.000 +0 0.0% -2.5"


@pytest.mark.parametrize("said", [some_of([]), list_names(set())])
def test_no_list_of_nothing_is_filled_in(said):
    assert said == "none"


def test_what_is_damaged_is_said_with_one_thing_to_do(tiny, capsys):
    store = tiny.store(n_rows=60, n_classes=5)
    for path in sorted(store.rglob("*")):
        if path.is_file() and "features" in path.parts:
            path.write_bytes(path.read_bytes()[:-3] + b"abc")
    assert main(["verify", str(store), "--deep"]) == 4
    line = capsys.readouterr().err
    assert ".." not in line
    assert line.count("again.") == 1

"""How errors speak: as a command to its user, as functions to theirs."""

import ast
import copyreg
import functools
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streammach as sm
from streammach.cli.main import main
from streammach.parts.switches import SWITCHES
from streammach.system import errors
from streammach.system.errors import (
    OPTION,
    BudgetError,
    StreammachError,
    UsageError,
    clean,
    name_parameters,
    without_secrets,
)
from streammach.system.files.urls import locate

PACKAGE = Path(sm.__file__).parent


@functools.cache
def parsed_package():
    """Return the syntax tree of each file of the package, by its path there."""
    return {
        path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")
    }


def test_settings_are_named_as_parameters_in_python_and_as_options_by_commands():
    error = BudgetError(
        "nothing fits", path="--hold-out-by", hint="Use --memory 480MB or more, or --force."
    )
    assert str(error) == "nothing fits: hold_out_by. Use memory 480MB or more, or force=True."
    assert error.as_command() == (
        "nothing fits: --hold-out-by. Use --memory 480MB or more, or --force."
    )


@pytest.mark.parametrize("text", ["a--b.vw", "run---memory", "x --memory=1GB", "--", "-- ", "--9"])
def test_what_is_no_option_stays(text):
    assert str(StreammachError(text)) == text


def test_functions_name_their_own_parameters(tmp_path):
    (tmp_path / "a.vw").write_text("1 | a\n")
    with pytest.raises(UsageError, match="beside on_bad_row skip: max_bad"):
        sm.convert(tmp_path / "a.vw", tmp_path / "a.zarr", max_bad=3)
    sm.convert(tmp_path / "a.vw", tmp_path / "a.zarr")
    with pytest.raises(UsageError, match=r"Use force=True to replace it"):
        sm.convert(tmp_path / "a.vw", tmp_path / "a.zarr")
    with pytest.raises(UsageError, match=r"^n_buckets and n_repetitions are given together"):
        sm.plan(tmp_path / "a.zarr", n_buckets=4)
    with pytest.raises(UsageError, match=r"^exact=True excludes memory, n_buckets and n_rep"):
        sm.plan(tmp_path / "a.zarr", exact=True, memory="1GB")


def test_commands_name_their_own_options(tmp_path, capsys):
    (tmp_path / "a.vw").write_text("1 | a\n")
    given = ["convert", str(tmp_path / "a.vw"), str(tmp_path / "a.zarr"), "--max-bad", "3"]
    assert main(given) == 2
    assert "beside --on-bad-row skip: --max-bad" in capsys.readouterr().err
    assert main([*given[:-2], "--json"]) == 0
    capsys.readouterr()
    assert main([*given[:-2], "--json"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["hint"].startswith("Use --force to replace it")
    assert main(["shrink"]) == 2
    assert ".." not in capsys.readouterr().err


def parameters():
    """Every name of a parameter of the package's functions, of functions, and of fields."""
    functions = [node for tree in parsed_package().values() for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef)]  # fmt: skip
    names = {function.name for function in functions}
    for function in functions:
        given = function.args
        names |= {one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs]}
    for tree in parsed_package().values():
        fields = (node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
        names |= {field.target.id for field in fields if isinstance(field.target, ast.Name)}
    return names | {switch.option for switch in SWITCHES.values()}


def test_all_settings_that_lower_floors_name_are_parameters():
    known = parameters()
    for path, tree in parsed_package().items():
        if path.parts[0] in ("cli", "demo.py", "frontends"):  # they speak of commands
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            for option in OPTION.finditer(node.value):
                name = name_parameters(option[0]).partition("=")[0]
                assert name in known, f"{path}:{node.lineno}: {option[0]}"


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, StreammachError)
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_dask", [False, True])
def test_errors_are_sent_to_other_processes_as_they_are(kind, by_dask, monkeypatch):
    if by_dask:  # which has a library pickle the errors that were defined before it was imported
        pickling = pytest.importorskip("tblib.pickling_support")
        monkeypatch.setitem(copyreg.dispatch_table, kind, pickling.pickle_exception)
    error = kind("no room", path=Path("a b"), line=3, byte=4, hint="Give --memory.")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert vars(found) == vars(error)
    assert str(found) == str(error)
    assert found.as_command() == "no room: a b line 3 byte 4. Give --memory."


SECRET = "w0rd"
SCHEMES = ["s3", "gs", "http", "https", "HTTPS", "s3a", "ftp", "file", "abfs+x"]
URLS = ["user:{}@host/a", "{}@host/a", "host/a?sig={}", "host/a#sig={}", "host/a?{}", "u:p@h?x={}"]
DOORS = [
    lambda url: StreammachError("there is no such store", path=url),
    lambda url: StreammachError("there is no such store", path=Path(url)),
    lambda url: StreammachError("there is no such store", path=clean(url, 300)),
    lambda url: StreammachError(f"cannot read '{url}'", hint=f"Copy {url} again."),
    lambda url: UsageError(clean(f"Path '{url}' does not exist", 300)),
]
ANY = st.text(max_size=400).filter(lambda text: SECRET not in text)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SCHEMES), st.sampled_from(URLS), ANY, ANY, st.sampled_from(DOORS))
def test_no_message_holds_a_password_of_any_characters(scheme, url, before, after, door):
    text = f"{scheme}://{url.format(before + SECRET + after)}"
    error = door(text)
    said = [f"{error!r} {error} {error.as_command()} {error.message} {error.path}"]
    try:
        locate(text)
    except UsageError as refused:
        said.append(f"{refused!r} {refused}")
    assert SECRET not in "".join(said)


@pytest.mark.parametrize(("text", "shown"), [
    ("https://user:p@ss:w0rd@127.0.0.1:1/a.zarr", "https://***@127.0.0.1:1/a.zarr"),
    ("https://u:w0rd pw@h/a", "https://***@h/a"), ("HTTPS://u:w0rd@h/a", "HTTPS://***@h/a"),
    ("ftp:/u:p?w@h/a", "ftp:/***"), ("s3://b/a?X-Sig=w0rd", "s3://b/a?***"),
    ("https://h/a#sig=w0rd", "https://h/a#***"), ("https://d-nb.info/4#x", "https://d-nb.info/4#x"),
    ("a@b: what? s3://b/a", "a@b: what? s3://b/a"),
])  # fmt: skip
def test_the_rest_of_a_url_is_shown(text, shown):
    assert without_secrets(text) == shown


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("url", URLS)
def test_no_command_says_a_password(scheme, url, capsys):
    for secret in ("w0rd", "p@ss:w0rd", "w0rd pw", "a/w0rd?b#c"):
        assert main(["info", f"{scheme}://{url.format(secret)}", "--json"]) != 0
        assert SECRET not in "".join(capsys.readouterr())

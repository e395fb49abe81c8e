"""Machine code that is kept: when it is the same kernel's, and when it is compiled."""

import numpy as np
import pytest

from streammach.backends.cuda import decode, kernels, launcher
from streammach.backends.cuda.shapes import decode_shape, launch_shape
from streammach.spec.estimators import MEDIAN
from streammach.spec.optimizers import ADAGRAD, ADAM

WANTED = (((True, "float32"), (False, "int64")), (32, 4), (9, 0))


def made(number, other):
    """A kernel that holds a number and a function."""

    def kernel(values, n):
        values[n] = number + other(n)

    return kernel


NUMBER = 4


def names_a_number(values):
    """A kernel that names a number of its module."""
    values[0] = NUMBER


def one(x):
    return x + 1


def two(x):
    return x + 2


def test_kernels_are_told_apart_by_what_they_were_made_for():
    first = launcher.identity(made(1, one))
    assert first == launcher.identity(made(1, one))
    others = [made(2, one), made(1.0, one), made(np.float32(1), one), made(True, one), made(1, two)]
    found = {repr(launcher.identity(kernel)) for kernel in others}
    assert len(found | {repr(first)}) == 6


def test_a_number_of_the_module_tells_kernels_apart(monkeypatch):
    found = launcher.identity(names_a_number)
    monkeypatch.setitem(globals(), "NUMBER", 5)
    assert launcher.identity(names_a_number) != found


def test_the_backends_kernels_are_told_apart():
    shapes = [launch_shape(32, 25), launch_shape(32, 24), launch_shape(33, 25)]
    kernels_of = [
        *(kernels.forward_kernel(shape, residuals=True) for shape in shapes),
        kernels.forward_kernel(shapes[0], residuals=False),
        kernels.forward_kernel(shapes[0], residuals=True, dense=True),
        kernels.forward_kernel(shapes[0], residuals=True, weights_are="bfloat16"),
        *(kernels.backward_kernel(shape, ADAGRAD) for shape in shapes),
        kernels.backward_kernel(shapes[0], ADAM),
        kernels.backward_kernel(shapes[0], ADAGRAD, weights_are="bfloat16"),
        *(
            decode.scan_kernel(decode_shape(32, r, 5000, one_row=True), MEDIAN) for r in (3, 4, 5)
        ),
    ]  # fmt: skip
    found = {repr(launcher.identity(kernel)) for kernel in kernels_of}
    assert len(found) == len(kernels_of)


def test_a_kernel_may_hold_only_what_its_text_tells():
    with pytest.raises(TypeError, match="holds list"):
        launcher.identity(made([1], one))


def test_code_is_kept_for_the_next_process_and_made_anew_where_it_is_damaged(tmp_path, monkeypatch):
    compiled = []

    def compiler(function, *how):
        compiled.append(how)
        return b"code %d" % len(compiled)

    monkeypatch.setattr(launcher, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(launcher, "toolkit", lambda: "one")
    monkeypatch.setattr(launcher, "_compile", compiler)
    kernel = made(1, one)
    assert launcher.machine_code(kernel, *WANTED) == b"code 1"
    assert launcher.machine_code(made(1, one), *WANTED) == b"code 1"
    assert launcher.machine_code(kernel, *WANTED, anew=True) == b"code 2"
    assert launcher.machine_code(kernel, *WANTED) == b"code 2"
    assert compiled == [WANTED, WANTED]
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("streammach_kernel-")
    arguments, bounds, _ = WANTED
    launcher.machine_code(kernel, arguments[:1], bounds, (9, 0))
    launcher.machine_code(kernel, arguments, (64, 4), (9, 0))
    launcher.machine_code(kernel, arguments, bounds, (8, 0))
    monkeypatch.setattr(launcher, "toolkit", lambda: "a newer one")
    launcher.machine_code(kernel, *WANTED)
    assert len(compiled) == 6
    assert len(list(tmp_path.iterdir())) == 5


def test_code_is_compiled_where_it_cannot_be_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "CACHE_DIR", str(tmp_path / "file" / "folder"))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(launcher, "toolkit", lambda: "one")
    monkeypatch.setattr(launcher, "_compile", lambda *wanted: b"code")
    for folder in (str(tmp_path / "file" / "folder"), None):
        monkeypatch.setattr(launcher, "CACHE_DIR", folder)
        assert launcher.machine_code(made(1, one), *WANTED) == b"code"

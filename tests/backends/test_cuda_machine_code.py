"""Machine code that is kept: when it is the same kernel's, and when it is compiled."""

from streammach.backends.cuda import decode, kernels, launcher
from streammach.backends.cuda.shapes import decode_shape, launch_shape
from streammach.options.estimators import MEDIAN
from streammach.options.optimizers import ADAGRAD, ADAM
from streammach.system.kernel_identity import digest_of

WANTED = (((True, "float32"), (False, "int64")), (32, 4), (9, 0))


def made(number, other):
    """A kernel that holds a number and a function."""

    def kernel(values, n):
        values[n] = number + other(n)

    return kernel


def one(x):
    return x + 1


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
    found = {digest_of(kernel) for kernel in kernels_of}
    assert len(found) == len(kernels_of)


def test_code_is_kept_for_the_next_process_and_made_anew_where_it_is_damaged(tmp_path, monkeypatch):
    compiled = []

    def compiler(function, name, *how):
        compiled.append(how)
        return b"code %d" % len(compiled)

    monkeypatch.setattr(launcher, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(launcher, "toolkit", lambda: "one")
    monkeypatch.setattr(launcher, "compile_cubin", compiler)
    kernel = made(1, one)
    assert launcher.machine_code(kernel, *WANTED) == b"code 1"
    assert launcher.machine_code(made(1, one), *WANTED) == b"code 1"
    assert launcher.machine_code(kernel, *WANTED, anew=True) == b"code 2"
    assert launcher.machine_code(kernel, *WANTED) == b"code 2"
    assert compiled == [WANTED, WANTED]
    (file,) = tmp_path.glob("*.cubin")
    assert file.name.startswith("streammach_kernel-")
    arguments, bounds, _ = WANTED
    launcher.machine_code(kernel, arguments[:1], bounds, (9, 0))
    launcher.machine_code(kernel, arguments, (64, 4), (9, 0))
    launcher.machine_code(kernel, arguments, bounds, (8, 0))
    monkeypatch.setattr(launcher, "toolkit", lambda: "a newer one")
    launcher.machine_code(kernel, *WANTED)
    assert len(compiled) == 6
    assert len(list(tmp_path.glob("*.cubin"))) == 5


def test_code_is_compiled_where_it_cannot_be_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "CACHE_DIR", str(tmp_path / "file" / "folder"))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(launcher, "toolkit", lambda: "one")
    monkeypatch.setattr(launcher, "compile_cubin", lambda *wanted: b"code")
    for folder in (str(tmp_path / "file" / "folder"), None):
        monkeypatch.setattr(launcher, "CACHE_DIR", folder)
        assert launcher.machine_code(made(1, one), *WANTED) == b"code"

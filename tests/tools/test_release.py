"""What a release needs: kernels for other processors, and a wheel that is used."""

import os
import subprocess
import sys

import llvmlite.binding as llvm
import pytest

from tools import check_wheel, compile_kernels

# A function of LLVM, and the same with an instruction of one kind of processor.
PLAIN = """
declare float @llvm.sqrt.f32(float)
define float @one(float %x) {
  %y = call float @llvm.sqrt.f32(float %x)
  ret float %y
}
"""
FOREIGN = """
declare <4 x float> @llvm.x86.sse.rcp.ps(<4 x float>)
define <4 x float> @one(<4 x float> %x) {
  %y = call <4 x float> @llvm.x86.sse.rcp.ps(<4 x float> %x)
  ret <4 x float> %y
}
"""
# What Numba and C libraries have everywhere.
ELSEWHERE = {"log1pf", "sched_yield", "usleep"}


@pytest.mark.parametrize("target", compile_kernels.TARGETS)
def test_what_only_one_processor_has_is_found(target):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    modules = [("one", llvm.parse_assembly(text).as_bitcode()) for text in (PLAIN, FOREIGN, PLAIN)]
    failed, needed = compile_kernels.compile_for(target, modules)
    assert (len(failed), needed) == (1, set())


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_kernels_compile_for_other_processors(tiny):
    """Those that tests have compiled so far; one that fails is named."""
    tiny.text("a.vw", tiny.lines(60, 6))
    tiny.trained()
    done = subprocess.run(
        [sys.executable, "-m", "tools.compile_kernels"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if " compile, and need" in line]
    assert len(lines) == len(compile_kernels.TARGETS)
    for line in lines:
        result, _, needed = line.partition(" compile, and need")
        words = result.split()
        assert words[1] == words[3] != "0", line
        own = {name for name in needed.split() if not name.startswith(("NRT_", "numba_"))}
        assert own <= ELSEWHERE, line


def test_a_wheel_is_checked_with_interpreters_that_start(tmp_path, capsys):
    broken = tmp_path / "python3.99"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    names = [sys.executable, str(broken), "no-such-python"]
    assert check_wheel.interpreters(names) == [sys.executable]
    assert check_wheel.main(str(tmp_path)) == 1
    assert "one wheel is needed, there are 0" in capsys.readouterr().out
    (tmp_path / "a.whl").touch()
    assert check_wheel.main(str(tmp_path), str(broken)) == 1
    assert "not all of these are there" in capsys.readouterr().out


def test_a_wheel_that_cannot_be_installed_is_an_error(tmp_path):
    (tmp_path / "streammach-0.1-py3-none-any.whl").write_bytes(b"no wheel")
    with pytest.raises(SystemExit, match="pip ends with"):
        check_wheel.main(str(tmp_path), os.path.realpath(sys.executable))

"""A reader of standard error that has left changes nothing."""

import os
import subprocess
import sys

from streammach.training.run import RESULT


def test_a_reader_of_the_story_may_leave_before_it_begins(tiny):
    source = tiny.text("a.vw", tiny.lines(300, 20))
    reader, writer = os.pipe()
    os.close(reader)
    command = ["fit", str(source), "--out", str(tiny.folder / "run"), "--buckets", "4",
               "--repetitions", "3", "--epochs", "1", "--counts", "off"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "streammach", *command], stderr=writer, stdout=subprocess.PIPE,
        timeout=280, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 0
    assert b"next: streammach evaluate" in done.stdout
    assert (tiny.folder / "run" / RESULT).exists()

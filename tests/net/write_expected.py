"""Write expected.json: what the product answers today.

    python -m tests.net.write_expected

Only a change that names what it changes may do that: it says in its message which cases of the net
have another answer, and why the new one is right. A change of the inside alone never runs this.
"""

import sys
from pathlib import Path

import pytest

from tests.net.expected import Recorder, write


def main():
    recorder = Recorder()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "the_answer"]
    code = pytest.main([str(Path(__file__).parent), *options], plugins=[recorder])
    from tests.net.cases import CASES, OF_THE_PROCESSOR  # pytest imports its plugins first

    if code or recorder.answers.keys() != CASES.keys():
        return 1
    kinds = ({}, {})
    for case, answer in recorder.answers.items():
        kinds[case.partition(":")[0] in OF_THE_PROCESSOR][case] = answer
    write(*kinds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

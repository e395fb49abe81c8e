"""A short form of benchmarks.faults: commands that are sent signals, or lose standard streams."""

import pytest

from tests.faults.test_destinations import run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


def test_a_command_that_is_sent_signals_leaves_nothing_and_can_be_given_again(tmp_path):
    found = run(tmp_path, "--only", "signals", "--signals", "4")["signals"]
    assert found["passed"] == found["trials"] == 4


def test_a_command_without_standard_streams_does_its_work(tmp_path):
    found = run(tmp_path, "--only", "streams", "--streams", "4")["streams"]
    assert found["passed"] == found["trials"] == 4

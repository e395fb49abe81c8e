"""What models of runs do on labelled rows, and their pages."""

import pytest

from streammach.frontends.reports.pages import run_page
from streammach.prediction.diagnose import diagnose


@pytest.fixture(scope="session")
def pages(run_and_rows):
    run, test = run_and_rows
    found = diagnose(run.model, test)
    return run_page(run, run.model).html, run_page(run, run.model, found).html, found


@pytest.fixture(scope="session")
def lists(run_and_lists):
    """A run on rows with lists of labels, and what its model does on rows of another store."""
    run, test = run_and_lists
    return run, diagnose(run.model, test)


@pytest.fixture(scope="session")
def list_page(lists):
    return run_page(lists[0], lists[0].model, lists[1])

"""The memory of requests: what bodies become, what is refused, what is given back."""

import asyncio
import contextlib
import gc
import json
import threading
import time
import tracemalloc

import pytest

from streammach.errors import BudgetError
from streammach.serve import models
from streammach.serve.bodies import RequestReader, RequestRoom, may_become
from streammach.serve.limits import Refused, ServiceLimits
from tests.faults.test_costly_requests import COSTLY, body_of
from tests.serve.conftest import Client

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

ROW = {"rows": [{"features": {"w^pair1": 1}}]}
READERS = {
    "words": RequestReader(None, limits=ServiceLimits()),
    "table": RequestReader(["title", "pages"], limits=ServiceLimits()),
    "text": RequestReader(["title"], text="title", limits=ServiceLimits()),
}


@pytest.mark.parametrize("what", COSTLY)
def test_no_body_becomes_more_than_was_said_before(what):
    """As the interpreter counts; what the C library takes beside is in the campaign."""
    name, body = body_of(what, 0.02)
    tracemalloc.start()
    try:
        with contextlib.suppress(Refused):
            READERS[name].question(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= may_become(body) + 4096


def test_what_is_taken_is_given_back(open_rooms):
    room = open_rooms
    room.take(60)
    with pytest.raises(Refused, match="other requests take") as refused:
        room.take(60)
    assert (refused.value.status, refused.value.limit, refused.value.retry) == (503, "memory", 1)
    with pytest.raises(Refused, match="send fewer rows at a time") as refused:
        room.take(101)
    assert (refused.value.status, refused.value.limit) == (413, "memory")
    with pytest.raises(Refused, match="may take 110 bytes") as refused:
        room.take(50, own=60)
    assert refused.value.status == 413
    room.give(60)
    with room.lent(100), pytest.raises(Refused):
        room.take(1)
    room.take(100)


@pytest.fixture
def open_rooms():
    return RequestRoom(ServiceLimits(held_bytes=100, deadline=0.1))


def test_a_model_waits_for_the_memory_that_requests_hold(open_rooms):
    open_rooms.take(60)
    with pytest.raises(BudgetError, match="requests hold"), open_rooms.without(50):
        raise AssertionError("it did not wait")
    assert open_rooms.most == 100
    threading.Timer(0.05, open_rooms.give, [60]).start()
    with open_rooms.without(50):
        assert open_rooms.most == 50


def test_an_answer_leaves_nothing_taken(service, client):
    for body, status in (
        (ROW, 200), ({"rows": []}, 200), ({"rows": [{"features": {"a": []}}]}, 422),
        ({"rows": [{"features": {"b" * 70_000: 1, "a": 2}}]}, 200), ("{", 422),
    ):  # fmt: skip
        answer = client.post("/models/words/predict", json=body)
        assert answer.status_code == status
    gc.collect()
    end = time.monotonic() + 10
    while service.room._taken and time.monotonic() < end:
        time.sleep(0.01)
    assert service.room._taken == 0


def test_health_is_told_while_a_body_is_read(service, monkeypatch):
    """A body waits within the reader until health was told."""
    told, plain = threading.Event(), RequestReader.question

    def slow(self, body):
        assert told.wait(20)
        return plain(self, body)

    monkeypatch.setattr(RequestReader, "question", slow)
    client = Client(service)
    body = {"rows": [{"features": {"x" * 70_000: 1}}]}

    async def run():
        asking = asyncio.ensure_future(client.sent("POST", "/models/words/predict", json=body))
        await asyncio.sleep(0.05)
        assert not asking.done()
        assert (await client.sent("GET", "/health")).status_code == 200
        told.set()
        return await asking

    assert client.run(run()).status_code == 200


def test_a_row_far_behind_has_its_own_number(service, client, monkeypatch):
    """Rows are brought into ids some at a time: what is said of one counts all of them."""
    wrong = [{"pages": 1}] * 7 + [{"pages": "x"}]
    texts = ["a"] * 3 + ["x y " * 80_000]
    whole = client.post("/models/table/predict", json={"rows": wrong}).json()
    alike = client.post("/models/text/predict", json={"rows": ["love", "map sea", "salt"]}).json()
    monkeypatch.setattr(models, "WORK_BYTES", 1)
    assert client.post("/models/table/predict", json={"rows": wrong}).json() == whole
    assert "row 7 (counted from 0)" in whole["error"]
    again = client.post("/models/text/predict", json={"rows": ["love", "map sea", "salt"]}).json()
    assert again == alike
    found = client.post("/models/text/predict", json={"rows": texts}).json()
    assert "row 3 has 319,999 features" in found["error"]


@pytest.mark.parametrize(
    ("cell", "said"),
    [("\ufdfa" * 6000, "row 0 has 108,005 characters"),
     ([[]] * 100_001, "row 0 has 100,006 characters")],
)  # fmt: skip
def test_a_row_counts_as_what_it_becomes(cell, said):
    reader = RequestReader(["title"], limits=ServiceLimits(text_bytes=100_000))
    with pytest.raises(Refused, match=said) as refused:
        reader.question(json.dumps({"rows": [{"title": cell}]}).encode())
    assert refused.value.limit == "text_bytes"


def test_what_is_said_of_models_leaves_the_rest_to_requests(service):
    takes = sum(queue.served.takes for queue in service.queues.values())
    left = 2_000_000_000 - service._loader._code - takes
    assert service.room.most == left > ServiceLimits().held_bytes

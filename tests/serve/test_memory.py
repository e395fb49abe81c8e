"""The memory of requests: what is refused, and what is given back."""

import json

import pytest

from streammach.serve.messages import Refused, ServeOptions
from streammach.serve.service import MIN_REQUEST_BYTES, RequestMemory, Service
from tests.serve.conftest import Client

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

ROW = {"rows": [{"features": {"w^pair1": 1}}]}


def test_what_is_lent_is_given_back():
    memory = RequestMemory(100)
    with memory.lend(60):
        with (
            pytest.raises(Refused, match="others take 60 bytes of 100 bytes") as refused,
            memory.lend(60),
        ):
            raise AssertionError("it was lent")
        assert (refused.value.status, refused.value.limit, refused.value.retry) == (
            503,
            "memory",
            1,
        )
    with pytest.raises(Refused, match="send fewer rows at a time") as refused, memory.lend(101):
        raise AssertionError("it was lent")
    assert (refused.value.status, refused.value.limit) == (413, "memory")
    with memory.lend(100), pytest.raises(Refused), memory.lend(1):
        raise AssertionError("it was lent")
    assert memory.used == 0


def test_an_answer_leaves_nothing_lent(service, client):
    for body, status in (
        (ROW, 200), ({"rows": []}, 200), ({"rows": [{"features": {"a": []}}]}, 422), ("{", 422),
    ):  # fmt: skip
        answer = client.post("/models/words/predict", json=body)
        assert answer.status_code == status
    assert service.memory.used == 0


def test_a_body_that_never_fits_the_memory_is_refused(runs):
    service = Service({"words": runs["words"]}, ServeOptions(threads=1, memory="450MB"))
    body = json.dumps({"rows": [{"features": {"x" * 4000: 1}}] * 500}).encode()
    answer = Client(service).post("/predict", content=body)
    assert (answer.status_code, answer.json()["limit"]) == (413, "memory")
    assert "send fewer rows at a time" in answer.json()["error"]
    service.close()


def test_what_models_leave_is_for_requests(service):
    each = [queue.served.n_bytes for queue in service.queues.values()]
    code = service.queues["words"].served.code_bytes
    assert service.memory.most == 2_000_000_000 - code - sum(each) - max(each) > MIN_REQUEST_BYTES

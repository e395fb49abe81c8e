"""The memory of requests: what is refused, and what is given back."""

import json

import pytest

from streammach.frontends.serve.messages import Refused
from streammach.frontends.serve.options import ServeOptions
from streammach.frontends.serve.request_rows import MIN_REQUEST_BYTES, RequestMemory
from streammach.frontends.serve.service import Service
from tests.frontends.serve.conftest import Client

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

ROW = {"rows": [{"features": {"w^pair1": 1}}]}


def refusal(memory, n_bytes):
    with pytest.raises(Refused) as refused, memory.lend(n_bytes):
        raise AssertionError("it was lent")
    assert refused.value.limit == "memory"
    return refused.value


def test_what_is_lent_is_given_back():
    memory, most = RequestMemory(), MIN_REQUEST_BYTES
    with memory.lend(most - 60):
        refused = refusal(memory, 61)
        assert (refused.status, refused.retry) == (503, 1)
    refused = refusal(memory, most + 1)
    assert (refused.status, refused.retry) == (413, None)
    assert "send fewer rows at a time" in refused.message
    memory.most, memory.reserved = 3 * most, most
    assert refusal(memory, 2 * most + 1).status == 503
    with memory.lend(2 * most):
        assert refusal(memory, 1).status == 503
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
    taken = sum(queue.served.n_bytes for queue in service.queues.values())
    code = service.queues["words"].served.code_bytes
    assert service.memory.most == 2_000_000_000 - code - taken > MIN_REQUEST_BYTES


def test_a_model_is_loaded_again_within_the_memory(runs, capsys):
    service = Service({"words": runs["words"]}, ServeOptions(threads=1, memory="600MB"))
    most = service.memory.most
    service.reload()
    assert "was loaded again" in capsys.readouterr().err
    assert (service.memory.most, service.memory.reserved) == (most, 0)
    service.close()

"""What a service says of itself: models, metrics, OpenAPI, the page; and whom it answers."""

import json
import re

import msgspec
import pytest

from streammach.frontends.serve import messages
from streammach.frontends.serve.options import ServeOptions
from streammach.frontends.serve.service import Service
from streammach.options.recipe import ROLES
from tests.frontends.serve.conftest import Client

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

SAMPLE = re.compile(r'^[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)+\})? [0-9.e+-]+$')


def test_health_and_readiness(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}


def test_models_are_listed(client, runs):
    found = {one["name"]: one for one in client.get("/models").json()["models"]}
    assert found.keys() == runs.keys()
    assert (found["words"]["classes"], found["words"]["rows"]) == (20, "features")
    assert (found["text"]["rows"], found["table"]["rows"]) == ("text", "fields")
    assert found["table"]["columns"] == [
        {"name": "title", "role": "text"}, {"name": "publisher", "role": "category"},
        {"name": "pages", "role": "number"},
    ]  # fmt: skip


def metrics(client):
    text = client.get("/metrics").text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in lines:
        assert SAMPLE.match(line), line
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_metrics_count_what_was_done(client):
    before = metrics(client)
    rows = [{"features": {"w^pair1": 1, "never": 1}}] * 3
    assert client.post("/models/words/predict", json={"rows": rows}).status_code == 200
    assert client.post("/models/words/predict", json={}).status_code == 422
    assert client.get("/nothing").status_code == 404
    after = metrics(client)

    def more(line):
        return after[line] - before.get(line, 0)

    route = 'streammach_requests_total{route="/models/{name}/predict",status="%d"}'
    assert (more(route % 200), more(route % 422)) == (1, 1)
    assert more('streammach_requests_total{route="other",status="404"}') == 1
    assert more('streammach_batch_rows_bucket{le="2.0",model="words"}') == 0
    assert more('streammach_batch_rows_bucket{le="4.0",model="words"}') == 1
    assert more('streammach_batch_rows_sum{model="words"}') == 3
    assert more('streammach_request_seconds_bucket{le="+Inf"}') == 2
    assert after['streammach_queue_rows{model="words"}'] == 0
    assert after["streammach_resident_memory_bytes"] > 10_000_000


def test_metrics_have_types(client):
    text = client.get("/metrics").text
    names = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, flags=re.M))
    assert names == set(re.findall(r"^# HELP (\S+) \S", text, flags=re.M))
    used = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in used} <= names


def test_openapi_describes_predictions(client):
    found = client.get("/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    assert found["paths"].keys() == {"/predict", "/models/{name}/predict"}
    for path, own in found["paths"].items():
        assert any(route.path == path for route in client.app.routes)
        assert own["post"]["responses"].keys() == {"200", "default"}
    (name,) = found["paths"]["/models/{name}/predict"]["parameters"]
    assert name["schema"]["enum"] == ["words", "table", "text", "matrix"]
    request = found["components"]["schemas"]["PredictRequest"]["properties"]
    assert (request["rows"]["maxItems"], request["k"]["maximum"], request["k"]["default"]) == (
        1024, 200, 5,
    )  # fmt: skip
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found)))
    assert references <= found["components"]["schemas"].keys()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/models/words/predict", {"rows": [{"features": {}}]}, 200),
        ("/models/words/predict", {"rows": 1}, 422),
        ("/models/nothing/predict", {"rows": []}, 404),
    ],
)
def test_answers_are_what_openapi_says(path, body, status, client):
    answer = client.post(path, json=body)
    assert answer.status_code == status
    found = client.get("/openapi.json").json()["paths"]["/models/{name}/predict"]["post"]
    found = found["responses"].get(str(status), found["responses"]["default"])
    schema = found["content"]["application/json"]["schema"]["$ref"]
    record = getattr(messages, schema.rpartition("/")[2])
    msgspec.json.decode(answer.content, type=record)
    assert answer.json().keys() <= {field.encode_name for field in msgspec.structs.fields(record)}


def test_what_is_not_there_is_said_as_json(client):
    for method, path, status in (("GET", "/nothing", 404), ("PUT", "/predict", 405)):
        answer = client.send(method, path)
        assert answer.status_code == status
        assert answer.json()["error"].endswith(f"{method} {path}")


def test_the_page_runs_its_own_script_alone(client):
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    (policy,) = re.findall('content-security-policy" content="([^"]*)"', answer.text)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind, name in (("javascript", "page.js"), ("css", "page.css")):
        assert name in answer.text
        assert kind in client.get(f"/{name}").headers["content-type"]
    script = client.get("/page.js").text
    assert not re.search(r"(https?:)?//[a-z]", re.sub(r"location\.origin", "", script))
    assert not re.search(r"\son\w+=|style=|innerHTML|eval\(", answer.text + script)


def test_the_page_has_a_field_for_a_column_of_each_role(client):
    script = client.get("/page.js").text
    (fields,) = re.findall(r"^const ROLES = \{\n(.*?)^\};", script, flags=re.M | re.S)
    assert re.findall(r"^  (\w+): \{", fields, flags=re.M) == list(ROLES)


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", 200), ("localhost", 200), ("LOCALHOST:99", 200), ("[::1]:8000", 200),
     ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("localhost:x@evil", 403),
     ("", 403), ("[::1", 403)],
)  # fmt: skip
def test_requests_for_other_hosts_are_refused(host, status, client, service):
    assert client.get("/health", headers={"host": host}).status_code == status
    # Who can be asked from other machines has names that it does not know.
    assert Client(service, local=False).get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://127.0.0.1:8000", 200), ("http://evil.example", 403), ("null", 403),
     ("http://127.0.0.1:9000", 403)],
)  # fmt: skip
def test_pages_of_others_may_not_ask(origin, status, client):
    answer = client.post("/models/text/predict", json={"rows": ["a"]}, headers={"origin": origin})
    assert answer.status_code == status
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_service_that_stops_says_so(runs):
    service = Service({"text": runs["text"]}, ServeOptions(threads=1))
    client = Client(service)
    assert client.get("/ready").headers.get("connection") is None
    service.stopping = True
    ready = client.get("/ready")
    assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
    for answer in (ready, client.get("/health"), client.post("/predict", json={"rows": ["a"]})):
        assert answer.headers["connection"] == "close"
    service.close()

"""What a service says of itself: models, metrics, OpenAPI, the page; and whom it answers."""

import base64
import hashlib
import re

import msgspec
import pytest
from starlette.routing import Route

from streammach.serve import messages
from streammach.serve.app import PAGE
from streammach.serve.limits import ServiceLimits
from streammach.serve.models import Computing
from streammach.serve.service import Service
from streammach.spec.recipe import ROLES
from tests.serve.conftest import Client

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
    assert more('streammach_rows_total{model="words"}') == 3
    assert more('streammach_unknown_features_total{model="words"}') == 3
    assert more('streammach_batch_rows_bucket{le="2.0",model="words"}') == 0
    assert more('streammach_batch_rows_bucket{le="4.0",model="words"}') == 1
    assert more('streammach_batch_rows_sum{model="words"}') == 3
    assert more('streammach_batch_seconds_count{model="words"}') == 1
    assert more('streammach_request_seconds_bucket{le="+Inf"}') == 2
    assert after['streammach_queue_rows{model="words"}'] == 0
    assert after["streammach_resident_memory_bytes"] > 10_000_000


def test_metrics_name_the_versions_and_have_types(client):
    version = client.get("/models").json()["models"][0]["version"]
    assert metrics(client)[f'streammach_model_info{{model="words",version="{version}"}}'] == 1
    text = client.get("/metrics").text
    names = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, flags=re.M))
    assert names == set(re.findall(r"^# HELP (\S+) \S", text, flags=re.M))
    used = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in used} == names


def test_openapi_describes_what_is_there(client):
    found = client.get("/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    said = {(path, m.upper()) for path, own in found["paths"].items() for m in own}
    there = {
        (route.path, method)
        for route in client.app.routes
        if isinstance(route, Route)
        for method in route.methods - {"HEAD"}
    }
    assert said == there
    names = found["paths"]["/models/{name}/predict"]["post"]["parameters"][0]["schema"]["enum"]
    assert names == ["words", "table", "text", "matrix"]
    rows = found["components"]["schemas"]["FieldRows"]["properties"]
    assert (rows["rows"]["maxItems"], rows["k"]["maximum"], rows["k"]["default"]) == (1024, 200, 5)
    references = set(
        re.findall(r'"#/components/schemas/(\w+)"', msgspec.json.encode(found).decode())
    )
    assert references <= found["components"]["schemas"].keys()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/models/words/predict", {"rows": [{"features": {}}]}, 200),
        ("POST", "/models/words/predict", {"rows": 1}, 422),
        ("POST", "/models/nothing/predict", {"rows": []}, 404),
        ("GET", "/models", None, 200),
        ("GET", "/health", None, 200),
        ("GET", "/ready", None, 200),
    ],
)
def test_answers_are_what_openapi_says(method, path, body, status, client):
    answer = client.send(method, path, json=body)
    assert answer.status_code == status
    place = re.sub("/models/[a-z]+/", "/models/{name}/", path)
    found = client.get("/openapi.json").json()["paths"][place][method.lower()]["responses"]
    found = found.get(str(status), found["default"])
    schema = found["content"]["application/json"]["schema"]["$ref"]
    record = getattr(messages, schema.rpartition("/")[2])
    msgspec.json.decode(answer.content, type=record)
    assert answer.json().keys() <= {field.encode_name for field in msgspec.structs.fields(record)}


def test_what_is_not_there_is_said_as_json(client):
    for method, path, status in (("GET", "/nothing", 404), ("GET", "/predict", 405)):
        answer = client.send(method, path)
        assert answer.status_code == status
        assert answer.json()["error"].endswith(f"{method} {path}")


def test_the_page_runs_its_own_script_alone(client):
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"(https?:)?//[a-z]", re.sub(r"location\.origin", "", PAGE))
    assert not re.search(r"\son\w+=|style=|innerHTML|eval\(", PAGE)


def test_the_page_has_a_field_for_a_column_of_each_role():
    (fields,) = re.findall(r"^const ROLES = \{\n(.*?)^\};", PAGE, flags=re.M | re.S)
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
    service = Service({"text": runs["text"]}, ServiceLimits(), Computing(threads=1))
    client = Client(service)
    assert client.get("/ready").headers.get("connection") is None
    assert service.close(10)
    for answer in (client.get("/ready"), client.post("/predict", json={"rows": ["a"]})):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.headers["connection"] == "close"
    assert client.get("/health").status_code == 200

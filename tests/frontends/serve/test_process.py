"""The command: what it prints, signals, errors, and requests over a real port."""

import contextlib
import http.client
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from streammach.cli.main import main
from tests.frontends.serve.conftest import ended, serving

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

BODY = json.dumps({"rows": [{"features": {"w^pair1": 1}}]}).encode()


def connect(url):
    return http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)


def asked(connection, method="POST", path="/predict", body=BODY):
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()), answer.headers


def asked_once(url):
    with contextlib.closing(connect(url)) as connection:
        return asked(connection)


def test_a_service_answers_reloads_and_stops(runs):
    with serving(runs["words"]) as (found, process):
        (model,) = found["models"]
        assert (model["name"], model["classes"]) == ("words", 20)
        status, answer, headers = asked_once(found["url"])
        assert (status, answer["version"]) == (200, model["version"])
        assert headers["x-model-version"] == model["version"]
        results, stop = queue.Queue(), threading.Event()
        threads = [threading.Thread(target=load, args=(found["url"], results, stop)) for _ in "ab"]
        for thread in threads:
            thread.start()
        wanted = 'streammach_reloads_total{model="words",result="done"} 1'
        process.send_signal(signal.SIGHUP)
        until(lambda: wanted in text(found["url"] + "/metrics"))
        process.send_signal(signal.SIGTERM)
        code, story = ended(process)
        stop.set()
        for thread in threads:
            thread.join()
        assert code == 0, story
        assert story.startswith("streammach: words was loaded again: version ")
        lost = [one for one in results.queue if one not in (200, "refused")]
        assert lost == []
        assert list(results.queue).count(200) > 10


def load(url, results, stop):
    """Ask until nobody takes connections; what became of each request."""
    with contextlib.closing(connect(url)) as connection:
        while not stop.is_set():
            try:
                if connection.sock is None:
                    connection.connect()
            except OSError:
                results.put("refused")
                return
            try:
                status, _, headers = asked(connection)
                results.put(status)
                if headers.get("connection") == "close":
                    connection.close()
            except (OSError, http.client.HTTPException) as error:
                results.put(repr(error))
                return


def text(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_stop_that_takes_too_long_says_so(runs):
    with serving(runs["words"], "--grace", "1", "--deadline", "60") as (found, process):
        with contextlib.closing(connect(found["url"])) as connection:
            connection.putrequest("POST", "/predict")
            connection.putheader("content-length", "100")
            connection.endheaders(b"{")  # the rest never comes
            asked_once(found["url"])  # what was sent before is there by now
            process.send_signal(signal.SIGINT)
            code, story = ended(process)
        assert (code, story.count("\n")) == (130, 1), story
        assert "interrupted: not all was answered within 1 s: --grace" in story


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n", b" 400 "),
        (b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: -3\r\n\r\n", b" 400 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b" 400 "),
        (b"POST /predict HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}", b" 400 "),
        (b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}{}", b" 422 "),
        (b"POST /predict HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
         b"zz\r\n", b" 400 "),
    ],
)  # fmt: skip
def test_what_is_no_http_is_refused(raw, wanted, port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(raw)
        assert wanted in one.recv(1 << 16).splitlines()[0]
    assert asked_once(f"http://127.0.0.1:{port}")[0] == 200


def test_a_body_that_ends_early_harms_nobody(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{")
    wanted = 'streammach_requests_total{route="/predict",status="400"}'
    until(lambda: wanted in text(f"http://127.0.0.1:{port}/metrics"))
    assert asked_once(f"http://127.0.0.1:{port}")[0] == 200


def refused(capsys, *arguments):
    """The exit code of a command that fails, and the line that it says."""
    code = main(["serve", *map(str, arguments)])
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("streammach: warning")]
    assert len(lines) == 1, err
    assert out == ""
    return code, lines[0]


def test_a_port_that_is_taken_is_said_at_once(port, capsys, tmp_path):
    code, line = refused(capsys, tmp_path / "nothing", "--port", port)
    assert code == 2
    assert f"no port at 127.0.0.1:{port}: Address already in use. Use another --host" in line


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{}/nothing"], 2, "there is no trained model"),
        (["{}/a b"], 2, "cannot be the name of a model"),
        (["{}/x", "{}/x"], 2, "two models are called 'x'"),
        (["{}/x", "--host", "no.such.host.invalid"], 2, "no port at no.such.host.invalid:0: "),
        (["{}/x", "--port", "70000"], 2, "70000 is not in the range"),
        (["{}/x", "--grace", "0"], 2, "0.0 is not in the range"),
        ([], 2, "Missing argument 'RUN...'"),
    ],
)
def test_mistakes_are_said_in_a_line(arguments, code, said, capsys, tmp_path):
    given = [argument.format(tmp_path) for argument in arguments]
    given += [] if "--port" in given else ["--port", "0"]
    found, line = refused(capsys, *given)
    assert (found, said in line) == (code, True), line


def test_it_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "streammach.frontends.serve.process", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, line = refused(capsys, tmp_path)
    assert (code, 'pip install "streammach[serve]"' in line) == (2, True), line


def test_who_is_reached_by_others_is_warned(capsys, tmp_path):
    assert main(["serve", str(tmp_path / "x"), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "warning: 0.0.0.0 may be reached from other machines" in capsys.readouterr().err


def test_signals_are_as_before(runs, monkeypatch, capsys):
    """In the process that calls it, a service takes signals and gives them back."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))

    def say(text):
        if not timer.is_alive():
            timer.start()

    monkeypatch.setattr("streammach.frontends.serve.command.say", say)
    assert main(["serve", str(runs["text"]), "--port", "0", "--threads", "1"]) == 0
    assert {n: signal.getsignal(n) for n in before} == before


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium to show the page in")
def test_a_browser_shows_the_page_and_the_fields_of_a_row(runs, tmp_path):
    with serving(f"table={runs['table']}", f"words={runs['words']}") as (found, _):
        shown = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000",
             "--dump-dom", found["url"]],
            capture_output=True, text=True, timeout=120, check=False,
        ).stdout  # fmt: skip
    assert "<option>words</option>" in shown
    assert "3 classes, " in shown
    fields = re.findall(r'<label for="field-\d+">(\w+) ', shown)
    assert fields == ["title", "publisher", "pages"]
    assert re.findall(r'value="[^"]*"', shown) == ['value="5"']  # of labels; a row is the user's

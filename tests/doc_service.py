"""The service of docs/how/serve.md in a process of its own, at a port that is free."""

import json
import signal
import subprocess
import sys
import time
import urllib.request


class Service:
    """`streammach serve RUN`, from its start to its end."""

    def __init__(self, run):
        command = [sys.executable, "-m", "streammach", "serve", run, "--port", "0", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._url = json.loads(self._process.stdout.readline())["url"]
        self._name = run

    def ask(self, path, body=None):
        """Return the text that answers a request: of POST where it has a body."""
        body = body and body.encode()
        with urllib.request.urlopen(f"{self._url}{path}", body, timeout=60) as answer:
            return answer.read().decode()

    def reload(self):
        """Send the signal, and ask until the models are loaded anew."""
        self._process.send_signal(signal.SIGHUP)
        loaded = f'streammach_reloads_total{{model="{self._name}",result="done"}} 1'
        while loaded not in self.ask("/metrics"):
            time.sleep(0.1)

    def stop(self):
        """Stop it as Ctrl-C does, with exit code 0."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(30) == 0
        self._process.stdout.close()

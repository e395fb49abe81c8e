"""What hidden blocks of pages call, in place of a reader's keys and second terminal."""

import json
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

import streammach as sm
from streammach.system.errors import Interrupted


class _Stop:
    """A callback that stops a training, by a signal that no shell lets a process ignore."""

    def on_epoch_end(self, state):
        signal.raise_signal(signal.SIGTERM)


def stop_training(store, out, shape, **options):
    """Train until the first epoch ends, as somebody who presses Ctrl-C then."""
    with sm.Dataset.open(store) as data:
        plan = sm.plan(data, memory="1GB", **shape)
        trainer = sm.Trainer(plan, sm.TrainingOptions(**options), callbacks=[_Stop()])
        with pytest.raises(Interrupted, match="saved step"):
            trainer.fit(data, out)


class Service:
    """`streammach serve RUN` in a process of its own, at a port that is free."""

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

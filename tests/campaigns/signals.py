"""Commands that are sent signals, or lose their standard streams, and are given again."""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from tests.campaigns.destinations import MODULES
from tests.campaigns.disturbances import (
    AS_USUAL,
    COMMANDS,
    DISK,
    INTERRUPTED,
    STEPS,
    STREAMED,
    STREAMS,
    TRAIN,
    USAGE,
    WAYS,
    Command,
    Way,
)
from tests.campaigns.trials import GOLDEN, ROOT, Failed, Verdict, spread

MARK = "STREAMMACH_TRIAL"  # in the environment of a trial's processes
HUNG_SECONDS, PREPARED_SECONDS = 120.0, 900.0  # of a trial, of what compiles before it
ORPHAN_SECONDS = 2.0
PROMISED_SECONDS = 3.0  # from a signal to the end, beside a checkpoint
N_ROWS, N_CLASSES = 15_000, 200
VOLATILE = ("seconds", "peak_bytes", "projected_bytes", "stage_seconds")
GONE = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


@dataclass
class Ended:
    """How a command ended: its exit code, what it said, and seconds since the last moment noted."""

    code: int
    out: bytes
    err: str
    seconds: float

    def __str__(self):
        return f"code {self.code} after {self.seconds:.1f} s: {self.err[-1500:]!r}"


@dataclass
class Done:
    """What a command does undisturbed: what it leaves and says, and how long it takes."""

    files: dict
    said: object
    names: list
    seconds: float


class Signals:
    """What the commands read, and what each of them does undisturbed; `seed` decides the rows."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.seconds = {}
        self._done = {}
        rng = np.random.default_rng([seed, 4])
        rows = folder / "rows"
        rows.mkdir()
        (rows / "a.vw").write_text("\n".join(_lines(rng)))
        (rows / "library").mkdir()
        for name in MODULES:
            source = Path(sysconfig.get_paths()["stdlib"], name)
            shutil.copyfile(source, rows / "library" / name)
        shutil.copytree(rows, folder / "run")
        self._prepare("run", "convert", "a.vw", "train.zarr")
        self._prepare("run", "train", "train.zarr", "--out", "run", *TRAIN)
        shutil.copytree(folder / "run", folder / "half")
        self._interrupt_half(folder / "half")

    def _prepare(self, setting, *arguments):
        where = self.folder / setting
        started = Started(self, where, Command(arguments))
        if (ended := started.end(PREPARED_SECONDS)).code:
            raise RuntimeError(f"{arguments}: {ended}")

    def _interrupt_half(self, where):
        """Have a training that was interrupted after it began its epochs."""
        log = where / "half/log.jsonl"
        started = Started(self, where, Command(COMMANDS["train, resumed"].arguments[:-1]))
        while started.process.poll() is None:
            if log.exists() and log.read_text().count("\n") > 1:
                started.process.send_signal(signal.SIGTERM)
                break
            time.sleep(0.01)
        started.end()

    def new_trial(self, command):
        """Return a new folder with what a command needs."""
        trial = self.folder / "trial"
        shutil.rmtree(trial, ignore_errors=True)
        trial.mkdir()
        for name in ("home", "tmp", "cold"):
            (trial / name).mkdir()
        shutil.copytree(self.folder / command.setting, trial / "work")
        return trial / "work"

    def done(self, name):
        """Return what a command does undisturbed; it is done the first time."""
        if name not in self._done:
            command = COMMANDS[name]
            where = self.new_trial(command)
            started = Started(self, where, command, cold=command.cold)
            ended = started.end(PREPARED_SECONDS)
            if ended.code:
                raise RuntimeError(f"{name}: {ended}")
            print(f"{name}: {ended.seconds:.1f} s undisturbed", flush=True)
            files, names = _files(where, command), _names(where)
            said = said_by(ended) if command.says else None
            self._done[name] = Done(files, said, names, ended.seconds)
        return self._done[name]

    def summary(self):
        """Print and return how long commands took to end after a signal, since the last time."""
        seconds, self.seconds = self.seconds, {}
        times = [one for found in seconds.values() for one in found]
        if not times:
            return {}
        by_name = {name: _range(found) for name, found in seconds.items()}
        late = sum(one > PROMISED_SECONDS for one in times)
        print(f"seconds from a signal to the end: {_range(times)}, {late} of {len(times)} over "
              f"{PROMISED_SECONDS:.0f}")  # fmt: skip
        return {"seconds_to_end": _range(times) | {"late": late}, "by_command": by_name}


def _range(times):
    return {
        "n": len(times), "min": round(min(times), 3), "median": round(statistics.median(times), 3),
        "max": round(max(times), 3),
    }  # fmt: skip


class Started:
    """A command in a session of its own, in a folder; `more` are further arguments."""

    def __init__(self, place, where, command, more=(), streams=AS_USUAL, *, cold=False):
        self._said = [place.folder / name for name in ("stdout", "stderr")]
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        trial = where.parent
        environment = {
            **os.environ, MARK: self.mark, "PYTHONPATH": str(ROOT), "HOME": str(trial / "home"),
            "TMPDIR": str(trial / "tmp"),
        }  # fmt: skip
        if where.name != "work":  # nothing is disturbed: what is prepared
            environment |= {"HOME": os.environ.get("HOME", "/"), "TMPDIR": str(place.folder)}
        if cold:
            environment["NUMBA_CACHE_DIR"] = str(trial / "cold")
        start = ["-c", command.code] if command.code else ["-m", "streammach"]

        def prepare():
            for number in STEPS:  # whatever this process was started with
                ignored = number in streams.ignored
                signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
            for number in streams.closed:
                os.close(number)

        ends = [self._end(number, streams) for number in (1, 2)]
        self.process = subprocess.Popen(
            [sys.executable, *start, *command.arguments, *more], cwd=where, env=environment,
            stdin=subprocess.DEVNULL, stdout=ends[0], stderr=ends[1], start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
        )  # fmt: skip
        for end in ends:
            os.close(end)
        self.began = time.monotonic()

    def _end(self, number, streams):
        """Return where a stream goes."""
        if streams.left == number:
            reader, writer = os.pipe()
            os.close(reader)
            return writer
        full = streams.full and number == 1
        path = "/dev/full" if full else self._said[number - 1]
        return os.open(path, os.O_WRONLY | (0 if full else os.O_CREAT | os.O_TRUNC), 0o600)

    def wait_for_handlers(self):
        """Wait until it handles signals; before, Python itself is loaded."""
        status = Path(f"/proc/{self.process.pid}/status")
        bit = 1 << (signal.SIGTERM - 1)
        while self.process.poll() is None:
            try:
                caught = next(x for x in status.read_text().splitlines() if x.startswith("SigCgt"))
            except (OSError, StopIteration):
                return
            if int(caught.split()[1], 16) & bit:
                break
            time.sleep(0.002)
        self.began = time.monotonic()

    def send(self, way):
        """Send a signal; the second one follows when `send` is called again."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if way.group else os.kill)(self.process.pid, way.number)

    def end(self, patience=HUNG_SECONDS):
        """Wait for its end; return how it ended."""
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            why = f"no end after {patience:.0f} seconds: {self._text()}"
            raise Failed("hung", why) from None
        seconds = time.monotonic() - self.began
        out = self._said[0].read_bytes() if self._said[0].exists() else b""
        return Ended(code, out, self._text(), seconds)

    def _text(self):
        path = self._said[1]
        return path.read_text(errors="replace") if path.exists() else ""

    def orphans(self):
        """Return the processes of this command that still run a while after its end."""
        deadline = time.monotonic() + ORPHAN_SECONDS
        while (found := self._alive()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return list(found.values())

    def _alive(self):
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() not in GONE:
                    found[process.pid] = " ".join(process.cmdline())[-200:]
        return found


def signalled(place, rng, trial):
    """Send a command a signal, look what is left of it, and give it again."""
    names = list(COMMANDS)
    name, turn = names[trial % len(names)], trial // len(names)
    way = WAYS[spread(turn + trial % len(names), len(WAYS))]
    command, done = COMMANDS[name], place.done(name)
    where = place.new_trial(command)
    started = Started(place, where, command, cold=command.cold)
    started.wait_for_handlers()
    share = (turn * GOLDEN + trial % len(names) / len(names) + 0.05 * rng.random()) % 1
    at = share * done.seconds
    time.sleep(max(0.0, started.began + at - time.monotonic()))
    finished = started.process.poll() is not None
    sent = time.monotonic()
    started.send(way)
    if way.times > 1:
        time.sleep(0.6 * rng.random() ** 2)
        started.send(way)
    ended = started.end()
    what = f"{name}, {way} at {at:.2f} of {done.seconds:.2f} s"
    facts = {"finished": 1} if finished or ended.code == 0 else {"stopped": 1}
    if not finished and ended.code == INTERRUPTED:
        place.seconds.setdefault(name, []).append(time.monotonic() - sent)
    _check_end(started, ended, what)
    if ended.code not in (0, INTERRUPTED, -signal.SIGKILL):
        raise Failed("crashed", f"{what}: {ended}")
    if way.times == 1 or ended.code == 0:  # a second signal ends it at once
        _check_temporary(where, f"{what}: {ended}")
    if ended.code == 0:
        _check_result(command, done, where, ended, what)
    else:
        _check_again(place, command, done, where, f"{what}: {ended}")
    return Verdict(facts=facts)


def streamed(place, rng, trial):
    """Let a command lose a standard stream, or be started to ignore signals."""
    names, ways = STREAMED, list(STREAMS)
    number = spread(trial, len(names) * len(ways))
    name, way = names[number % len(names)], ways[number // len(names)]
    command, done, streams = COMMANDS[name], place.done(name), STREAMS[way]
    where = place.new_trial(command)
    started = Started(place, where, command, streams=streams)
    if streams.sent:
        started.wait_for_handlers()
        time.sleep(rng.random() * done.seconds / 2)
        for one in streams.sent:
            started.send(Way(one, group=True))
    ended = started.end()
    what = f"{name}, {way}"
    _check_end(started, ended, what)
    codes = streams.codes
    if name == "predict, printed" and 1 in streams.closed:
        codes = (DISK,)  # there is nowhere for its result to go
    if ended.code not in codes:
        raise Failed("crashed", f"{what}: {ended}")
    _check_temporary(where, f"{what}: {ended}")
    printed = streams.left == 1 or streams.full or 1 in streams.closed
    if ended.code == 0 or not command.says:
        if ended.code == INTERRUPTED:
            _check_again(place, command, done, where, f"{what}: {ended}")
        else:
            _check_result(command, done, where, None if printed else ended, what)
    return Verdict(facts={f"code_{ended.code}": 1})


def _check_end(started, ended, what):
    if orphans := started.orphans():
        raise Failed("leaked", f"{what}: processes still run: {orphans}: {ended}")
    for word in ("Traceback", "Exception ignored", "Fatal Python error", "--debug"):
        if word in ended.err:
            raise Failed("crashed", f"{what}: {ended}")


def _check_temporary(where, what):
    left = sorted(path.name for path in (where.parent / "tmp").rglob("*"))
    if left:
        raise Failed("leaked", f"{what}: temporary files stay: {left}")


def _check_again(place, command, done, where, what):
    """Give the command again; it ends as an undisturbed one."""
    more = [option for option in command.again if option not in command.arguments]
    started = Started(place, where, command, more)
    ended = started.end()
    there = ended.code == USAGE and "exists already" in ended.err
    if ended.code and not there:
        raise Failed("lost", f"{what}: given again: {ended}")
    _check_end(started, ended, f"{what}: given again")
    _check_result(command, done, where, None if there else ended, f"{what}: given again: {ended}")


def _check_result(command, done, where, ended, what):
    """What a command made, and what lies beside, is what an undisturbed one leaves."""
    found = _files(where, command)
    if found != done.files:
        wrong = sorted({name for name, _ in found.items() ^ done.files.items()})
        raise Failed("silent_wrong" if found else "lost", f"{what}: other files: {wrong}")
    if command.says and ended is not None and said_by(ended) != done.said:
        raise Failed("silent_wrong", f"{what}: it says something else: {ended.out[-300:]!r}")
    if (names := _names(where)) != done.names:
        odd = sorted(set(names) ^ set(done.names))
        raise Failed("leaked", f"{what}: other names: {odd}")
    _check_temporary(where, what)


def said_by(ended):
    """Return what a command printed, without what is never the same."""
    try:
        return _steady(json.loads(ended.out))
    except ValueError:
        return ended.out


def _steady(value):
    if isinstance(value, dict):
        return {name: _steady(v) for name, v in value.items() if name not in VOLATILE}
    return [_steady(v) for v in value] if isinstance(value, list) else value


def _files(where, command):
    paths = (path for pattern in command.results for path in where.glob(pattern))
    return {str(p.relative_to(where)): p.read_bytes() for p in paths if p.is_file()}


def _names(where):
    """Return all names in the folder."""
    return sorted(path.relative_to(where).as_posix() for path in where.rglob("*"))


def _lines(rng):
    for row in range(N_ROWS):
        y = row % N_CLASSES
        words = " ".join(f"w{y}_{rng.integers(3)} v{rng.integers(300)}" for _ in range(3))
        yield f"{y} |w {words}"

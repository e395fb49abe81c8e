"""Which commands are disturbed, by which signals, and what becomes of their standard streams."""

import signal
from dataclasses import dataclass

INTERRUPTED, PIPE_CLOSED, DISK, USAGE = 130, 141, 7, 2
SHAPE = ("--buckets", "16", "--repetitions", "8", "--epochs", "2")
SURE = ("--learning-rate", "0.5", "--transform", "binary")
TRAIN = (*SHAPE, *SURE)
STEPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A demo of a small library, for Python's own takes a minute.
DEMO = """
import sys, sysconfig
given = sysconfig.get_paths
sysconfig.get_paths = lambda *args, **kwargs: given(*args, **kwargs) | {"stdlib": "library"}
from streammach.__main__ import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Command:
    """A command that takes a while."""

    arguments: tuple[str, ...]
    again: tuple[str, ...] = ()  # what is added when it is given again
    results: tuple[str, ...] = ()  # patterns of files that it makes; their bytes are compared
    says: bool = False  # whether what it prints is compared, too
    setting: str = "run"  # what it needs: ``rows``, ``run`` or ``half``
    code: str | None = None  # what is run in place of the command
    cold: bool = False  # whether its kernels are not compiled yet


MODEL = ("out/model/*",)
COMMANDS = {
    "convert": Command(("convert", "a.vw", "out.zarr"), (), ("out.zarr/**/*",), setting="rows"),
    "train": Command(("train", "train.zarr", "--out", "out", *SHAPE), ("--resume",), MODEL),
    "evaluate": Command(("evaluate", "run", "train.zarr", "--json"), says=True),
    "predict": Command(("predict", "run", "a.vw", "--out", "out.tsv"), ("--force",), ("out.tsv",)),
    "shrink": Command(("shrink", "run", "--out", "out", "--on", "train.zarr", "--size", "200kB"),
                      (), ("out/*",)),
    "fit": Command(("fit", "a.vw", "--out", "out", *TRAIN), ("--resume",),
                   (*MODEL, "out/train.zarr/**/*"), setting="rows"),
    "train, resumed": Command(("train", "train.zarr", "--out", "half", *TRAIN, "--resume"), (),
                              ("half/model/*",), setting="half"),
    "report": Command(("report", "run", "--on", "train.zarr", "--out", "out.html"), (),
                      ("out.html",)),
    "demo": Command(("demo", "--folder", "out", "--json"), ("--force",), ("out/run/model/*",),
                    code=DEMO),
    "explore": Command(("explore", "a.vw", "--json"), says=True),
    "verify": Command(("verify", "train.zarr", "--deep", "--json"), says=True),
    "predict, printed": Command(("predict", "run", "a.vw"), says=True),
    "train, compiling": Command(("train", "train.zarr", "--out", "out", *TRAIN), ("--resume",),
                                MODEL, cold=True),
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """Which signal is sent, how often, and to whom."""

    number: int
    times: int = 1
    group: bool = False

    def __str__(self):
        twice = " twice" if self.times > 1 else ""
        return f"{signal.Signals(self.number).name}{twice} to the {('parent', 'group')[self.group]}"


WAYS = [Way(n, times, group) for times in (1, 2) for group in (False, True) for n in STEPS]
WAYS += [Way(signal.SIGKILL)]


@dataclass(frozen=True)
class Streams:
    """What becomes of the standard streams of a command."""

    closed: tuple[int, ...] = ()  # those that it is started without
    left: int | None = None  # one whose reader leaves after the first byte, or at once
    full: bool = False  # whether what it prints goes to a full disk
    ignored: tuple[int, ...] = ()  # signals that it is started to ignore
    sent: tuple[int, ...] = ()  # signals that it is then sent
    codes: tuple[int, ...] = (0,)


AS_USUAL = Streams()
STREAMS = {
    "stdin closed": Streams((0,)), "stdout closed": Streams((1,)),
    "stderr closed": Streams((2,)), "all closed": Streams((0, 1, 2)),
    "stdout's reader leaves": Streams(left=1, codes=(0, PIPE_CLOSED)),
    "stderr's reader leaves": Streams(left=2),
    "stdout full": Streams(full=True, codes=(0, DISK)),
    "SIGINT ignored": Streams(ignored=(signal.SIGINT,), sent=(signal.SIGINT,)),
    "SIGHUP ignored": Streams(ignored=(signal.SIGHUP,), sent=(signal.SIGHUP,)),
    "SIGINT ignored, SIGTERM sent": Streams(
        ignored=(signal.SIGINT,), sent=(signal.SIGINT, signal.SIGTERM), codes=(0, INTERRUPTED)
    ),
}  # fmt: skip
STREAMED = [name for name, command in COMMANDS.items() if not command.cold]
N_STREAMS = len(STREAMED) * len(STREAMS)

"""A simulated device that does copies as late as it may."""

import numpy as np

from streammach.backends.cuda.device_memory import DeviceArray
from tests.simulator.memory import SimulatedEvent, SimulatedMemory


class LateMemory(SimulatedMemory):
    """Does copies only when someone waits for them, and refuses those that come too early."""

    def __init__(self, limit):
        super().__init__(limit)
        self.copies, self.fetches, self.launches = [], [], 0
        self.used, self.awaited = {}, 0  # launch that used a buffer last; launches copies wait for

    def send(self, target, source, at=0, *, ahead=False):
        if ahead:
            assert self.used.get(target, 0) <= self.awaited, "overwritten while it is in use"
            self.copies.append((target, source, at))
        else:
            super().send(target, source, at)

    def fetch_later(self, target, source):
        self.fetches.append((target, source.values[: len(target)].copy()))

    def launch(self, kernel, grid, threads, *arguments):
        self.launches += 1
        buffers = [a for a in arguments if isinstance(a, DeviceArray)]
        self.used |= dict.fromkeys(buffers, self.launches)
        coming = {target for target, *_ in self.copies if target is not None}
        assert not coming.intersection(buffers), "used before it was copied"
        super().launch(kernel, grid, threads, *arguments)

    def event(self):
        return LateEvent(self)

    def wait(self):
        self.copied(len(self.copies))
        self.fetched(len(self.fetches))

    def copied(self, count):
        for i, (target, source, at) in enumerate(self.copies[:count]):
            if target is not None:
                super().send(target, source, at)
                self.copies[i] = (None, None, 0)

    def fetched(self, count):
        for target, values in self.fetches[:count]:
            target[:] = values
        self.fetches[:count] = [(np.empty(0), np.empty(0))] * len(self.fetches[:count])


class LateEvent(SimulatedEvent):
    """How many copies, fetches and launches there were."""

    def __init__(self, memory):
        self.memory, self.place = memory, None

    def mark(self, *, ahead=False):
        memory = self.memory
        counts = (len(memory.copies), 0, 0) if ahead else (0, len(memory.fetches), memory.launches)
        self.place = counts

    def before(self, *, ahead=False):
        if self.place and ahead:
            self.memory.awaited = max(self.memory.awaited, self.place[2])
        elif self.place:
            self.memory.copied(self.place[0])

    def reach(self):
        if self.place:
            self.memory.copied(self.place[0])
            self.memory.fetched(self.place[1])

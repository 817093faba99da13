"""The node program's NVML child as a real process, started by the real boot code; and what it says, by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from supervisor.adapters import nvml_source
from supervisor.adapters.program import CODE, stdin_of
from supervisor.core.gpu import Driver, Gpu
from tests.real.nvml import StubNvml

Json = dict[str, Any]
WAIT_S = 20.0
HOST_PID = 3_900_000
"""Of another namespace: no process here has it."""


class GpuChild:
    """A context manager. Its end closes stdin and insists that the child leaves by itself."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        interval_s: float | None = None,
        python: str = sys.executable,
        **args: object,
    ) -> None:
        source = nvml_source.source()
        assert source is not None
        orders = {"mode": "gpu", "nvml": source, "interval_s": interval_s, **args}
        self.lines: list[Json] = []
        self.noise = b""
        """Everything on its standard error."""
        self._changed = threading.Condition()
        self._number = 0
        self._ended = False
        self.process = subprocess.Popen(
            [python, "-I", "-S", "-c", CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ) | dict(environment),
            start_new_session=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(stdin_of(python, orders).split(b"\n", 1)[1])
        self.process.stdin.flush()
        self._threads = [threading.Thread(target=look, daemon=True) for look in (self._read, self._read_noise)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> GpuChild:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        code = self.close()
        if kind is None:
            assert code == 0, self.noise.decode("utf-8", "replace")

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_noise(self) -> None:
        assert self.process.stderr is not None
        self.noise = self.process.stderr.read()

    def send(self, **request: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, wanted: Callable[[Json], bool], what: str, *, after: int = 0, timeout_s: float = WAIT_S) -> Json:
        """The first line from number `after` on that is wanted."""
        deadline = time.monotonic() + timeout_s
        seen = after
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    if wanted(line):
                        return line
                seen = len(self.lines)
                left = deadline - time.monotonic()
                if left <= 0 or self._ended:
                    state = "the child ended" if self._ended else f"not in {timeout_s:g} s"
                    raise AssertionError(f"{state}: {what}; its last words: {self.lines[-3:]} {self.noise[-2000:]!r}")
                self._changed.wait(left)

    def ask(self) -> int:
        """A sample is asked for; its id."""
        self._number += 1
        self.send(op="sample", id=self._number)
        return self._number

    def sample(self, timeout_s: float = WAIT_S) -> Json:
        """A new sample."""
        number = self.ask()
        line = self.wait(lambda line: number in line.get("sample", {}).get("ids", ()), "a sample", timeout_s=timeout_s)
        told: Json = line["sample"]
        return told

    def gpus(self) -> list[Json]:
        """The GPUs of a new sample."""
        told: list[Json] = self.sample()["gpus"]
        return told

    def until(self, wanted: Callable[[Json], bool], what: str, timeout_s: float = WAIT_S) -> Json:
        """Samples, until one is wanted."""
        deadline = time.monotonic() + timeout_s
        while not wanted(sample := self.sample()):
            assert time.monotonic() < deadline, f"not seen in {timeout_s:g} s: {what}; last: {sample}"
        return sample

    def driver(self) -> Json:
        """What it said first of the driver."""
        told: Json = self.wait(lambda line: "driver" in line, "a word on the driver")["driver"]
        return told

    def close(self, timeout_s: float = 10.0) -> int:
        """Close stdin, wait for the end. One that stays is killed, and that fails the test."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass  # it has gone already
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the child did not leave when its stdin was closed") from None
        finally:
            self.process.wait()
            for thread in self._threads:
                thread.join()
            for stream in (self.process.stdout, self.process.stderr):
                assert stream is not None
                stream.close()


def look(child: GpuChild) -> list[Gpu]:
    """A new sample as the operator's side reads it: every name and type is checked by that."""
    return msgspec.convert(child.gpus(), list[Gpu])


def one_look(stub: StubNvml) -> list[Gpu]:
    stub.write()
    with GpuChild(stub.environment()) as child:
        return look(child)


def driver_of(stub: StubNvml, **environment: str) -> Driver:
    """The driver's state of a child that was started now."""
    stub.write()
    with GpuChild({**stub.environment(), **environment}) as child:
        told = child.sample()
        assert told["gpus"] == [] or told["driver"]["state"] == "ok"
        return msgspec.convert(told["driver"], Driver)

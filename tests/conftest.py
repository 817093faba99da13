"""What every test has: the real parts as fixtures, the counts, and the last lines of a run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest

from tests.real import parts
from tests.real.llama import LlamaServer
from tests.real.netns import NetworkNamespace
from tests.real.nvml import StubNvml
from tests.real.processes import MARK, Tracker
from tests.real.sshd import Sshd
from tests.real.tmux import Tmux
from tests.scale import FULL

# CI tells the same story every time; the closing run looks for new ones. No deadline: two cores, shared.
hypothesis.settings.register_profile("tenth", max_examples=100, derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("full", max_examples=1000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("full" if FULL else "tenth")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Heavy engines run only when asked for, and are not even told of as skipped when not."""
    if os.environ.get("SUPERVISOR_TEST_ENGINES"):
        return
    heavy = [item for item in items if item.get_closest_marker("heavy_engine")]
    if heavy:
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in heavy]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Our line stands right before pytest's own last one, which CI reads."""
    if terminalreporter.config.option.collectonly:
        return
    skips = [(report.nodeid, str(report.longrepr)) for report in terminalreporter.stats.get("skipped", [])]
    terminalreporter.write_line(parts.summary(skips))


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the program remembers of launches lies in a folder of the tests, not in the home of whoever runs them."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    yield
    patch.undo()


@pytest.fixture
def require_real() -> Callable[..., None]:
    """`require_real("sshd")`: skip, or fail where CI says so, when that real part is missing."""
    return parts.require_real


# ------------------------------------------------------------------------------------------------ processes


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracker]:
    """Everything that the test starts bears a mark; the test fails when any of it is left at its end.

    Ask for it before (left of) the fixtures that start something, so that they end first.
    """
    tracked = Tracker(secrets.token_hex(8))
    monkeypatch.setenv(MARK, tracked.mark)
    yield tracked
    tracked.assert_none_left()


# ------------------------------------------------------------------------------------------------ sshd


class MakeSshd(Protocol):
    """`make_sshd(home=…, environment=…, AllowTcpForwarding="no")`: a started server of the test's own."""

    def __call__(
        self,
        *,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
        address: str = "127.0.0.1",
        port: int | None = None,
        prefix: Sequence[str] = (),
        **options: str | None,
    ) -> Sshd: ...


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One sshd for the whole session (of each worker). Leave it as you found it; else take `make_sshd`."""
    parts.require_real("sshd")
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def make_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeSshd]:
    """Servers with options, stopped at the end of the test."""
    parts.require_real("sshd")
    with ExitStack() as stack:

        def make(
            *,
            home: Path | None = None,
            environment: Mapping[str, str] | None = None,
            address: str = "127.0.0.1",
            port: int | None = None,
            prefix: Sequence[str] = (),
            **options: str | None,
        ) -> Sshd:
            server = Sshd(
                tmp_path_factory.mktemp("sshd"),
                home=home,
                environment=environment,
                address=address,
                port=port,
                prefix=prefix,
                **options,
            )
            return stack.enter_context(server)

        yield make


# ------------------------------------------------------------------------------------------------ the others


@pytest.fixture(scope="session")
def llama() -> LlamaServer:
    """The real llama-server; models come from tests.real.llama."""
    parts.require_real("llama-server")
    return LlamaServer()


class MakeTmux(Protocol):
    """`make_tmux(["supervisor", "demo"], width=100, height=30)`: a terminal that is closed at the end of the test."""

    def __call__(
        self,
        command: Sequence[str],
        *,
        width: int = 100,
        height: int = 30,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Tmux: ...


@pytest.fixture
def make_tmux() -> Iterator[MakeTmux]:
    """Terminals, closed at the end of the test."""
    parts.require_real("tmux")
    with ExitStack() as stack:

        def make(
            command: Sequence[str],
            *,
            width: int = 100,
            height: int = 30,
            environment: Mapping[str, str] | None = None,
            cwd: Path | None = None,
        ) -> Tmux:
            return stack.enter_context(Tmux(command, width=width, height=height, environment=environment, cwd=cwd))

        yield make


@pytest.fixture
def network_namespace() -> Iterator[NetworkNamespace]:
    """A network that can be broken; see tests.real.netns."""
    parts.require_real("network namespaces")
    with NetworkNamespace() as network:
        yield network


@pytest.fixture
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubNvml]:
    """An NVIDIA driver without a GPU, and without any until `gpu()` adds one; see tests.real.nvml."""
    parts.require_real("NVML stub")
    with StubNvml(tmp_path_factory.mktemp("nvml")) as stub:
        yield stub

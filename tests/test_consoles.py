"""The command line of consoles: several profiles, the start screen, and what is refused before anything is launched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from supervisor import cli, consoles
from supervisor.supervise.live_runs import Told
from supervisor.tui import app
from supervisor.tui.screens.start import DEMO_WANTED
from supervisor.tui.watcher import Watcher
from tests.main_job.kit import QUICK, Site
from tests.real.processes import Tracker

PROFILE = """\
name = {name}
engine = "sglang"
[node]
host = {host}
[launch]
command = ["python3", "-m", "sglang.launch_server", "--model-path", "/m/kimi k2", "--api-key", "sk-hunter22"]
[variants.small.launch]
drop = ["--api-key"]
"""


def write(path: Path, name: str, host: str = "gpu1", more: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROFILE.format(name=json.dumps(name), host=json.dumps(host)) + more, encoding="utf-8")
    return path


class Shown:
    """What the console would have been opened with."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self.fields: dict[str, Any] = {}
        self.calls = 0
        self.code = 0

    def __call__(self, watchers: Sequence[Watcher] = (), **fields: Any) -> int:
        self.calls += 1
        self.watchers, self.fields = list(watchers), fields
        return self.code


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shown:
    """A terminal, and a console that only says what it would show. The working folder and the home are the test's."""
    found = Shown()
    monkeypatch.setattr(consoles, "is_terminal", lambda: True)
    monkeypatch.setattr(app, "run_console", found)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return found


def launches(watcher: Watcher) -> bool:
    """Whether its session may launch."""
    return bool(watcher.session._launch)  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ several profiles


def test_several_profiles_are_shown_in_the_given_order(shown: Shown, tmp_path: Path) -> None:
    write(tmp_path / "b.toml", "qwen", "gpu2")
    write(tmp_path / "a.toml", "kimi")
    write(tmp_path / "config" / "inference-supervisor" / "profiles" / "third.toml", "llama")
    assert cli.main(["./b.toml", "a", "third", "--layout", "wall"]) == 0
    assert [(item.title, item.node) for item in shown.watchers] == [
        ("qwen", "gpu2"),
        ("kimi", "gpu1"),
        ("llama", "gpu1"),
    ]
    assert all(launches(item) for item in shown.watchers)
    assert shown.fields["layout_name"] == "wall"
    assert shown.watchers[0].mask("--api-key sk-hunter22") == "--api-key ***"
    assert cli.main(["b", "a", "--no-launch"]) == 0
    assert not any(launches(item) for item in shown.watchers)
    assert cli.main(["a", "--variant", "small"]) == 0 and len(shown.watchers) == 1


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"a": ("kimi", "gpu1"), "b": ("kimi", "gpu1")},
            ["a and b are both called 'kimi' on gpu1: they would be one run"],
        ),
        ({"a": ("kimi", "gpu1"), "b": ("kimi", "gpu2")}, ["could not be told apart", "give one of them another name"]),
    ],
)
def test_two_of_one_name_are_refused(
    shown: Shown,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    files: dict[str, tuple[str, str]],
    words: list[str],
) -> None:
    for stem, (name, host) in files.items():
        write(tmp_path / f"{stem}.toml", name, host)
    assert cli.main(list(files)) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in words) and not shown.calls


def test_each_is_checked_before_any_is_launched(
    shown: Shown, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.toml", "kimi")
    write(tmp_path / "b.toml", "qwen", more="[nodes]\n")
    assert cli.main(["a", "b", "missing"]) == 2
    told = capsys.readouterr().err
    assert "b.toml" in told and "nodes" in told and "no profile is called 'missing'" in told
    assert cli.main(["a", "a"]) == 2 and "a is given twice" in capsys.readouterr().err
    write(tmp_path / "b.toml", "qwen")
    for option in (["--variant", "small"], ["--record", "x"]):
        assert cli.main(["a", "b", *option]) == 2
        assert f"{option[0]} belongs to one PROFILE, not to 2" in capsys.readouterr().err
    assert not shown.calls


# ------------------------------------------------------------------------------------------------ no profile


def test_without_a_terminal_the_help_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(consoles, "is_terminal", lambda: False)
    assert cli.main([]) == 2
    assert "supervisor [PROFILE…]" in capsys.readouterr().out
    write(tmp_path / "a.toml", "kimi")
    assert cli.main(["a"]) == 2
    assert "needs a terminal" in capsys.readouterr().err


def test_without_a_profile_the_start_screen_comes_and_the_demonstration_after_it(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demos: list[list[str]] = []

    def named(name: str, words: list[str]) -> int:
        demos.append([name, *words])
        return 7

    monkeypatch.setattr(cli, "_named", named)
    assert cli.main([]) == 0
    assert isinstance(shown.fields["start"], consoles.StartPoint) and not shown.watchers and not demos
    shown.code = DEMO_WANTED
    assert cli.main([]) == 7 and demos == [["demo"]]
    assert cli.main(["--variant", "x"]) == 2 and "belongs to a PROFILE" in capsys.readouterr().err


def start_point(*words: str) -> consoles.StartPoint:
    return consoles.StartPoint(cli._unnamed_parser().parse_args(list(words)))


def test_profiles_are_listed_with_what_they_launch_and_no_secret(shown: Shown, tmp_path: Path) -> None:
    write(tmp_path / "a.toml", "kimi")
    write(tmp_path / "b.toml", "qwen", more='[verify]\napi_key_env = "NOT_SET_ANYWHERE"\n')
    (tmp_path / "c.toml").write_text("[launch]\n")
    kimi, qwen, broken = start_point().entries()
    assert (kimi.name, kimi.node, kimi.engine, kimi.model, kimi.typed) == (
        "kimi",
        "gpu1",
        "sglang",
        "/m/kimi k2",
        "./a.toml",
    )
    assert "'/m/kimi k2'" in kimi.command and "sk-hunter22" not in kimi.command and "***" in kimi.command
    assert "NOT_SET_ANYWHERE is not set" in qwen.error and "\n" not in broken.error and broken.error
    assert start_point("--no-launch").open(kimi.path, launch=True).title == "kimi"
    assert [launches(start_point(*words).open(kimi.path, launch=launch)) for words, launch in (
        ((), True), ((), False), (("--no-launch",), True),
    )] == [True, False, False]  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, tracker: Tracker) -> Iterator[Site]:
    made = Site(tmp_path, tracker, *QUICK)
    try:
        yield made
    finally:
        made.end()


def test_a_real_run_is_found_by_the_start_screen(site: Site, shown: Shown, tmp_path: Path) -> None:
    write(tmp_path / "no-way.toml", "no-way", "ssh://nobody@127.0.0.1:1")
    write(tmp_path / "same-node.toml", "other", "local")
    point = start_point()
    assert {entry.name for entry in point.entries()} == {site.key, "no-way", "other"}
    site.serve()
    told: dict[str, Told] = {}
    hear: Callable[[Told], None] = lambda one: told.__setitem__(one.host, one)  # noqa: E731
    asyncio.run(point.ask(hear))
    assert set(told) == {"local", "ssh://nobody@127.0.0.1:1"}, "each node once"
    run = next(run for run in told["local"].runs if run.key == site.key)
    assert (run.state_dir, run.port) == (str(site.state_dir), site.port)
    assert run.answer is not None and run.answer.status == 200
    assert told["ssh://nobody@127.0.0.1:1"].why and not told["ssh://nobody@127.0.0.1:1"].reached


# ------------------------------------------------------------------------------------------------ nothing is left


def test_a_layout_that_is_not_there_leaves_no_record_behind(
    shown: Shown, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.toml", "kimi")
    assert cli.main(["a", "--layout", "nope", "--record", "told"]) == 2
    assert "no layout 'nope'" in capsys.readouterr().err
    assert not (tmp_path / "told").exists() and not shown.calls


@pytest.mark.parametrize("option", ["--replay", "--record", "--layout", "--variant", "--url", "--via", "--speed"])
def test_an_option_with_an_empty_word_is_no_option_left_out(
    shown: Shown, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """As of a script whose variable is not set: `--replay "" a` must launch nothing."""
    write(tmp_path / "a.toml", "kimi")
    assert cli.main(["a", option, ""]) == 2
    assert f"argument {option}: is empty" in capsys.readouterr().err
    assert not shown.calls

"""Files of the user's own: how they are laid over what is built in, and what is refused, each with its line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.engines import loader
from supervisor.engines.own import EngineFileError

NEW = """\
title = "Our server"
default_port = 7000
detect = ['\\bour-server\\b']

[health]
path = "/up"

[[stages]]
name = "weights"
pattern = 'reading part (?P<done>\\d+) of (?P<total>\\d+)'
literals = ["reading part "]
samples = [{ line = "reading part 3 of 8", done = 3, total = 8 }]

[[roots]]
pattern = 'flux capacitor (?P<what>\\w+)'
literals = ["flux capacitor "]
category = "hardware"
detail = "capacitor"
cause = "The capacitor is {what}."
advice = "Change it."
samples = ["E: flux capacitor broken"]
not_samples = ["flux capacitors"]

[[noise_lines]]
pattern = 'nothing to see'
literals = ["nothing to see"]
samples = ["ERROR: nothing to see here"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The engines folder of a configuration of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    out = tmp_path / "inference-supervisor" / "engines"
    out.mkdir(parents=True)
    yield out


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------ added and changed


def test_a_file_of_a_new_name_is_a_new_engine(folder: Path) -> None:
    put(folder, "ours", NEW)
    engine = loader.load("ours")
    assert (engine.name, engine.title, engine.default_port, engine.health.path) == ("ours", "Our server", 7000, "/up")
    assert engine.health.ready == (200,), "what is not given has its default"
    assert engine.roots[0].cause == "The capacitor is {what}."
    assert "ours" in loader.names() and set(loader.names()) > {"vllm"}
    found = loader.detect(["/opt/our-server", "--port", "1"])
    assert found is not None and found.name == "ours"
    assert "Our server" in loader.known_holders().engines


def test_without_a_folder_or_a_file_all_is_as_it_is_built_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = loader.names()
    assert loader.load("vllm").title == "vLLM"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere/at/all")
    assert loader.names() == empty


def test_a_table_is_changed_key_by_key_and_a_plain_array_is_replaced(folder: Path, tmp_path: Path) -> None:
    before = loader._built_in("sglang")
    put(folder, "sglang", "default_port = 31000\ntitles = ['^fork::']\n[health]\ntimeout_s = 90\n")
    engine = loader.load("sglang")
    assert (engine.default_port, engine.titles) == (31000, ("^fork::",))
    assert engine.health.timeout_s == 90
    assert (engine.health.path, engine.flags, engine.stages) == (before.health.path, before.flags, before.stages)
    assert loader.load("vllm") is loader._built_in("vllm")


def test_rules_of_a_known_engine_come_first_and_can_take_the_place_of_all(folder: Path) -> None:
    before = loader._built_in("vllm")
    rule = (
        "[[stages]]\nname = 'ours'\npattern = 'step one'\nliterals = ['step one']\nsamples = [{ line = 'step one' }]\n"
    )
    put(folder, "vllm", rule)
    put(folder, "sglang", "replace = ['stages']\n" + rule)
    assert [stage.name for stage in loader.load("vllm").stages] == ["ours", *(stage.name for stage in before.stages)]
    assert [stage.name for stage in loader.load("sglang").stages] == ["ours"]
    assert loader.load("sglang").ready_lines == loader._built_in("sglang").ready_lines


def test_nested_rules_come_first_too(folder: Path) -> None:
    put(folder, "vllm", "[[metrics.samples]]\ntext = 'vllm:num_requests_running 3'\nrunning = 3\n")
    rules, before = loader.load("vllm").metrics, loader._built_in("vllm").metrics
    assert rules is not None and before is not None
    assert rules.samples[0].running == 3 and rules.samples[1:] == before.samples and rules.running == before.running


def test_an_own_engine_wins_the_command_that_a_built_in_one_fits_too(folder: Path) -> None:
    put(folder, "fork", "detect = ['vllm serve']\n")
    found = loader.detect(["vllm", "serve", "m"])
    assert found is not None and found.name == "fork"


def test_generic_and_common_can_be_changed_and_are_no_engines(folder: Path) -> None:
    put(folder, "generic", "[health]\npath = '/alive'\n")
    put(folder, "common", "[[roots]]\n" + NEW.split("[[roots]]\n")[1])
    assert loader.load("generic").health.path == "/alive"
    assert loader.common().roots[0].detail == "capacitor"
    assert loader.common().noise_lines[0].samples == ("ERROR: nothing to see here",)
    assert not {"generic", "common", "roots"} & set(loader.names())
    with pytest.raises(KeyError):
        loader.load("common")
    assert loader.plain().health.path == "/health", "a wait for a plain URL reads no file"


def test_windows_line_ends_and_a_byte_order_mark_are_read(folder: Path) -> None:
    (folder / "ours.toml").write_bytes(b"\xef\xbb\xbf" + NEW.replace("\n", "\r\n").encode())
    assert loader.load("ours").title == "Our server"


# ------------------------------------------------------------------------------------------------ refused


def changed(old: str, new: str) -> str:
    assert NEW.count(old) == 1, old
    return NEW.replace(old, new)


WRONG = [
    ("title = \n", 1, "is no TOML"),
    ("title = 'x'\n[[stages]\n", 2, "is no TOML"),
    (changed("default_port = 7000", "defualt_port = 7000"), 2, "did you mean default_port"),
    (changed("default_port = 7000", "default_port = 'x'"), 2, "expected a whole number or nothing, found a text"),
    (changed("[health]\npath", "[health]\npaht"), 6, "there is no key 'paht'; did you mean path?"),
    (changed("detail = ", "deatil = "), 18, "did you mean detail"),
    (changed('advice = "Change it."\n', ""), 14, "the key `advice` is missing here"),
    (changed("(?P<what>\\w+)", "(?P<what>\\w+"), 15, "is no regular expression"),
    (changed("(?P<what>\\w+)", "(?P<what>(?:\\w+)+)"), 15, "cost for ever"),
    (changed("'flux capacitor (?P<what>\\w+)'", "'.*flux.*(?P<what>\\w+).*x'"), 15, "hold it up for long"),
    (changed("'nothing to see'", "'.*'"), 25, "fits an empty line"),
    (changed('literals = ["flux capacitor "]', 'literals = ["capacitors"]'), 16, "none of these in it"),
    (changed('literals = ["flux capacitor "]', 'literals = ["flux", "größe"]'), 16, "printable ASCII"),
    (changed('literals = ["flux capacitor "]\n', "literals = []\n"), 14, "needs `literals`"),
    (changed('literals = ["reading part "]\n', ""), 8, "needs `literals`"),
    (changed('samples = ["E: flux capacitor broken"]', "samples = []"), 21, "at least one sample"),
    (changed("E: flux capacitor broken", "E: flux broken"), 21, "does not fit this sample"),
    (changed("flux capacitors", "a flux capacitor x"), 22, "which it should not"),
    (changed("done = 3", "done = 4"), 12, "done is 4 here, and the pattern finds 3"),
    (changed('"hardware"', '"hardwear"'), 17, "did you mean hardware?"),
    (changed("is {what}", "is {waht}"), 19, "{waht} is no named group"),
    (changed('advice = "Change it."', 'advice = "Change it."\ncertain = true'), 21, "needs `recorded`"),
    (changed('advice = "Change it."', 'advice = "Change it."\nrank = 101'), 21, "0 to 100"),
    (changed("'\\bour-server\\b'", "'our-(server'"), 3, "is no regular expression"),
    ("name = 'theirs'\n" + NEW, 1, "the engine is called 'ours'"),
    ("replace = ['stagse']\n" + NEW, 1, "did you mean stages?"),
    ("replace = 3\n" + NEW, 1, "array of names"),
    (NEW + "[[log_signs]]\nliterals = []\n", 29, "is empty"),
]


@pytest.mark.parametrize(("text", "line", "words"), WRONG, ids=[words[:30] for _, _, words in WRONG])
def test_what_is_wrong_is_told_with_file_and_line(folder: Path, text: str, line: int, words: str) -> None:
    path = put(folder, "ours", text)
    with pytest.raises(EngineFileError) as told:
        loader.load("ours")
    assert (told.value.line, told.value.file) == (line, str(path)), str(told.value)
    assert words in str(told.value)
    assert str(told.value).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NEW.replace("{ line = ", "\n# a comment\n{ line = ").replace("done = 3", "done = 9"), 14),
        (NEW + NEW[NEW.index("[[roots]]") :].replace("Change it.", "Change {it}."), 34),
        (changed('samples = ["E: flux capacitor broken"]', 'samples = [\n  "flux capacitor a",\n  "flux x",\n]'), 23),
        ("notes = ['''\n[[roots]]\npattern = 1\n''']\n" + changed('"hardware"', '"x"'), 21),
    ],
)
def test_the_line_is_found_in_long_files_too(folder: Path, text: str, line: int) -> None:
    put(folder, "ours", text)
    with pytest.raises(EngineFileError) as told:
        loader.load("ours")
    assert told.value.line == line, str(told.value)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("Ours", b"", "small letters"),
        ("ours", b"\xff\xfet\0", "no UTF-8"),
        ("ours", b"a = " + b"[" * 5000, "nested too deeply"),
        ("ours", b"title = '\x1b]0;evil\x07'\nx = 1\n", "is no TOML"),
        ("ours", b"x" * (5 << 20), "larger than 4 MiB"),
    ],
)
def test_a_file_that_is_none_is_refused(folder: Path, name: str, data: bytes, words: str) -> None:
    (folder / f"{name}.toml").write_bytes(data)
    with pytest.raises(EngineFileError, match=words) as told:
        loader.load("vllm")
    assert str(told.value).isprintable()


def test_a_file_that_cannot_be_read_is_refused(folder: Path) -> None:
    (folder / "ours.toml").mkdir()
    with pytest.raises(EngineFileError, match="cannot be read: Is a directory"):
        loader.load("vllm")


def test_a_wrong_file_ends_a_command_before_anything_is_launched(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the file of another engine: it would be read in the middle of the run else."""
    path = put(folder, "ours", changed('"hardware"', '"x"'))
    mark = tmp_path / "launched"
    profile = tmp_path / "p.toml"
    profile.write_text(f'engine = "vllm"\n[node]\nhost = "local"\n[launch]\ncommand = ["touch", "{mark}"]\n')
    for words in (["--headless", str(profile)], ["stop", str(profile)], ["gpus", "local"]):
        assert main(words) == 2
        told = capsys.readouterr()
        assert f"{path}:17: roots[1].category: 'x' is no family of failures" in told.err
        assert told.out == ""
    assert not mark.exists()


# ------------------------------------------------------------------------------------------------ house rules


def test_a_wait_for_a_plain_url_reads_no_file_of_rules(folder: Path) -> None:
    put(folder, "ours", "this is no TOML")
    probe = (
        "import builtins, io, pathlib, sys\n"
        "from supervisor.cli import main\n"
        "read = []\n"
        "real = io.open\n"
        "def opened(file, *a, **k):\n"
        "    read.append(str(file)); return real(file, *a, **k)\n"
        "builtins.open = io.open = opened\n"
        "code = main(['--headless', '--url', 'http://127.0.0.1:9/', '--timeout', '300ms'])\n"
        "assert not [name for name in read if name.endswith('.toml')], read\n"
        "assert not {'tomllib', 'supervisor.engines.own', 'supervisor.engines.checks'} & set(sys.modules)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ)
    )
    assert done.returncode == 124, done.stderr

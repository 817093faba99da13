"""What the house promises of itself and import-linter cannot say: whose name stands where, who imports what."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.real.ports import free_port

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "supervisor"
MODULES = sorted(PACKAGE.rglob("*.py"))

ONLY_IN = {
    "asyncssh": ("supervisor.adapters.ssh", "supervisor.demo.loopback"),
    "httpcore": ("supervisor.adapters.http",),
    "httpx": ("supervisor.adapters.http",),
    "rich": ("supervisor.tui",),
    "textual": ("supervisor.tui",),
}
"""Package → the modules (or packages) that may import it: each is one door, behind which it can be replaced."""

TRAVELS = (
    "supervisor.node",
    "supervisor.demo.simulated",
    "supervisor.demo.simulated_engine",
    "supervisor.demo.simulated_nvml",
)
"""What runs on somebody's node or shares nothing with what it tests: Python 3.8, the standard library, itself."""

NEWER_THAN_3_8 = {"graphlib", "tomllib", "zoneinfo"}

ENGINES = re.compile(r"sglang|vllm|llama|trt-?llm|tensorrt", re.IGNORECASE)


def name_of(path: Path) -> str:
    """The module's dotted name."""
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of all that a module imports, wherever in it; relative ones resolved."""
    module = name_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package.split(".")
            base = ".".join(around[: len(around) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, [base, node.module]))
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def is_top(name: str, package: str) -> bool:
    return name.split(".")[0] == package


def told(wrong: list[str]) -> str:
    return "\n".join(["", *wrong])


def test_there_is_something_to_look_at() -> None:
    assert {"supervisor.core.machine", "supervisor.node.keeper", "supervisor"} <= {name_of(path) for path in MODULES}
    imported = {name for path in MODULES for _line, name in imports(path)}
    assert "supervisor.core.events" in imported  # from supervisor.core import events
    assert "supervisor.node.proc" in imported  # from . import proc


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_package_is_imported_through_its_door_alone(package: str) -> None:
    users = [(path, line) for path in MODULES for line, name in imports(path) if is_top(name, package)]
    wrong = [f"{path}:{line}" for path, line in users if not inside(name_of(path), ONLY_IN[package])]
    assert not wrong, told(wrong)
    assert users, f"nobody imports {package}: it does not belong here any more"


def test_core_and_engines_know_neither_profiles_nor_errors() -> None:
    above = ("supervisor.profile", "supervisor.errors", "supervisor.resources")
    low = [path for path in MODULES if inside(name_of(path), ("supervisor.core", "supervisor.engines"))]
    wrong = [f"{path}:{line}: {name}" for path in low for line, name in imports(path) if inside(name, above)]
    assert not wrong, told(wrong)


# ------------------------------------------------------------------------------------------------ engines' names


def code_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings and names of the code. Left out: docstrings, and what is the demonstration's own (`demo` in a table of
    commands, `_add_demo`), whose subject is a simulated engine."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.FunctionDef) and node.name == "_add_demo":
            continue
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if not (isinstance(key, ast.Constant) and key.value == "demo"):
                    yield from code_words(ast.Tuple(elts=[part for part in (key, value) if part is not None]))
            continue
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield line, str(node.value)
        for field in ("id", "name", "attr", "arg", "module"):
            word = getattr(node, field, None)
            if isinstance(word, str):
                yield line, word
        yield from code_words(node)


def test_no_engine_has_its_name_in_code() -> None:
    """What an engine is stands in engines/*.toml: a new one needs no change of code."""
    wrong = [
        f"{path}:{line}: {word!r}"
        for path in MODULES
        if not inside(name_of(path), ("supervisor.demo",))
        for line, word in code_words(parsed(path))
        if ENGINES.search(word)
    ]
    assert not wrong, told(wrong)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 'vllm serve'", True),
        ("def is_sglang(): ...", True),
        ("if name == 'llamacpp': pass", True),
        ("f(f'a {b} TensorRT-LLM')", True),
        ("d = {'x': 'trtllm'}", True),
        ('"""SGLang answers 200 with nothing in it."""', False),
        ("def f():\n    '''vLLM'''  # vllm", False),
        ("d = {'demo': 'SGLang'}", False),
    ],
)
def test_the_search_for_names_finds_what_it_should(source: str, found: bool) -> None:
    assert any(ENGINES.search(word) for _line, word in code_words(ast.parse(source))) is found


# ------------------------------------------------------------------------------------------------ what travels


def travelling() -> list[Path]:
    return [path for path in MODULES if inside(name_of(path), TRAVELS)]


def test_what_travels_is_python_3_8() -> None:
    wrong = []
    for path in travelling():
        try:
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 8))
        except SyntaxError as error:
            wrong.append(f"{path}:{error.lineno}: {error.msg}")
    assert not wrong, told(wrong)


def test_what_travels_takes_only_itself_and_the_standard_library_along() -> None:
    standard = sys.stdlib_module_names - NEWER_THAN_3_8
    wrong = []
    for path in travelling():
        own = tuple(package for package in TRAVELS if inside(name_of(path), (package,)))
        if own == ("supervisor.demo.simulated_engine",):
            own += ("supervisor.demo.simulated",)
        for line, name in imports(path):
            if not inside(name, own) and name.split(".")[0] not in standard:
                wrong.append(f"{path}:{line}: {name}")
    assert not wrong, told(wrong)


def test_the_product_does_not_know_the_demonstration() -> None:
    """Only the command line does. Nobody imports the simulated engine: it is run by path."""
    wrong = [
        f"{path}:{line}: {name}"
        for path in MODULES
        for line, name in imports(path)
        if inside(name, ("supervisor.demo",))
        and not inside(name_of(path), ("supervisor.demo", "supervisor.cli", "supervisor.commands"))
    ]
    assert not wrong, told(wrong)


# ------------------------------------------------------------------------------------------------ a fresh interpreter


def loaded_by(*words: str) -> tuple[int, set[str]]:
    """The exit code of a command line, and the top-level modules that a fresh interpreter has loaded by its end."""
    probe = (
        "import sys\nfrom supervisor.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print('loaded', *sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE")}
    result = subprocess.run(
        [sys.executable, "-c", probe, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
        cwd=CHECKOUT,
    )
    last = (result.stderr.strip().splitlines() or [""])[-1].split()
    assert last[:1] == ["loaded"], result.stderr
    return result.returncode, set(last[1:])


def test_a_headless_wait_loads_neither_console_nor_ssh() -> None:
    url = f"http://127.0.0.1:{free_port()}/health"
    code, loaded = loaded_by("--headless", "--url", url, "--timeout", "300ms")
    assert code == 124  # it did wait
    # Not rich: httpx loads it for a command line of its own, where click is installed too.
    assert not loaded & {"textual", "asyncssh", "cryptography", "psutil", "pynvml"}


def test_the_version_loads_next_to_nothing() -> None:
    code, loaded = loaded_by("--version")
    assert code == 0
    assert not loaded & {"asyncio", "textual", "rich", "asyncssh", "httpx", "httpcore", "msgspec", "psutil"}


def test_every_module_says_what_it_is_for() -> None:
    wrong = [str(path) for path in MODULES if not ast.get_docstring(parsed(path))]
    assert not wrong, told(wrong)

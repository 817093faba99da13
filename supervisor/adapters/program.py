"""The node program as it travels: boot code of fixed length, then the modules, compressed. No I/O but reading them.

What sshd executes is one constant string. Interpreter path, boot code and program follow on stdin, so nothing of the
user's ever stands in an exec string, whatever the login shell is.
"""

from __future__ import annotations

import ast
import json
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

BOOT_BYTES = 1536
PACKAGE = "isup_node"

# Read byte by byte: a buffered read would swallow what follows. No quotes and no $ in here, since it stands inside
# double quotes inside single quotes.
CODE = f"import os;exec(bytes().join([os.read(0,1) for _ in range({BOOT_BYTES})]))"

EXEC = f'exec /bin/sh -c \'read -r p; case $p in "~/"*) p=$HOME/${{p#??}};; esac; exec "$p" -I -S -c "{CODE}"\''
"""The one string that is ever executed on a node."""

TOO_OLD_STATUS = 86
_ALONE = ("tail", "relay")
"""Modes that are a channel of their own and start nothing."""

_BOOT = """
import sys
if sys.version_info<(3,8):
 sys.stderr.write('Python %d.%d is too old, 3.8 is needed\\n'%tuple(sys.version_info[:2]))
 sys.exit(86)
import os,json,zlib
from importlib.machinery import ModuleSpec
def r(n):
 b=b''
 while len(b)<n:
  c=os.read(0,n-len(b))
  if not c:os._exit(0)
  b+=c
 return b
l=b''
while l[-1:]!=b'\\n':l+=r(1)
p=json.loads(zlib.decompress(r(int(l))).decode())
class F:
 def find_spec(s,n,path=None,target=None):
  if n in p['modules']:return ModuleSpec(n,s,is_package='.' not in n)
 def create_module(s,spec):return None
 def exec_module(s,m):exec(compile(p['modules'][m.__name__],m.__name__,'exec'),m.__dict__)
sys.meta_path.insert(0,F())
import isup_node.main
isup_node.main.run(p)
"""


@cache
def boot_code() -> str:
    """The boot code, padded to its fixed length."""
    text = _BOOT.strip("\n") + "\n"
    assert len(text) <= BOOT_BYTES, len(text)
    return text.ljust(BOOT_BYTES - 1) + "\n"


@cache
def _modules() -> Mapping[str, str]:
    folder = files("supervisor.node")
    out = {}
    for item in folder.iterdir():
        if item.name.endswith(".py"):
            stem = item.name.removesuffix(".py")
            name = PACKAGE if stem == "__init__" else f"{PACKAGE}.{stem}"
            out[name] = item.read_text(encoding="utf-8")
    return out


@cache
def _modules_of(mode: str) -> Mapping[str, str]:
    """What one mode needs: a relay is started for each exchange, and must not carry the whole program each time."""
    modules = _modules()
    if mode not in _ALONE:
        return modules  # the serving mode starts the others from its own copy
    wanted, todo = {PACKAGE, f"{PACKAGE}.main"}, [f"{PACKAGE}.{mode}"]
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += [f"{PACKAGE}.{found}" for found in _imports(modules[name])]
    return {name: modules[name] for name in wanted}


def _imports(source: str) -> list[str]:
    """The siblings that a module imports."""
    out: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            out += [node.module] if node.module else [alias.name for alias in node.names]
    return out


def stdin_of(python: str, args: Mapping[str, Any]) -> bytes:
    """Everything that is written to the exec string's stdin before the conversation begins."""
    if "\n" in python or not python:
        raise ValueError(f"not a path of an interpreter: {python!r}")
    program = {"modules": _modules_of(str(args["mode"])), "boot": boot_code(), "code": CODE, "args": dict(args)}
    body = zlib.compress(json.dumps(program).encode(), 6)
    return f"{python}\n".encode() + boot_code().encode() + b"%d\n" % len(body) + body

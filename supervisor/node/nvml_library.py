"""nvidia-ml-py from its source text, and the driver's library for it: where it lies, and why it cannot be used.

Nothing is installed on the node: the operator's side sends the text of pynvml.py. It reads no GPU (see nvml.py). Where
$NVML_LIBRARY names a library, that one is tried and no other. $INFERENCE_SUPERVISOR_DEV stands for /dev.
"""

from __future__ import annotations

import base64
import ctypes
import glob
import os
import re
import sys
import types
import zlib
from typing import Any, Dict, List, Optional, Tuple

Json = Dict[str, Any]

LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",  # NixOS
)
CHUNK_LINES = 400
HOST_PID_NAMESPACE = 0xEFFFFFFC  # the kernel's own number of the first one
NVIDIA = "0x10de"
WSL_DEVICE = "dxg"

NOT_LOADED, NO_LIBRARY, NO_FUNCTION, UNKNOWN, MISMATCH, NO_PERMISSION = 9, 12, 13, 999, 18, 4


def device_folder() -> str:
    """Where device files are looked for."""
    return os.environ.get("INFERENCE_SUPERVISOR_DEV") or "/dev"


def load_module(packed: str) -> Any:
    """The module of the packed text. Compiled in pieces: the tree of the whole takes 15 MB that never come back."""
    source = zlib.decompress(base64.b64decode(packed)).decode("utf-8")
    try:
        module = _execute(_pieces(source.split("\n")))
    except SyntaxError:  # a piece ended inside of something
        module = _execute([source])
    del source
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass  # not glibc: it keeps what it has
    return module


def _execute(pieces: List[str]) -> Any:
    module = types.ModuleType("isup_pynvml")
    sys.modules[module.__name__] = module  # it looks itself up there
    for piece in pieces:
        exec(compile(piece, "pynvml.py", "exec", dont_inherit=True, optimize=2), module.__dict__)
    return module


def _pieces(lines: List[str]) -> List[str]:
    pieces, start = [], 0
    for number, line in enumerate(lines):
        if (
            number - start >= CHUNK_LINES
            and line.startswith(("def ", "class "))
            and not lines[number - 1].startswith("@")
        ):
            pieces.append("\n".join(lines[start:number]))
            start = number
    pieces.append("\n".join(lines[start:]))
    return pieces


def simulated(nvml: Any) -> bool:
    """Whether the module says of itself that it has no driver behind it: then no library is loaded for it."""
    return getattr(nvml, "SIMULATED", False) is True


def candidates() -> List[str]:
    """Names and paths to try, in order."""
    named = os.environ.get("NVML_LIBRARY")
    return [named] if named else [path for path in LIBRARIES if "/" not in path or os.path.exists(path)]


def initialise(nvml: Any, calls: Any) -> Tuple[Optional[str], str, int]:
    """Try each library until one starts: (its name, "", 0) or (None, what the best one said, its code)."""
    if simulated(nvml):
        _, word, code, said = calls.ask_fully("nvmlInitWithFlags", nvml.nvmlInitWithFlags, 0)
        return (None, said, code) if word else ("simulated", "", 0)
    said, code = "", NO_LIBRARY
    for path in candidates():
        try:
            nvml.nvmlLib = ctypes.CDLL(path)
        except OSError as error:
            said = said or str(error)
            continue
        # Pointers of a library that would not start (CUDA's own stub is one) are not those of the next.
        nvml._nvmlGetFunctionPointer_cache.clear()
        _, word, code, said = calls.ask_fully("nvmlInitWithFlags", nvml.nvmlInitWithFlags, 0)
        if not word:
            return path, "", 0
    return None, said, code


# ------------------------------------------------------------------------------------------- why it cannot be used


def signs() -> List[str]:
    """What tells that this node has a GPU or its driver: texts, empty where nothing does."""
    folder = device_folder()
    found = sorted(name for name in _names(folder) if re.match(r"nvidia(\d+|ctl)$", name) or name == WSL_DEVICE)
    out = ["%s/%s" % (folder, name) for name in found[:1]]
    if folder != "/dev":
        return out  # a test's: what this machine has besides is not meant
    version = loaded_version()
    if version:
        out.append("the loaded driver %s" % version)
    for path in glob.glob("/sys/bus/pci/devices/*/vendor"):
        if _text(path) == NVIDIA and _text(os.path.dirname(path) + "/class").startswith("0x03"):
            out.append("the PCI device %s" % os.path.basename(os.path.dirname(path)))
            break
    return out


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


def loaded_version() -> str:
    """Version of the kernel's part, "" where none is loaded."""
    found = re.search(r"(?:Module|x86_64|aarch64)\s+(\d+\.\d+(?:\.\d+)?)", _text("/proc/driver/nvidia/version"))
    return found.group(1) if found else ""


def file_version() -> str:
    """Version in the name of the library's file, "" where it tells none."""
    for line in _text_of_maps():
        found = re.search(r"libnvidia-ml\.so\.(\d+\.\d+[.\d]*)", line)
        if found:
            return found.group(1)
    return ""


def _text_of_maps() -> List[str]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def in_container() -> bool:
    """Whether our pids are not the machine's own, or a container's mark is there."""
    try:
        host = os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE
    except OSError:
        host = True
    return not host or os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def why_not(code: int, said: str) -> Json:
    """The driver's state and a sentence for a start that failed."""
    seen = signs()
    if code in (NOT_LOADED, NO_LIBRARY, NO_FUNCTION) and not seen:
        return {"state": "absent", "why": "no NVIDIA GPU and no driver here"}
    return {"state": "unavailable", "why": _sentence(code, said, seen[0] if seen else "")}


def _sentence(code: int, said: str, seen: str) -> str:
    if code == NO_LIBRARY:
        there = "%s is there, but " % seen if seen else ""
        hint = " (a container needs the driver capability 'utility')" if in_container() else ""
        return "%sno libnvidia-ml.so.1 can be loaded%s: %s" % (there, hint, said)
    if code == NO_FUNCTION:
        return "the library is too old: it has no nvmlInitWithFlags"
    if code == NOT_LOADED:
        return "the NVIDIA driver is not loaded, although there is %s" % (seen or "a library of it")
    if code == NO_PERMISSION:
        return "no permission to open the driver's device files"
    if code == MISMATCH:
        loaded, file = loaded_version(), file_version()
        versions = " (loaded %s, library %s)" % (loaded or "unknown", file or "unknown") if loaded or file else ""
        return (
            "the loaded driver and its library are of different versions%s, as after an upgrade: reboot the node, or "
            "reload the nvidia modules; what runs goes on" % versions
        )
    if code == UNKNOWN and in_container():
        return (
            "the driver says 'Unknown Error': in a container that lost its GPUs (as after `systemctl daemon-reload` on "
            "the host) only a restart of the container helps"
        )
    return "the driver says '%s' (%d)" % (said, code)

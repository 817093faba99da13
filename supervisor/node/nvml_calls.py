"""The one funnel for calls into NVML: every failure becomes a word, and another thread can tell what is waited for."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterable, Optional, Set, Tuple

REFUSED_S = 60.0
"""For how long a field that a GPU has not, or not for us, is not asked for again: an exception costs like a call."""

WORDS = {
    0: "no_data",  # nvidia-ml-py raises success where a list of samples is empty
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "no_data",
    7: "no_data",  # the list grew between the two calls
    9: "driver_not_loaded",
    10: "timeout",
    13: "no_symbol",
    15: "lost",
    16: "lost",  # "requires reset"
    25: "old_version",
    999: "unknown",
}


class Calls:
    """The one funnel: no exception passes, and another thread can tell what we wait for."""

    def __init__(self) -> None:
        self.waiting: Optional[Tuple[str, float]] = None
        """C function and the monotonic time of its start; None between calls."""
        self._gone: Set[str] = set()
        self._refused: Dict[Tuple[Any, ...], Tuple[float, str]] = {}

    def ask(self, symbol: str, function: Callable[..., Any], *args: Any) -> Tuple[Any, str]:
        """The answer and "", or None and a word."""
        self.waiting = (symbol, time.monotonic())
        try:
            return function(*args), ""
        except Exception as error:  # NVMLLibraryMismatchError is no NVMLError, and a name can fail to decode
            if isinstance(error, UnicodeDecodeError):
                return bytes(error.object).split(b"\0")[0].decode("utf-8", "replace"), ""
            return None, word_of(error)
        finally:
            self.waiting = None

    def ask_fully(self, symbol: str, function: Callable[..., Any], *args: Any) -> Tuple[Any, str, int, str]:
        """As `ask`, and the code and the text of the failure."""
        self.waiting = (symbol, time.monotonic())
        try:
            return function(*args), "", 0, ""
        except Exception as error:
            return None, word_of(error) or "unknown", code_of(error), str(error)
        finally:
            self.waiting = None

    def ladder(
        self, nvml: Any, place: str, steps: Iterable[Tuple[str, Tuple[Any, ...]]], handle: Any
    ) -> Tuple[Any, str]:
        """The first of these functions that this library and GPU have. Remembers what is not to be had."""
        word = "no_symbol"
        for symbol, args in steps:
            key = (place, symbol, args)
            until, refused = self._refused.get(key, (0.0, ""))
            if symbol in self._gone:
                continue
            if time.monotonic() < until:
                word = refused
                continue
            function = getattr(nvml, symbol, None)
            value, word = self.ask(symbol, function, handle, *args) if function else (None, "no_symbol")
            if word == "no_symbol":
                self._gone.add(symbol)
            elif word in ("not_supported", "no_permission", "old_version"):
                self._refused[key] = (time.monotonic() + REFUSED_S, word)
            else:
                return value, word
        return None, "not_supported" if word == "old_version" else word


def code_of(error: Exception) -> int:
    """NVML's code of a failure. Not by comparing: nvidia-ml-py's errors raise when compared with a number."""
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else 13 if type(error).__name__ == "NVMLLibraryMismatchError" else 999


def word_of(error: Exception) -> str:
    """Why a call failed, in one word."""
    if isinstance(error, AttributeError):
        return "no_symbol"  # this nvidia-ml-py has no such function
    return WORDS.get(code_of(error), "unknown")

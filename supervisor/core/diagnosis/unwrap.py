"""What wraps a line: containers, Kubernetes, syslog, Ray, loggers. Tells who speaks and what is said. Pure.

A prefix is taken off only where its whole form is met, so that nothing of what is said is lost; whatever is not known
stays. Several stand on top of each other (journal, then Ray, then the engine's own logger).
"""

from __future__ import annotations

import re

from msgspec import Struct


class Said(Struct, frozen=True):
    """One line without its wrapping.

    `speaker`: process or rank as far as the line tells, "" where it tells nothing. `level`: of its logger, in capitals.
    """

    body: str
    speaker: str = ""
    level: str = ""


MOST_PREFIXES = 8
COLOURS = "#^"
_LEVELS = r"TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|DEFAULT"
_DATE = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"

_PREFIXES = tuple(
    (re.compile(pattern), begins)
    for begins, pattern in (
        ("#^[", r"(?:#033\[[0-9;]*m|\^\[\[[0-9;]*m|(?<!\S)\[[0-9;]{1,6}m) ?"),  # colours that a logger has spelled out
        (">", r"> "),  # quoted
        ("A", rf"(?P<level>{_LEVELS})\s+(?={_DATE})"),  # Cloud Logging
        ("A", r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ (?P<speaker>[\w./@-]+(?:\[\d+\])?): "),  # syslog, journald
        ("0", rf"{_DATE} (?:stdout|stderr) [FP] "),  # Kubernetes
        ("0", rf"{_DATE} (?:[\w.-]+ )?(?P<speaker>[\w./@-]+\[\d+\]): "),  # journald with whole dates, snap
        ("[", r"\[\d+,\d+\]<(?:stdout|stderr)>: ?"),  # mpirun
        ("a", r"(?P<speaker>[a-z][\w.-]{1,40}) +\| "),  # docker compose
        ("[", r"\[(?:pod/)?(?P<speaker>[\w.-]+/[\w./-]+)\] "),  # kubectl logs --prefix
        ("(", r"\((?P<speaker>[\w:. /-]*(?:pid|rank|ip)=[^()]{1,120})\) ?"),  # process names with their pid
        ("(", r"\((?P<speaker>(?:EngineCore|Worker|APIServer)\w*)\) ?"),  # the same, where somebody took the pids out
        ("[", r"\[repeated \d+x across cluster\] ?"),
        ("[", rf"\[{_DATE}(?P<speaker>(?: [A-Z]+\d+)*)\](?= |$) ?"),  # time and rank
        (
            "A",
            rf"(?P<level>{_LEVELS}):? \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[\w./<>-]+:\d+\](?: |$)",
        ),  # level, time, file and line
        ("A", rf"(?P<level>{_LEVELS}) \[[\w./<>-]+:\d+\](?: |$)"),
        ("[", r"\[\d\d-\d\d \d\d:\d\d:\d\d\] "),  # SGLang's diffusion server
        ("[", r"\[[\w-]{1,40} std(?:out|err)\] "),
        ("[", r"\[\d{4,6}\] "),  # llama-server's router: the port of the instance
        ("[", r"\[rank ?(?P<speaker>\d+)\]:? ?"),  # torch
        ("[", r"\[(?P<level>[IWEF])\d{3,4} \d\d:\d\d:\d\d\.\d+ [\w.]+:\d+\] ?"),  # c10
        ("[", r"\[(?P<level>[IWEF]) [\w.]+:\d+\] ?"),  # c10 of older days
        ("a", r"time=\S+ level=(?P<level>[A-Z]+) source=\S+ msg="),  # Go's slog
        ("A", r"(?P<level>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [\w./-]+:\d+\] "),  # glog
        ("[", r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] "),  # American dates
        ("[", r"\[(?:T[A-Za-z]*RT[\w-]*|RANK (?P<speaker>\d+))\] ?"),
        ("[", r"\[(?P<level>[IWEFV])\] ?(?:\[[\w.:]+\] )?"),
        ("[", rf"\[(?P<level>{_LEVELS})\] ?"),
        ("0", rf"{_DATE} (?:-|\|) [\w.]+ (?:-|\|) (?P<level>{_LEVELS})\s*(?:-|\|) "),  # logging's usual form
        ("0", rf"{_DATE} (?:-|\|) (?P<level>{_LEVELS})\s+(?:-|\|) "),
        ("0", rf"{_DATE} [\w.]+ \d+ (?P<level>{_LEVELS}) +"),  # logging with a pid
        ("0", rf"{_DATE}\s+(?P<level>{_LEVELS})\s+(?:[\w:]+: (?:[\w./-]+:\d+: )?)?"),  # Rust's tracing
        ("0", rf"{_DATE}:? "),
        ("A", r"(?P<level>ERROR|WARNING|CRITICAL|INFO|DEBUG):\s+(?=\S)"),
        ("A", r"(?P<level>ERROR|WARNING|CRITICAL|INFO|DEBUG):(?:[\w.]+):(?=\S)"),
    )
)
_BY_BEGIN = {begin: tuple(pattern for pattern, begins in _PREFIXES if begin in begins) for begin in "#^[>A0a("}
"""By what a prefix begins with: A stands for a capital, a for a small letter, 0 for a digit."""
_BAR = re.compile(r".{0,200}?\d{1,3}%\|[^|]*\| *\d+/\d+ \[[^\]]{0,60}\] ?")
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "V": "DEBUG", "WARN": "WARNING"}


def unwrap(text: str) -> Said:
    """Who says what in this line. The body keeps its own indentation."""
    speaker, level, at = [], "", 0
    for _ in range(MOST_PREFIXES):
        match = _prefix(text, at)
        if match is None:
            break
        at = match.end()
        groups = match.groupdict()
        if who := groups.get("speaker"):
            speaker.append(who.strip())
        if "level" in groups:
            level = groups["level"] or level
        elif text[match.start()] not in COLOURS:
            level = ""  # of whoever passed the line on: a launcher says INFO of all that its server writes
    body = text[at:]
    if "%|" in body and (bar := _BAR.match(body)):
        rest = body[bar.end() :]
        if rest:  # what was printed while a bar stood: it begins where the bar ends
            inner = unwrap(rest)
            return Said(inner.body, inner.speaker or " ".join(speaker), inner.level or _LETTERS.get(level, level))
    return Said(body, " ".join(speaker), _LETTERS.get(level, level))


def _prefix(text: str, at: int) -> re.Match[str] | None:
    begin = text[at : at + 1]
    if begin.isalpha():
        begin = "A" if begin.isupper() else "a"
    elif begin.isdigit():
        begin = "0"
    for pattern in _BY_BEGIN.get(begin, ()):
        match = pattern.match(text, at)
        if match is not None and match.end() > at:
            return match
    return None


def prefixes() -> tuple[str, ...]:
    """The patterns, for the tests that time them on hostile lines."""
    return (*(pattern.pattern for pattern, _ in _PREFIXES), _BAR.pattern)

"""Takes secrets out of command lines and environments. Pure; the operator's side uses it too.

Errs on the side of hiding: a harmless word that shows as *** does no harm, a key in a record or on a screen does.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence, Tuple

HIDDEN = "***"
_SECRET_FLAG = re.compile(
    r"^--?[A-Za-z0-9_.-]*(?:api[-_]?key|token|password|passwd|secret|credential)s?$|^-hft$", re.IGNORECASE
)
_HARMLESS_FLAG = re.compile(
    r"tokens$|token[-_](?:id|ids|len|size|ratio|budget|limit|step|num)|num[-_]|max[-_]|tokenizer", re.IGNORECASE
)
_SECRET_NAME = re.compile(r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?$", re.IGNORECASE)
_HARMLESS_NAME = re.compile(r"(?:MAX|NUM|MIN)_.*TOKENS?$|TOKENS$", re.IGNORECASE)

# One word may be a whole command: the text of a shell (`bash -lc TEXT`), or the title that a process gave itself.
_VALUE = r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"';|&)]+)"""
_FLAG_IN_TEXT = re.compile(r"(?<![\w-])(--?[A-Za-z0-9_.-]+)(?:=|\s+)" + _VALUE)
_NAME_IN_TEXT = re.compile(r"(?<![\w-])([A-Za-z_][A-Za-z0-9_]*)=" + _VALUE)
_PASSWORD_IN_URL = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")

Span = Tuple[int, int]


def secret_flag(word: str) -> bool:
    """Whether the value of this option is a secret (--api-key, --hf-token), --max-tokens and the like excluded."""
    return bool(_SECRET_FLAG.match(word)) and not _HARMLESS_FLAG.search(word)


def secret_name(name: str) -> bool:
    """Whether an environment variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def _spans(argv: Sequence[str], index: int) -> List[Span]:
    """Where the secrets stand in one word, in order, without overlaps."""
    word = argv[index]
    if index and secret_flag(argv[index - 1]) and not word.startswith("-"):
        return [(0, len(word))] if word else []
    flag, equals, value = word.partition("=")
    named = re.match(r"^\w+$", flag) and secret_name(flag)  # `env HF_TOKEN=… command`, `docker run -e HF_TOKEN=…`
    if equals and value and (secret_flag(flag) or named):
        return [(len(flag) + 1, len(word))]
    found = [match.span(1) for match in _PASSWORD_IN_URL.finditer(word)]
    if re.search(r"\s", word):
        found += [match.span(2) for match in _FLAG_IN_TEXT.finditer(word) if secret_flag(match.group(1))]
        found += [match.span(2) for match in _NAME_IN_TEXT.finditer(word) if secret_name(match.group(1))]
    out: List[Span] = []
    for start, end in sorted(found):
        if out and start < out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def secret_words(argv: Sequence[str]) -> Dict[int, List[str]]:
    """Index of each word that holds a secret → the secrets in it."""
    found = {index: _spans(argv, index) for index in range(len(argv))}
    return {index: [argv[index][start:end] for start, end in spans] for index, spans in found.items() if spans}


def redact_argv(argv: Sequence[str]) -> List[str]:
    """The command with every secret replaced by ***."""
    out = []
    for index, word in enumerate(argv):
        for start, end in reversed(_spans(argv, index)):
            word = word[:start] + HIDDEN + word[end:]
        out.append(word)
    return out


def secrets_of(argv: Sequence[str], env: Mapping[str, str]) -> List[str]:
    """Every secret value of a launch, so that it can be masked wherever it turns up (engines print their arguments)."""
    values = [value for found in secret_words(argv).values() for value in found]
    values += [value for name, value in env.items() if secret_name(name)]
    return [value for value in values if len(value) >= 4]

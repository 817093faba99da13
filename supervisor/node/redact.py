"""Takes secrets out of command lines and environments. Pure; the operator's side uses it too."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence

HIDDEN = "***"
_SECRET_FLAG = re.compile(
    r"^--?[A-Za-z0-9_.-]*(?:api[-_]?key|token|password|passwd|secret|credential)s?$", re.IGNORECASE
)
_HARMLESS_FLAG = re.compile(
    r"tokens$|token[-_](?:id|ids|len|size|ratio|budget|limit|step|num)|num[-_]|max[-_]|tokenizer", re.IGNORECASE
)
_SECRET_NAME = re.compile(r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?$", re.IGNORECASE)
_HARMLESS_NAME = re.compile(r"(?:MAX|NUM|MIN)_.*TOKENS?$|TOKENS$", re.IGNORECASE)


def secret_flag(word: str) -> bool:
    """Whether the value of this option is a secret (--api-key, --hf-token), --max-tokens and the like excluded."""
    return bool(_SECRET_FLAG.match(word)) and not _HARMLESS_FLAG.search(word)


def secret_name(name: str) -> bool:
    """Whether an environment variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def secret_positions(argv: Sequence[str]) -> Dict[int, str]:
    """Index of each word that holds a secret → the secret itself."""
    found: Dict[int, str] = {}
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if equals and secret_flag(flag):
            found[index] = value
        elif equals and not flag.startswith("-") and re.match(r"^\w+$", flag) and secret_name(flag):
            found[index] = value  # `env HF_TOKEN=… command`, `docker run -e HF_TOKEN=…`
        elif index and secret_flag(argv[index - 1]) and not word.startswith("-"):
            found[index] = word
    return {index: value for index, value in found.items() if value}


def redact_argv(argv: Sequence[str]) -> List[str]:
    """The command with every secret replaced by ***."""
    secrets = secret_positions(argv)
    return [
        word if index not in secrets else word[: len(word) - len(secrets[index])] + HIDDEN
        for index, word in enumerate(argv)
    ]


def secrets_of(argv: Sequence[str], env: Mapping[str, str]) -> List[str]:
    """Every secret value of a launch, so that it can be masked wherever it turns up (engines print their arguments)."""
    values = list(secret_positions(argv).values())
    values += [value for name, value in env.items() if secret_name(name)]
    return [value for value in values if len(value) >= 4]

"""The root cause of failed launches: how often it is named, beside what a simple rule would name, and how quickly.

    .venv/bin/python scripts/bench/diagnosis.py [--splits 20]

failures  the collected logs: exact root line and family; the first and the last line that looks like an error
splits    the same with only those root rules that one random half of the logs shows, measured on the other half
          (what somebody would have who had never seen that other half)
healthy   servers that came up: findings there (none is right), and logs in which a simple rule would have cried
speed     MB of log a second of processor time, all rules of an engine, blocks of 256 KiB
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from supervisor.core import events as ev  # noqa: E402 - the checkout's own, found above
from supervisor.core.diagnosis.blocks import BlockDiagnoser  # noqa: E402
from supervisor.core.diagnosis.facts import EndFacts  # noqa: E402
from supervisor.engines import loader  # noqa: E402
from tests.diagnosis import corpus  # noqa: E402

BLOCK_BYTES = 256 << 10
DECODE = b"[2026-11-30 10:00:00 TP3] Decode batch. #running-req: %d, #token: 48211, token usage: 0.43, #queue-req: 0\n"


def share(part: int, whole: int) -> str:
    """`48 of 50 (96 %)`."""
    return f"{part} of {whole} ({100 * part / max(1, whole):.0f} %)"


def failures() -> None:
    """The collected logs."""
    known = corpus.with_logs()
    told = corpus.score(known)
    print(f"failures: root line {share(told.lines, told.logs)}, family {share(told.families, told.logs)}")
    for text in told.wrong:
        print(f"  {text}")
    for which, name in ((0, "first"), (-1, "last")):
        print(f"  the {name} error-looking line: {share(sum(corpus.baseline(c, which) for c in known), len(known))}")
    alone = corpus.Score()
    for case in corpus.cases():
        if not case.log and not case.root_line.startswith("(none"):
            lines = "\n".join((case.root_line, *case.noise_lines)).encode()
            alone.count(case, corpus.diagnose(loader.load(corpus.ENGINES[case.engine]), loader.common(), lines))
    print(f"  line and noise alone, without a log: family {share(alone.families, alone.logs)}")


def splits(count: int) -> None:
    """Only the rules that one half shows, on the other half."""
    lines = families = logs = 0
    worst = 1.0
    for seed in range(count):
        known, unseen = corpus.halves(seed)
        told = corpus.score(unseen, corpus.seen_in(known))
        lines, families, logs = lines + told.lines, families + told.families, logs + told.logs
        worst = min(worst, told.lines / told.logs)
    print(
        f"splits: {count} random halves, rules that one half shows, measured on the other: root line "
        f"{share(lines, logs)}, the worst half {100 * worst:.0f} %, family {share(families, logs)}"
    )


def healthy() -> None:
    """Servers that came up."""
    found, cried, logs = [], 0, 0
    for path in sorted((corpus.FOLDER / "healthy").glob("*.log")):
        raw = path.read_bytes()
        engine = loader.load(corpus.BY_PREFIX[path.name.partition("-")[0]])
        done = corpus.diagnose(engine, loader.common(), raw)
        logs += 1
        cried += re.search(corpus.CRUDE, raw.decode("utf-8", "replace")) is not None
        if done.finding is not None:
            found.append(f"{path.name}:{done.finding.line_no}")
    print(f"healthy: {len(found)} of {logs} give a finding {found}; a simple rule would have cried at {cried}")


def blocks(data: bytes) -> Iterator[ev.LogBlock]:
    """As they come from a node."""
    line_no = 1
    for start in range(0, len(data), BLOCK_BYTES):
        piece = data[start : start + BLOCK_BYTES]
        lines = piece.count(b"\n")
        yield ev.LogBlock(at=0.0, data=piece, offset=start, line_no=line_no, lines=lines)
        line_no += lines


def speed() -> None:
    """MB a second of processor time."""
    folder = corpus.FOLDER
    logs = {
        "a serving SGLang (decode batches)": ("sglang", b"".join(DECODE % (n % 97) for n in range(300_000))),
        "healthy SGLang logs, 40 times": (
            "sglang",
            b"".join(p.read_bytes() for p in folder.glob("healthy/sg-*.log")) * 40,
        ),
        "healthy vLLM logs, 40 times": ("vllm", b"".join(p.read_bytes() for p in folder.glob("healthy/vl-*.log")) * 40),
        "healthy llama.cpp logs, 40 times": (
            "llamacpp",
            b"".join(p.read_bytes() for p in folder.glob("healthy/lc-*.log")) * 40,
        ),
        "nothing but failures, 20 times": (
            "sglang",
            b"".join(p.read_bytes() for p in folder.glob("failures/*.log")) * 20,
        ),
    }
    for name, (engine, data) in logs.items():
        reader = BlockDiagnoser(loader.load(engine), loader.common())
        began = time.process_time()
        for block in blocks(data):
            reader.feed(block)
        reader.conclude(EndFacts(), 0.0)
        took_s = time.process_time() - began
        print(
            f"speed: {name}, {len(data) / 1e6:.0f} MB: {len(data) / 1e6 / took_s:.0f} MB/s; "
            f"{reader.read_lines:,} of {data.count(10):,} lines read, the others passed over"
        )


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    options = parser.parse_args()
    failures()
    splits(options.splits)
    healthy()
    speed()
    return 0


if __name__ == "__main__":
    sys.exit(main())

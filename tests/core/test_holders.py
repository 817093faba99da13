"""Every recorded situation against the rule: each holder, its class, who is pre-selected, and what is said."""

from __future__ import annotations

import pytest

from supervisor.core.holders import Holder, classify
from supervisor.engines import loader
from tests.core import snapshots

KNOWN = loader.known_holders()


def key_of(holder: Holder) -> str:
    """Its pid, or the GPUs that it stands for."""
    return f"pid {holder.pid}" if holder.pid is not None else f"on {', '.join(sorted(holder.held))}"


@pytest.mark.parametrize("name", snapshots.names())
def test_situation(name: str) -> None:
    situation = snapshots.load(name)
    snapshot = situation.snapshot()
    found = {key_of(holder): holder for holder in classify(snapshot, KNOWN)}
    expected = {
        f"pid {item.pid}" if item.pid is not None else f"on {snapshot.gpus[item.gpu or 0].uuid}": item
        for item in situation.expect
    }
    assert {key: str(holder.class_) for key, holder in found.items()} == {
        key: item.class_ for key, item in expected.items()
    }
    for key, item in expected.items():
        holder = found[key]
        assert (holder.zombie, holder.preselected) == (item.zombie, item.pre), (key, holder)
        assert item.kill is None or holder.killable == item.kill, (key, holder)
        told = " ".join((*holder.evidence, holder.advice))
        assert all(part in told for part in item.says), (key, item.says, told)
        assert holder.evidence and holder.advice
        assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in holder.evidence), holder.evidence

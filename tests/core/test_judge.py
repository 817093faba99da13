"""What an answer, a listener and a list of models mean, row by row."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine import BodyRule, Health
from supervisor.core.events import Answer, Owner, Verdict
from supervisor.core.judge import (
    Listener,
    Reply,
    apply_model,
    apply_owner,
    judge_owner,
    judge_reply,
    model_matches,
    needs_body,
)

RULE = Health()
BODY = Health(body=BodyRule(field="status", ready=("ok", "ready"), not_yet=("initializing",)))


def reply(status: int, body: bytes = b"", **fields: object) -> Reply:
    return Reply(status=status, ms=3.0, body=body, **fields)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- status


@pytest.mark.parametrize(
    ("status", "verdict", "word"),
    [
        (200, Verdict.READY, ""),
        (201, Verdict.REJECTED, "200"),
        (204, Verdict.REJECTED, "200"),
        (301, Verdict.REJECTED, "redirect"),
        (307, Verdict.REJECTED, "not followed"),
        (400, Verdict.REJECTED, ""),
        (401, Verdict.REJECTED, "key"),
        (403, Verdict.REJECTED, "key"),
        (404, Verdict.REJECTED, "no such path"),
        (405, Verdict.REJECTED, "GET"),
        (429, Verdict.REJECTED, ""),
        (500, Verdict.REJECTED, "server error"),
        (502, Verdict.REJECTED, "server error"),
        (503, Verdict.NOT_YET, "not ready yet"),
        (504, Verdict.REJECTED, "server error"),
    ],
)
def test_a_status_has_one_meaning(status: int, verdict: Verdict, word: str) -> None:
    answer = judge_reply(RULE, reply(status))
    assert (answer.verdict, answer.status) == (verdict, status)
    assert word in answer.why
    assert (answer.cause == "") == (verdict is Verdict.READY), "what is not accepted is grouped by its cause"


@given(st.integers(100, 599), st.binary(max_size=30))
def test_a_rule_on_status_never_looks_at_the_body(status: int, body: bytes) -> None:
    """The founding incident: a loop that looked for a body never saw the empty 200."""
    with_body, without = judge_reply(RULE, reply(status, body)), judge_reply(RULE, reply(status))
    assert (with_body.verdict, with_body.why) == (without.verdict, without.why)
    assert (with_body.verdict is Verdict.READY) == (status == 200)


def test_an_engine_may_have_other_statuses() -> None:
    rule = Health(ready=(200, 204), not_yet=(425, 503))
    assert judge_reply(rule, reply(204)).verdict is Verdict.READY
    assert judge_reply(rule, reply(425)).verdict is Verdict.NOT_YET
    assert "200, 204" in judge_reply(rule, reply(418)).why


def test_a_redirect_tells_where_to() -> None:
    assert "http://other:1/health" in judge_reply(RULE, reply(302, location="http://other:1/health")).why


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({"content_length": 0}, 0),
        ({"content_length": 1 << 40}, 1 << 40),
        ({"body": b"abc", "body_complete": True}, 3),
        ({"body": b"abc"}, None),
        ({"body": b"abc", "content_length": 9}, 9),
    ],
)
def test_the_length_is_what_was_said_or_read_whole(fields: dict[str, object], size: int | None) -> None:
    assert judge_reply(RULE, Reply(status=200, ms=1, **fields)).bytes == size  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- body


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b'{"status":"ok"}', Verdict.READY),
        (b'{"status":"ready","x":[1]}', Verdict.READY),
        (b'{"status":"initializing"}', Verdict.NOT_YET),
        (b'{"status":"OK"}', Verdict.REJECTED),
        (b'{"status":null}', Verdict.REJECTED),
        (b'{"status":["ok"]}', Verdict.REJECTED),
        (b'{"status":{"a":1}}', Verdict.REJECTED),
        (b'{"state":"ok"}', Verdict.REJECTED),
        (b'"ok"', Verdict.REJECTED),
        (b"ok", Verdict.REJECTED),
        (b"", Verdict.REJECTED),
        (b"\xff\xfe\x00", Verdict.REJECTED),
        (b'{"status":"ok"', Verdict.REJECTED),
        (b"[" * 50_000, Verdict.REJECTED),
    ],
)
def test_where_the_engine_says_so_the_body_decides(body: bytes, verdict: Verdict) -> None:
    answer = judge_reply(BODY, reply(200, body))
    assert answer.verdict is verdict
    assert "status" in answer.why


def test_a_body_is_asked_for_only_where_it_can_decide() -> None:
    assert needs_body(BODY, 200)
    assert not needs_body(BODY, 503)
    assert not needs_body(RULE, 200)
    assert judge_reply(BODY, reply(503, b'{"status":"ok"}')).verdict is Verdict.NOT_YET


@given(st.text(max_size=60))
def test_what_a_server_says_never_drives_a_terminal(text: str) -> None:
    escape = f"\x1b[2J\x07{text}"
    said = json.dumps({"status": escape}).encode()
    served = apply_model(READY, ("m",), (escape,)).why
    owner = judge_owner([listener(title=escape)], [listener(title=escape)])[1]
    redirect = judge_reply(RULE, reply(302, location=escape)).why
    answer = judge_reply(BODY, reply(200, said))
    for shown in (answer.why, answer.cause, served, owner, redirect):
        assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)


# ------------------------------------------------------------------------------------------------- owner

READY = Answer(verdict=Verdict.READY, why="", status=200, bytes=0, ms=1.0)


def listener(
    owner: Owner = Owner.OURS,
    inode: int = 1,
    *,
    pid: int | None = 4711,
    uid: int | None = 1000,
    title: str = "python3",
    why: str = "",
) -> Listener:
    return Listener(address="127.0.0.1:1", inode=inode, uid=uid, pid=pid, title=title, owner=owner, why=why)


def seen(*listeners: Listener) -> tuple[Owner, str]:
    return judge_owner(listeners, listeners)


def test_a_listener_of_the_tree_is_ours() -> None:
    owner, why = seen(listener())
    assert owner is Owner.OURS
    assert "pid 4711 python3, ours" in why


def test_another_process_is_other_and_named() -> None:
    owner, why = seen(listener(Owner.OTHER, pid=99, title="nginx"))
    assert owner is Owner.OTHER
    assert "pid 99 nginx" in why


def test_another_users_listener_shows_its_uid() -> None:
    owner, why = seen(listener(Owner.OTHER, pid=None, uid=33))
    assert owner is Owner.OTHER
    assert "uid 33" in why


def test_what_cannot_be_seen_is_unknown_and_says_why() -> None:
    owner, why = seen(listener(Owner.UNKNOWN, pid=None, uid=None, why="another network namespace"))
    assert owner is Owner.UNKNOWN
    assert "owner not visible" in why
    assert "another network namespace" in why


@pytest.mark.parametrize(
    ("owners", "verdict"),
    [
        ((Owner.OURS, Owner.OURS), Owner.OURS),
        ((Owner.OURS, Owner.OTHER), Owner.OTHER),
        ((Owner.OURS, Owner.UNKNOWN), Owner.UNKNOWN),
        ((Owner.UNKNOWN, Owner.OTHER), Owner.OTHER),
        ((Owner.OURS, Owner.NOT_CHECKED), Owner.UNKNOWN),
    ],
)
def test_every_listener_on_the_port_counts(owners: tuple[Owner, ...], verdict: Owner) -> None:
    """SO_REUSEPORT, or 127.0.0.1 beside [::]: any of them may have given the answer."""
    listeners = [listener(owner, inode) for inode, owner in enumerate(owners)]
    assert seen(*listeners)[0] is verdict
    assert seen(*reversed(listeners))[0] is verdict


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([listener(inode=1)], [listener(inode=2)]),
        ([], [listener()]),
        ([listener()], []),
        ([listener(inode=1)], [listener(inode=1), listener(inode=2)]),
    ],
)
def test_a_listener_that_changed_hands_proves_nothing(before: list[Listener], after: list[Listener]) -> None:
    owner, why = judge_owner(before, after)
    assert owner is Owner.UNKNOWN
    assert "changed hands" in why


def test_no_listener_at_all_is_unknown() -> None:
    assert judge_owner([], [])[0] is Owner.UNKNOWN


@pytest.mark.parametrize(
    ("owner", "proved", "verdict"),
    [
        (Owner.OURS, False, Verdict.READY),
        (Owner.OURS, True, Verdict.READY),
        (Owner.UNKNOWN, True, Verdict.READY),
        (Owner.UNKNOWN, False, Verdict.REJECTED),
        (Owner.OTHER, False, Verdict.REJECTED),
        (Owner.OTHER, True, Verdict.REJECTED),
    ],
)
def test_the_owner_decides_whether_a_ready_answer_counts(owner: Owner, proved: bool, verdict: Verdict) -> None:
    answer = apply_owner(READY, owner, "who it is", model_proved=proved)
    assert (answer.verdict, answer.owner) == (verdict, owner)
    assert "who it is" in answer.why
    assert (answer.status, answer.bytes, answer.ms) == (200, 0, 1.0)
    if verdict is Verdict.REJECTED:
        assert answer.cause


# ------------------------------------------------------------------------------------------------- model


@pytest.mark.parametrize(
    ("expected", "served", "found"),
    [
        (["k2.5"], ["k2.5"], "k2.5"),
        (["/shared/k2.5"], ["/shared/k2.5"], "/shared/k2.5"),
        (["/shared/k2.5/"], ["k2.5"], "k2.5"),
        (["k2.5"], ["/shared/k2.5"], "/shared/k2.5"),
        (["moonshotai/k2.5"], ["k2.5"], "k2.5"),
        (["/m/tiny.gguf"], ["tiny"], "tiny"),
        (["tiny"], ["/m/tiny.gguf"], "/m/tiny.gguf"),
        (["served-name", "/m/path"], ["other", "path"], "path"),
        (["k2.5"], ["k2"], None),
        (["k2.5"], ["k2.5-draft"], None),
        (["k2.5"], ["K2.5"], None),
        (["k2.5"], [], None),
        ([], ["k2.5"], None),
    ],
)
def test_a_model_matches_by_name_path_or_last_component(
    expected: list[str], served: list[str], found: str | None
) -> None:
    assert model_matches(expected, served) == found


def test_the_wrong_model_is_another_server() -> None:
    answer = apply_model(READY, ("k2.5",), ("llama-3",))
    assert (answer.verdict, answer.cause) == (Verdict.REJECTED, "wrong model")
    assert "llama-3" in answer.why and "k2.5" in answer.why and "ready.model" in answer.why


def test_a_server_that_lists_nothing_has_not_our_model() -> None:
    assert "the model none" in apply_model(READY, ("k2.5",), ()).why


def test_a_thousand_models_are_not_all_told() -> None:
    why = apply_model(READY, ("k2.5",), tuple(f"m{n}" for n in range(1000))).why
    assert "m4 and 995 more" in why
    assert len(why) < 300


@pytest.mark.parametrize(
    ("expected", "served", "model"), [((), ("a", "b"), "a"), (("k",), None, None), ((), None, None), ((), (), None)]
)
def test_what_cannot_be_compared_rejects_nothing(
    expected: tuple[str, ...], served: tuple[str, ...] | None, model: str | None
) -> None:
    answer = apply_model(READY, expected, served)
    assert (answer.verdict, answer.model) == (Verdict.READY, model)


def test_a_proved_model_is_part_of_the_proof() -> None:
    answer = apply_model(READY, ("/shared/k2.5",), ("k2.5",))
    assert (answer.verdict, answer.model) == (Verdict.READY, "k2.5")
    assert "model k2.5" in answer.why

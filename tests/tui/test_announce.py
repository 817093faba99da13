"""Bell, title and notification: the right sequence for each terminal, and no text that could be one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.events import Phase
from supervisor.core.notices import Notice, NoticeKind
from supervisor.tui.announce import Announcer, notification, through_tmux, title, way_of

NOTICE = Notice(at=0.0, kind=NoticeKind.SERVED, title="kimi serves", text="generated 'Paris'", phase=Phase.SERVING)


@pytest.mark.parametrize(
    ("environ", "way"),
    [
        ({"TERM": "xterm-256color"}, "9"),
        ({"TERM": "xterm-ghostty"}, "9"),
        ({"TERM": "xterm-kitty"}, "99"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "99"),
        ({"TERM": "rxvt-unicode-256color"}, "777"),
        ({"TERM": "foot"}, "777"),
        ({"TERM": "linux"}, ""),
        ({"TERM": "dumb"}, ""),
        ({}, ""),
        ({"TERM": "screen-256color"}, ""),
        ({"TERM": "xterm", "STY": "1234.pts-0"}, ""),
        ({"TERM": "screen-256color", "TMUX": "/tmp/tmux-0/default,1,0"}, "9"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}, "99"),
    ],
)
def test_each_terminal_is_told_in_its_own_way(environ: dict[str, str], way: str) -> None:
    assert way_of(environ) == way


def test_the_sequences_are_those_of_the_terminals() -> None:
    assert title("kimi · serving") == "\x1b]0;kimi · serving\x07"
    assert notification("kimi serves", "it; does", "9") == "\x1b]9;kimi serves: it, does\x1b\\"
    assert notification("a;b", "c", "777") == "\x1b]777;notify;a,b;c\x1b\\"
    both = notification("a", "b", "99")
    assert both == "\x1b]99;i=supervisor:d=0:p=title;a\x1b\\\x1b]99;i=supervisor:d=1:p=body;b\x1b\\"
    assert through_tmux("\x1b]9;x\x1b\\") == "\x1bPtmux;\x1b\x1b]9;x\x1b\x1b\\\x1b\\"


def told(environ: dict[str, str], **settings: bool) -> list[str]:
    out: list[str] = []
    announcer = Announcer(out.append, environ, **settings)
    announcer.begin()
    announcer.show_title("kimi · loading")
    announcer.show_title("kimi · loading")
    announcer.announce(NOTICE)
    announcer.end()
    announcer.end()
    return out


def test_a_whole_life() -> None:
    assert told({"TERM": "xterm"}) == [
        "\x1b[22;0t",
        "\x1b]0;kimi · loading\x07",
        "\x07\x1b]9;kimi serves: generated 'Paris'\x1b\\",
        "\x1b[23;0t",
    ]


def test_tmux_gets_bell_and_title_and_the_notification_in_a_wrap() -> None:
    out = told({"TERM": "tmux-256color", "TMUX": "x"})
    assert out[1] == "\x1b]0;kimi · loading\x07"
    assert out[2].startswith("\x07\x1bPtmux;\x1b\x1b]9;kimi serves")


def test_a_terminal_that_would_print_it_gets_the_bell_alone() -> None:
    assert told({"TERM": "linux"}) == told({"TERM": "screen"}) == ["\x07"]


def test_what_the_profile_does_not_want_is_left_out() -> None:
    assert told({"TERM": "xterm"}, bell=False, terminal=False, title=False) == []
    assert told({"TERM": "xterm"}, bell=False, title=False) == ["\x1b]9;kimi serves: generated 'Paris'\x1b\\"]
    assert told({"TERM": "xterm"}, terminal=False)[2] == "\x07"


_WHOLE = re.compile(
    r"\x1b\]0;[^\x00-\x1f\x7f-\x9f]*\x07"
    r"|(?:\x1b\]9;[^\x00-\x1f\x7f-\x9f]*\x1b\\)"
    r"|(?:\x1b\]777;notify;[^;\x00-\x1f\x7f-\x9f]*;[^;\x00-\x1f\x7f-\x9f]*\x1b\\)"
    r"|(?:\x1b\]99;i=supervisor:d=[01]:p=(?:title|body);[^;\x00-\x1f\x7f-\x9f]*\x1b\\){2}"
)


@given(st.text(), st.text(), st.sampled_from(["9", "99", "777"]))
def test_no_text_drives_the_terminal(heading: str, body: str, way: str) -> None:
    """Whatever a server says: one sequence, whole, of its kind, and nothing behind it."""
    assert _WHOLE.fullmatch(title(heading))
    assert _WHOLE.fullmatch(notification(heading, body, way))
    wrapped = through_tmux(notification(heading, body, way))
    inner = wrapped.removeprefix("\x1bPtmux;").removesuffix("\x1b\\")
    assert "\x1b\\" not in inner.replace("\x1b\x1b", "")


@given(st.text())
def test_a_message_is_never_taken_for_a_progress_bar(text: str) -> None:
    """OSC 9 with a number and a `;` is something else to Windows' terminals: 9;4 draws a progress bar."""
    assert not re.match(r"\x1b\]9;\d+;", notification(text, text, "9"))

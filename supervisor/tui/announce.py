r"""What a terminal is told beside the picture: the bell, its title, a notification of its own. Escape texts, made pure.

There is no notification that all terminals know, and one that knows two would show two, so one is chosen by what the
environment says: kitty's OSC 99, the OSC 777 of rxvt and foot, else iTerm2's OSC 9, which most of the others know and
the rest ignore. A terminal that would print an unknown sequence (the Linux console, GNU screen, `dumb`) gets the bell
alone. Inside tmux a notification is wrapped, so that it comes through where tmux was told to let it, and is nothing
where it was not. No text of anybody's can end a sequence and begin another: controls are taken out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisor.core.lines import sanitise
from supervisor.core.notices import Notice

BEL = "\a"
ST = "\x1b\\"
MAX_TITLE = 120
MAX_BODY = 240


def clean(text: str, length: int) -> str:
    """The text in one line, without anything that a terminal obeys. `;` parts the fields of a sequence."""
    text = " ".join(sanitise(text).split()).replace(";", ",")
    return text if len(text) <= length else text[: length - 1] + "…"


def title(text: str) -> str:
    """The title of the window and of its icon (of the pane, in tmux)."""
    return f"\x1b]0;{clean(text, MAX_TITLE)}{BEL}"


def keep_title() -> str:
    """Have the terminal remember its title (xterm and most others)."""
    return "\x1b[22;0t"


def title_back() -> str:
    """The title that was remembered."""
    return "\x1b[23;0t"


def notification(heading: str, body: str, way: str) -> str:
    """A notification by one of the ways of `way_of`, empty for none."""
    heading, body = clean(heading, MAX_TITLE), clean(body, MAX_BODY)
    match way:
        case "99":
            return f"\x1b]99;i=supervisor:d=0:p=title;{heading}{ST}\x1b]99;i=supervisor:d=1:p=body;{body}{ST}"
        case "777":
            return f"\x1b]777;notify;{heading};{body}{ST}"
        case "9":
            return f"\x1b]9;{heading}: {body}{ST}"
        case _:
            return ""


def through_tmux(sequence: str) -> str:
    """The same for the terminal around tmux; each escape doubled, as tmux wants it."""
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + ST if sequence else ""


def way_of(environ: Mapping[str, str]) -> str:
    """How this terminal is notified: `99`, `777`, `9`, or empty for not at all."""
    term = environ.get("TERM", "")
    if not _takes_sequences(environ):
        return ""
    if "kitty" in term or environ.get("KITTY_WINDOW_ID"):
        return "99"
    if term.startswith(("rxvt", "foot")):
        return "777"
    return "9"


def _takes_sequences(environ: Mapping[str, str]) -> bool:
    """Whether an unknown sequence is ignored, and not printed."""
    term = environ.get("TERM", "")
    if environ.get("TMUX"):
        return True
    return term not in ("", "linux", "dumb", "unknown") and not term.startswith("screen") and not environ.get("STY")


class Announcer:
    """Bell, title and notification of one terminal.

    Args:
        write: takes what goes to the terminal as it is (Textual's driver).
        environ: of the process.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        environ: Mapping[str, str],
        *,
        bell: bool = True,
        terminal: bool = True,
        title: bool = True,
    ) -> None:
        self._write = write
        self._bell = bell
        self._way = way_of(environ) if terminal else ""
        self._titles = title and _takes_sequences(environ)
        self._tmux = bool(environ.get("TMUX"))
        self._title = ""

    def begin(self) -> None:
        """Before the first title."""
        if self._titles:
            self._write(keep_title())

    def show_title(self, text: str) -> None:
        """Put the title there, if it is another one than before."""
        text = clean(text, MAX_TITLE)
        if self._titles and text != self._title:
            self._title = text
            self._write(title(text))

    def announce(self, notice: Notice) -> None:
        """Ring, and notify."""
        sequence = notification(notice.title, notice.text, self._way)
        text = (BEL if self._bell else "") + (through_tmux(sequence) if self._tmux else sequence)
        if text:
            self._write(text)

    def end(self) -> None:
        """The title of before comes back."""
        if self._titles and self._title:
            self._write(title_back())
            self._title = ""

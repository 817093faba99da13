"""The console's own themes beside Textual's: a calm one, and one that nobody's eyes confuse. Colours, nothing else.

Red and green must never be the only difference: every state has its own mark as well (✔ ✘ ▲ ● ○).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from textual.theme import Theme

SWITCH = "SUPERVISOR_THEME"

CALM = Theme(
    name="supervisor",
    primary="#6fb3f2",
    secondary="#4b7ba6",
    accent="#6fb3f2",
    warning="#e5b567",
    error="#ef6b73",
    success="#7cc48d",
    foreground="#d8dde3",
    background="#14171b",
    surface="#1a1e24",
    panel="#20262d",
    dark=True,
)
COLOUR_BLIND = Theme(
    name="supervisor-colour-blind",
    # Blue, sky, orange, vermilion of Okabe and Ito: told apart with every kind of colour vision, and by lightness too.
    primary="#56b4e9",
    secondary="#0072b2",
    accent="#56b4e9",
    warning="#f0e442",
    error="#e8743b",
    success="#4ea5ff",
    foreground="#e4e6e8",
    background="#121417",
    surface="#1a1d21",
    panel="#22262b",
    dark=True,
)
OWN = (CALM, COLOUR_BLIND)
DEFAULT = CALM.name


def chosen(environ: Mapping[str, str], known: Collection[str]) -> tuple[str, str]:
    """The theme that the environment asks for, and a sentence where there is none of that name."""
    wanted = environ.get(SWITCH, "").strip()
    if not wanted or wanted in known:
        return wanted or DEFAULT, ""
    return DEFAULT, f"{SWITCH}: there is no theme {wanted!r} (ctrl+p, then Theme, shows them all)"

"""One session in a few words: what a table of several profiles shows of it. Pure."""

from __future__ import annotations

from msgspec import Struct

from supervisor.core import events as ev
from supervisor.core.events import LinkState, Phase
from supervisor.core.gpu import gib
from supervisor.tui import format_gpus
from supervisor.tui.format import LOADS, PHASE_ROLES, known_until, simulated
from supervisor.tui.format_health import OLD_S, of_this_run, verdict
from supervisor.tui.gpu_words import spaces, sums, troubles
from supervisor.tui.model import SessionModel
from supervisor.tui.pieces import Piece, Pieces, age, one_line

_SIGNS = {
    Phase.IDLE: "○",
    Phase.SERVING: "✔",
    Phase.DEGRADED: "▲",
    Phase.FAILED: "✘",
    Phase.STOPPING: "■",
    Phase.STOPPED: "■",
}


class Summary(Struct, frozen=True):
    """One session. Every pair is a text and its role; an empty text stands for nothing to tell."""

    title: str
    node: str
    phase: Piece
    """ "● loading", with its sign."""
    since_s: float
    """For how long it is in this phase."""
    run_s: float | None
    """Since the launch, None without a run; of a run that is over: how long it took."""
    stage: str
    """ "weights 41/64"."""
    fraction: float | None
    left_s: float | None
    """Of the whole load, or else of its stage."""
    memory: str
    """ "351.2 GiB of 764.8 GiB": what is used."""
    used_bytes: int | None
    total_bytes: int | None
    ours_bytes: int | None
    gpus: Pieces
    """A character a GPU."""
    health: Piece
    link: Piece
    trouble: Piece
    """The gravest thing of all that is wrong."""
    simulated: bool


def summary(model: SessionModel, now: float) -> Summary:
    """The session as it stands."""
    view = model.view
    progress = view.progress if view.phase in LOADS else None
    told = sums(spaces(view.gpu)) if view.gpu is not None else None
    known = told is not None and told.known > 0
    last = known_until(view, now)
    return Summary(
        title=one_line(model.mask(model.title)),
        node=one_line(model.mask(model.node)),
        phase=(f"{_SIGNS.get(view.phase, '●')} {ev.LABELS[view.phase]}", PHASE_ROLES.get(view.phase, "now")),
        since_s=max(0.0, last - view.since) if view.changes else 0.0,
        run_s=_run_s(model, now),
        stage=_stage(model, progress),
        fraction=progress.fraction if progress is not None else None,
        left_s=_left_s(model, progress, last),
        memory=told.amount() if told is not None and known else "",
        used_bytes=told.used_bytes if told is not None and known else None,
        total_bytes=told.total_bytes if told is not None and known else None,
        ours_bytes=view.gpu.ours_bytes if view.gpu is not None else None,
        gpus=format_gpus.columns(view.gpu) if view.gpu is not None else (),
        health=_health(model, now),
        link=_link(view.link, now),
        trouble=_trouble(model, now),
        simulated=simulated(view, model.title),
    )


def _run_s(model: SessionModel, now: float) -> float | None:
    view = model.view
    if not view.changes or view.phase is Phase.IDLE:
        return None
    began = next((change.at for change in view.changes if change.to is Phase.LAUNCHING), view.changes[0].at)
    return max(0.0, (view.since if view.phase in (Phase.FAILED, Phase.STOPPED) else now) - began)


def _stage(model: SessionModel, progress: ev.Progress | None) -> str:
    if progress is None:
        return ""
    total = f"/{progress.total:,}" if progress.total is not None else ""
    return one_line(model.mask(progress.stage)) + (f" {progress.done:,}{total}" if progress.done is not None else "")


def _left_s(model: SessionModel, progress: ev.Progress | None, now: float) -> float | None:
    if progress is None:
        return None
    if progress.eta_s is not None:
        return max(0.0, progress.eta_s - max(0.0, now - progress.at))
    return model.trail.stage_left_s(now)


def _health(model: SessionModel, now: float) -> Piece:
    event = of_this_run(model)
    if event is None:
        return ("", "dim")
    text, role = verdict(event)
    old_s = now - event.at
    return (f"{text}, {age(old_s)} ago", "warn") if old_s > OLD_S else (text, role)


def _link(event: ev.LinkEvent | None, now: float) -> Piece:
    if event is None or event.state is LinkState.CONNECTING:
        return ("connecting", "now")
    if event.state is LinkState.UP:
        return ("", "good")
    return (f"link {event.state.value} {age(now - event.at)}", "bad" if event.state is LinkState.DOWN else "warn")


def _trouble(model: SessionModel, now: float) -> Piece:
    view = model.view
    if model.error:
        return (one_line(model.mask(model.error)), "bad")
    if view.finding is not None:
        return (one_line(model.mask(view.finding.cause)), "bad")
    if view.phase in (Phase.FAILED, Phase.DEGRADED) and view.changes:
        text = " · ".join(item.text for item in view.changes[-1].evidence)
        return (one_line(model.mask(text)), "bad" if view.phase is Phase.FAILED else "warn")
    link = _link(view.link, now)
    if link[0] and link[1] in ("warn", "bad"):
        return link
    if view.gpu is not None:
        told = sums(view.gpu.gpus)
        if told.lost:
            return (f"{told.lost} {'GPU' if told.lost == 1 else 'GPUs'} lost", "bad")
        if found := troubles(view.gpu, now):
            return found[-1]
    zombies = [holder for holder in (view.holders.holders if view.holders is not None else ()) if holder.zombie]
    if zombies:
        amounts = [holder.held_bytes for holder in zombies]
        held = f", {gib(sum(filter(None, amounts)))}" if None not in amounts else ""
        return (f"{len(zombies)} left over{held}", "warn")
    warnings = model.warnings(unread=True)
    return (one_line(model.mask(warnings[-1].text)), "warn") if warnings else ("", "dim")

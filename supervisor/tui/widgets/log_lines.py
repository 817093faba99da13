"""The rows of a log on the screen, by Textual's line API: draws what `LogView` says and hands it what is scrolled.

Not built on Textual's own Log: 8.2.8's `Log(max_lines=N)` stops redrawing once it holds N lines, and RichLog costs 2 KB
a line. Only the rows on the screen are ever decoded, masked and styled. It reads no file and searches nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Offset, Region, Size, Spacing
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from supervisor.core.log_levels import Level
from supervisor.tui.log_text import cells
from supervisor.tui.log_view import LogView, ScreenRow

WHEEL_ROWS = 3
_NO_GUTTER = Spacing()
_LEVELS: dict[Level, list[str]] = {Level.ALL: [], Level.WARNING: ["warning"], Level.ERROR: ["error"]}
COPIED_LINES = 100_000
"""More than this no clipboard takes from a terminal."""

Spans = Callable[[str], list[tuple[int, int]]]


class Looks(Struct, frozen=True):
    """What a strip depends on beside its row; strips are kept by both."""

    row: ScreenRow
    selected: bool
    current: bool
    span: tuple[int, int] | None


class LogLines(ScrollView, can_focus=True, inherit_bindings=False):
    """Draws a `LogView`. Its scroll position is a picture of the view's place, not the other way round."""

    COMPONENT_CLASSES = {
        f"log--{name}"
        for name in (
            *("number", "number-current", "rule", "living", "absent", "warning", "error"),
            *("match", "match-current", "selected", "current"),
        )
    }

    class Moved(Message):
        """The user has scrolled, or clicked on a line."""

    def __init__(self, view: LogView, take_key: Callable[[events.Key], Awaitable[bool]]) -> None:
        super().__init__()
        self.view = view
        self._take_key = take_key
        self.spans: Spans | None = None
        """Where a line's matches are."""
        self._rows: list[ScreenRow] = []
        self._strips: LRUCache[Looks, Strip] = LRUCache(1024)
        self._styles: dict[tuple[str, ...], Style] = {}
        self._painting = False

    # ------------------------------------------------------------------------------- what stands there

    def show(self, *, restyle: bool = False) -> None:
        """Look at the view anew; nothing is painted where nothing has changed."""
        view = self.view
        before = (self._rows, view.pan)
        view.width, view.height = self.scrollable_content_region.size
        view.lines.refresh()
        self._rows = view.draw()
        self._picture()
        if restyle:
            self._forget_looks()
        if restyle or (self._rows, view.pan) != before:
            self.refresh()

    def _picture(self) -> None:
        """The scrollbar: as far down as the view is, without a turn of the whole layout for every line that comes."""
        count = self.view.lines.count
        if self.view.wrap:
            count += max(0, self.view.height - len({row.line_no for row in self._rows}))
        if count != self.virtual_size.height:
            self.set_reactive(Widget.virtual_size, Size(self.view.width, count))
            self.vertical_scrollbar.window_virtual_size = count
        top = self.max_scroll_y if self.view.following else self.view.lines.index(self.view.place.line_no)
        if round(self.scroll_y) != min(top, self.max_scroll_y):
            self.set_scroll(None, min(top, self.max_scroll_y))
            self.set_reactive(Widget.scroll_target_y, min(top, self.max_scroll_y))
            self.vertical_scrollbar.position = self.scroll_y

    def on_resize(self, _event: events.Resize) -> None:
        """Textual's hook."""
        self.show(restyle=True)

    def notify_style_update(self) -> None:
        """Textual's hook: the theme has changed."""
        super().notify_style_update()
        self._forget_looks()

    def watch_has_focus(self, has_focus: bool) -> None:
        """Textual's hook: a layout may draw what has the keys in other colours."""
        super().watch_has_focus(has_focus)
        self._forget_looks()

    def _forget_looks(self) -> None:
        self._strips.clear()
        self._styles.clear()

    def in_sight(self) -> list[int]:
        """The first and the last held line on the screen."""
        held = [row.line_no for row in self._rows if row.held]
        return [held[0], held[-1]] if held else []

    # ------------------------------------------------------------------------------- scrolling

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Textual's hook: a scrollbar was dragged, a selection scrolls. Our own places do not come this way."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) == round(new_value):
            return
        if round(new_value) >= self.max_scroll_y:
            self.view.follow()
        else:
            self.view.to_index(round(new_value))
        self._moved()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Textual's hook."""
        self._wheel(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Textual's hook."""
        self._wheel(event, -1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        event.stop()
        event.prevent_default()
        if event.shift or event.ctrl:
            self.view.pan_by(direction)
        else:
            self.view.scroll(direction * WHEEL_ROWS)
        self._moved()

    def scroll_page_up(self, **_how: object) -> None:
        """Textual's hook: a click above the scrollbar's thumb."""
        self.view.scroll(-max(1, self.view.height - 1))
        self._moved()

    def scroll_page_down(self, **_how: object) -> None:
        """Textual's hook: a click below the scrollbar's thumb."""
        self.view.scroll(max(1, self.view.height - 1))
        self._moved()

    def _moved(self) -> None:
        self.show()
        self.post_message(self.Moved())

    async def on_key(self, event: events.Key) -> None:
        """Textual's hook. Keys act here, in the order in which they came: those of "/error" that are already on their
        way when the bar opens are the bar's."""
        if await self._take_key(event):
            event.stop()
            event.prevent_default()

    # ------------------------------------------------------------------------------- the mouse on lines

    def on_click(self, event: events.Click) -> None:
        """Textual's hook: a click makes the line the current one; a double click selects it, and not the whole log."""
        event.prevent_default()
        row = self._row_at(event.get_content_offset(self))
        if row is not None:
            if event.chain > 1:
                self.view.unselect()
                self.view.current = row.line_no
                self.view.extend(down=True)
                self.view.current = row.line_no
            else:
                self.view.unselect()
                self.view.current = row.line_no
            self._strips.clear()
            self.refresh()
            self._moved()

    def _row_at(self, offset: Offset | None) -> ScreenRow | None:
        return self._rows[offset.y] if offset is not None and 0 <= offset.y < len(self._rows) else None

    def selection_updated(self, selection: Selection | None) -> None:
        """Textual's hook: what the mouse is drawn over must not run away under it."""
        if selection is not None:
            self.view.pause()
            self.post_message(self.Moved())
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Textual's hook: the text under the mouse's selection. Its rows are the lines of the file."""
        first = selection.start.y if selection.start is not None else self.view.lines.first
        last = selection.end.y if selection.end is not None else self.view.lines.last
        texts: list[str] = []
        line: int | None = first
        while line is not None and line <= last and len(texts) < COPIED_LINES:
            text = self.view.lines.shown(line).text
            start, end = selection.get_span(line) or (0, 0)
            texts.append(text[start : len(text) if end == -1 else end])
            line = self.view.lines.after(line)
        return "\n".join(texts), "\n"

    # ------------------------------------------------------------------------------- drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        """Textual's hook: only here is anything painted.

        Past Textual's cache of styled lines: here are no borders, and in a flood no line is seen twice.
        """
        self._painting = True
        try:
            if self.styles.gutter != _NO_GUTTER or self.opacity < 1:
                return super().render_lines(crop)
            strips = [self.render_line(y) for y in crop.line_range]
        finally:
            self._painting = False
        if crop.column_span != (0, self.size.width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        filters = self.get_line_filters()
        if filters:
            _, background = self.background_colors
            for line_filter in filters:
                strips = [strip.apply_filter(line_filter, background) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """Textual's hook: one row of the screen."""
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self._style())
        row = self._rows[y]
        looks = self._looks(row)
        strip = self._strips.get(looks)
        if strip is None:
            strip = self._strips[looks] = self._strip(looks)
        if not self._painting:
            # Asked by a mouse: which character of which line is under it. Too dear to paint with.
            return self._with_offsets(strip, row)
        return strip

    def _looks(self, row: ScreenRow) -> Looks:
        span = None
        selection = self.text_selection
        if selection is not None and row.rule is None:
            span = selection.get_span(row.line_no)
            if span is not None and span[1] == -1:
                span = (span[0], len(row.text))
        return Looks(
            row,
            self.view.selects(row.line_no),
            row.line_no == self.view.current,
            span,
        )

    def _base(self, looks: Looks) -> Style:
        """The style of a row's text."""
        row = looks.row
        if row.rule is not None:
            return self._style("rule")
        names = ["absent"] if not row.held else ["living"] if row.living else _LEVELS[row.level]
        if looks.selected:
            return self._style(*names, "selected")
        return self._style(*names, "current") if looks.current else self._style(*names)

    def _style(self, *names: str) -> Style:
        """Of the rows, with what the layout says of these over it, blended; looked up once."""
        style = self._styles.get(names)
        if style is None:
            style = self.rich_style
            for name in names:
                whole = self.get_component_rich_style(f"log--{name}")
                says = self.get_component_rich_style(f"log--{name}", partial=True)
                style += Style(
                    color=whole.color if says.color else None,
                    bgcolor=whole.bgcolor if says.bgcolor else None,
                    bold=says.bold,
                    underline=says.underline,
                    reverse=says.reverse,
                )
            self._styles[names] = style
        return style

    def _strip(self, looks: Looks) -> Strip:
        row, gutter, width = looks.row, self.view.gutter, self.size.width
        base = self._base(looks)
        if row.rule is not None:
            rule = f"{' ' * gutter}── {row.rule} {'─' * self.view.width}"
            return Strip([Segment(rule, base)]).crop(0, self.view.width).extend_cell_length(width, base)
        segments: list[Segment] = []
        if gutter:
            number = f"{row.line_no:>{gutter - 2}}  " if row.first else " " * gutter
            segments.append(Segment(number, self._style("number-current" if looks.current else "number")))
        if row.lead:
            segments.append(Segment(" " * row.lead, base))
        segments += [Segment(row.text[start:end], style) for start, end, style in self._styled(looks, base)]
        if (blank := width - gutter - row.lead - cells(row.text[row.start : row.end])) > 0:
            segments.append(Segment(" " * blank, base))
        return Strip(segments, width)

    def _styled(self, looks: Looks, base: Style) -> list[tuple[int, int, Style]]:
        """The row's part of the line, cut where the style changes: matches, and the mouse's selection over them."""
        row = looks.row
        if row.start == row.end:
            return []
        if self.spans is None and looks.span is None:
            return [(row.start, row.end, base)]
        layers: list[tuple[int, int, Style]] = []
        if self.spans is not None:
            style = self._style("match-current" if looks.current else "match")
            layers += [(start, end, style) for start, end in self.spans(row.text)]
        if looks.span is not None:
            layers.append((*looks.span, self.screen.get_component_rich_style("screen--selection")))
        inside = [
            (max(start, row.start), min(end, row.end), style)
            for start, end, style in layers
            if start < row.end and end > row.start
        ]
        cuts = sorted({row.start, row.end, *(start for start, _, _ in inside), *(end for _, end, _ in inside)})
        parts: list[tuple[int, int, Style]] = []
        for start, end in pairwise(cuts):
            style = base
            for from_, to, layer in inside:
                if from_ <= start and end <= to:
                    style += layer
            parts.append((start, end, style))
        return parts

    def _with_offsets(self, strip: Strip, row: ScreenRow) -> Strip:
        """The strip with its characters' places in the log: x in the line, y the line's number."""
        gutter = self.view.gutter + row.lead
        body = strip.crop(gutter, self.view.width)
        head = [
            Segment(segment.text, (segment.style or Style()) + Style.from_meta({"offset": (row.start, row.line_no)}))
            for segment in strip.crop(0, gutter)
        ]
        return Strip([*head, *body.apply_offsets(row.start, row.line_no)])

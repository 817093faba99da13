"""The keys of the log: each calls the method of the pane that it names (`LogPane.action_log`)."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("slash", "log('open_bar', 'search')", "search", id="log.search"),
    Binding("e", "log('next_error')", "errors", id="log.next_error"),
    Binding("f", "log('toggle_following')", "follow", id="log.follow"),
    Binding("E", "log('previous_error')", "previous error", id="log.previous_error", show=False),
    Binding("n", "log('next_match')", "next match", id="log.next_match", show=False),
    Binding("N", "log('previous_match')", "previous match", id="log.previous_match", show=False),
    Binding("ampersand", "log('open_bar', 'filter')", "show only lines with …", id="log.filter", show=False),
    Binding("L", "log('next_level')", "all lines, warnings and errors, errors", id="log.level", show=False),
    Binding("F", "log('fetch_older')", "fetch older lines and search them", id="log.fetch", show=False),
    Binding("m", "log('next_mark')", "where the next phase began", id="log.next_mark", show=False),
    Binding("M", "log('previous_mark')", "where the phase before began", id="log.previous_mark", show=False),
    Binding("colon", "log('open_bar', 'line')", "go to a line", id="log.line", show=False),
    Binding("w", "log('toggle_wrap')", "wrap long lines", id="log.wrap", show=False),
    Binding("o", "log('open', False)", "open the log in the pager, here", id="log.open", show=False),
    Binding("O", "log('open', True)", "open the log in the editor, here", id="log.edit", show=False),
    Binding("space", "log('pick')", "select a line", id="log.pick", show=False),
    Binding("shift+up", "log('extend', -1)", "select upwards", id="log.select_up", show=False),
    Binding("shift+down", "log('extend', 1)", "select downwards", id="log.select_down", show=False),
    Binding("escape", "log('leave')", "end the selection, the search, the filter", id="log.leave", show=False),
    Binding("up", "log('scroll_rows', -1)", "line up", id="log.up", show=False),
    Binding("down", "log('scroll_rows', 1)", "line down", id="log.down", show=False),
    Binding("pageup", "log('scroll_pages', -1)", "page up", id="log.page_up", show=False),
    Binding("pagedown", "log('scroll_pages', 1)", "page down", id="log.page_down", show=False),
    Binding("home", "log('to_start')", "start of the log", id="log.start", show=False),
    Binding("end", "log('follow')", "end of the log", id="log.end", show=False),
    Binding("left", "log('pan', -1)", "left in long lines", id="log.left", show=False),
    Binding("right", "log('pan', 1)", "right in long lines", id="log.right", show=False),
]

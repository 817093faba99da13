"""The time left, on recorded starts replayed with their timing: how wrong it is at 25, 50 and 75 % of the load.

    .venv/bin/python scripts/bench/eta.py

The error is (estimate - truth) / the whole load's time, so +0.10 of a load of 10 minutes is a minute too many. "none":
no estimate was given. With history: another start of the same machine and nearly the same command where there is one
(`pair`), else the same start with every segment up to 20 % shorter or longer (`itself ±20 %`, the median of 9 fixed
seeds): that is what an earlier run is like at best, so read it as the method's own error and not as a promise.
"""

from __future__ import annotations

import statistics

import starts

NONE, PAIR, ITSELF = "no history", "one earlier run, a pair", "one earlier run, itself ±20 %"


def main() -> None:
    """Print the table."""
    print(f"{'start':<58}{'load s':>8}   {'no history':^24}   {'one earlier run':^24}")
    print(f"{'':<66}   {'25 %':>8}{'50 %':>8}{'75 %':>8}   {'25 %':>8}{'50 %':>8}{'75 %':>8}")
    columns: dict[str, list[list[float | None]]] = {NONE: [], PAIR: [], ITSELF: []}
    for engine, names in starts.RUNS.items():
        for name in names:
            start = starts.load(name, engine)
            pair = starts.PAIRS.get(name)
            without, with_one = starts.errors(start, []), starts.with_history(start)
            if start.total_s >= starts.LEAST_S:
                columns[NONE].append(without)
                columns[PAIR if pair else ITSELF].append(with_one)
            cells = "".join(f"{_cell(item):>8}" for item in without) + "   "
            cells += "".join(f"{_cell(item):>8}" for item in with_one)
            print(f"{name:<58}{start.total_s:>8.1f}   {cells}   {'pair ' + pair if pair else 'itself ±20 %'}")
    print(f"\nmedian of the error's size, starts of {starts.LEAST_S:.0f} s and more ({len(columns[NONE])} of them):")
    for title, rows in columns.items():
        told = []
        for place, point in enumerate(starts.POINTS):
            known = [abs(value) for row in rows if (value := row[place]) is not None]
            middle = f"{statistics.median(known):.0%}" if known else "-"
            told.append(f"{point:.0%}: {middle} (told in {len(known)} of {len(rows)})")
        print(f"  {title:<30} {', '.join(told)}")


def _cell(value: float | None) -> str:
    return "none" if value is None else f"{value:+.2f}"


if __name__ == "__main__":
    main()

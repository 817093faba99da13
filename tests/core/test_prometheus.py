"""The text of Prometheus: what real exporters write, what a hostile one could, and any bytes at all."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import prometheus
from supervisor.core.prometheus import MAX_BYTES, Expression, Series, expression, parse

PAGE = b"""\
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a",} 4
vllm:num_requests_running_more{engine="0"} 99
# vllm:num_requests_running 98
up 1
up{job="x"} 2 1764500000000
up{job="y"}\t3.5e3
left{reason="it said \\"no\\",\\nthen } and \\\\"} 7
"""


def test_what_exporters_write() -> None:
    found = parse(PAGE, ["vllm:num_requests_running", "up", "left", "nowhere"])
    running = found["vllm:num_requests_running"]
    assert [one.value for one in running] == [3.0, 4.0]
    assert running[0].labels == {"engine": "0", "model_name": "a"}
    assert running[1].labels == {"engine": "1", "model_name": "a"}  # a comma before the brace is allowed
    assert found["up"] == [Series({}, 1), Series({"job": "x"}, 2), Series({"job": "y"}, 3500)]
    assert found["left"][0].labels == {"reason": 'it said "no",\nthen } and \\'}
    assert "nowhere" not in found


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "", "x", "1_000", "0x10", "1,5", "--1", "{}"])
def test_what_is_no_number_is_not_told(value: str) -> None:
    assert parse(f'up{{a="b"}} {value}\nup 1\n'.encode(), ["up"]) == {"up": [Series({}, 1)]}


def test_a_line_that_was_cut_is_not_read() -> None:
    """Half of 1234567 would be another number, and a wrong rate."""
    line = b"up 1234567\n"
    page = line * (MAX_BYTES // len(line) + 5)
    values = {one.value for one in parse(page, ["up"])["up"]}
    assert values == {1234567.0}


@pytest.mark.parametrize(
    "page",
    [
        b'up{a="' + b"\\" * 500_000 + b"\nup 1\n",
        b"up{" + b'a="b",' * 100_000 + b"\nup 1\n",
        b"up{" + b'"' * 500_001 + b"\nup 1\n",
        b"up{" * 200_000 + b"\nup 1\n",
        (b'up{a="' + b"x" * 900 + b"\n") * 1000 + b"up 1\n",
        b"up " + b"9" * 900_000 + b"\nup 1\n",
    ],
    ids=["backslashes", "labels without an end", "quotes", "braces", "open quotes", "digits"],
)
def test_no_text_costs_more_than_its_length(page: bytes) -> None:
    began = time.perf_counter()
    found = parse(page, ["up"])
    assert time.perf_counter() - began < 2.0
    assert found["up"][-1] == Series({}, 1)


def test_very_many_series_are_cut_off() -> None:
    page = b"".join(b'up{n="%d"} 1\n' % number for number in range(30_000))
    assert len(parse(page, ["up"])["up"]) <= prometheus.MAX_SERIES + 1


@given(st.binary(max_size=400), st.lists(st.text(max_size=8), max_size=4))
def test_any_bytes_and_any_names_do_no_harm(data: bytes, names: list[str]) -> None:
    for one in [data, PAGE[:100] + data + PAGE[100:]]:
        for found in parse(one, [*names, "up"]).values():
            assert all(math.isfinite(series.value) for series in found)


_LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=12), max_size=4
)
_VALUES = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(_LABELS, _VALUES), max_size=6))
def test_what_is_written_comes_back(series: list[tuple[dict[str, str], float]]) -> None:
    def line(labels: dict[str, str], value: float) -> str:
        quoted = (
            name + '="' + text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") + '"'
            for name, text in labels.items()
        )
        return f"a:b_c{{{','.join(quoted)}}} {value!r}\n"

    page = "".join(line(*one) for one in series).encode("utf-8", "surrogatepass")
    found = parse(page, ["a:b_c"]).get("a:b_c", [])
    assert [one.value for one in found] == [value for _, value in series]
    assert [dict(one.labels) for one in found] == [labels for labels, _ in series]


# ------------------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("up", Expression("up")),
        ("rate(up)", Expression("up", rate=True)),
        ('a:b{mode="decode"}', Expression("a:b", (("mode", "decode"),))),
        (' rate( a:b{ mode="decode", x="" } ) ', Expression("a:b", (("mode", "decode"), ("x", "")), rate=True)),
    ],
)
def test_an_expression_is_read_and_written(text: str, meant: Expression) -> None:
    assert expression(text) == meant
    assert expression(str(meant)) == meant


@pytest.mark.parametrize(
    "text", ["", "1up", "rate(up", "up)", "rate()", "up{mode=decode}", "up{mode}", "rate(rate(up))", "up 1", "sum(up)"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NAME|label="):
        expression(text)


def test_an_empty_label_means_without_it() -> None:
    found = parse(b'n{p=""} 1\nn{p="1"} 2\nn 4\n', ["n"])["n"]
    assert [one.value for one in expression('n{p=""}').of(found)] == [1, 4]
    assert [one.value for one in expression('n{p="1"}').of(found)] == [2]
    assert len(expression("n").of(found)) == 3

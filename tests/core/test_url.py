"""A URL is refused with its own reason, or can be looked at: nothing in between reaches the libraries below."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.url import Url, UrlError, parse

MALFORMED = {
    "": "begins with http",
    "127.0.0.1:30000/health": "begins with http",
    "ftp://127.0.0.1/": "only http and https",
    "http://": "names no host",
    "http:///health": "names no host",
    "http://127.0.0.1:0/": "port 0",
    "http://127.0.0.1:99999/": "ort out of range",
    "http://127.0.0.1:health/": "ort could not be cast",
    "http://127.0.0.1:-1/": "ort",
    "http://user:secret@127.0.0.1/": "user or a password",
    "http://127.0.0.1 /health": "blanks",
    "http://127.0.0.1/he\nalth": "control characters",
    "http://[::1/": "Invalid IPv6",
    "http://[::zz]/": "::zz",
    "http://[::1]x:80/": "no port",
    "http://[fe80::1%25lo]:1/": "zone",
    "http://a..b/": "no host name",
    "http://.invalid/": "no host name",
    "http://-a.invalid/": "no host name",
    f"http://{'a' * 64}.invalid/": "no host name",
    "http://a\\b/": "no host name",
    "http://ho%73t/": "no host name",
    "http://999.1.1.1/": "no IPv4 address",
    "http://1.2.3/": "no IPv4 address",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_url_is_refused_by_name(text: str) -> None:
    with pytest.raises(UrlError, match=MALFORMED[text]) as caught:
        parse(text)
    assert "secret" not in str(caught.value)


def test_what_is_meant_is_taken() -> None:
    assert parse("http://LOCALHOST:30000/health?a=b") == Url("http", "localhost", 30000, "/health?a=b")
    assert parse("https://[::1]") == Url("https", "::1", 443, "/")
    assert parse("http://my_node.lan.:80/") == Url("http", "my_node.lan", 80, "/")
    assert parse("http://b\u00fccher.invalid/\u00fc%20") == Url("http", "xn--bcher-kva.invalid", 80, "/%C3%BC%20")


@pytest.mark.parametrize(
    "host", ["localhost", "x.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]"]
)
def test_every_way_to_write_this_machine_is_loopback(host: str) -> None:
    """Wildcards too: they are looked at on a loopback, and no proxy of the environment may be asked for that."""
    assert parse(f"http://{host}:1/").is_loopback


@pytest.mark.parametrize("host", ["10.0.0.1", "[::2]", "gpu1", "localhost.example", "[::ffff:10.0.0.1]"])
def test_other_machines_are_not(host: str) -> None:
    assert not parse(f"http://{host}:1/").is_loopback


@given(st.text(max_size=40), st.text(max_size=20))
def test_whatever_is_taken_can_be_asked_for(host: str, path: str) -> None:
    """The HTTP library takes every URL that we took, in ASCII, with the same host."""
    try:
        url = parse(f"http://{host}:8000/{path}")
    except UrlError:
        return
    for address in url.addresses:
        request = httpx.Request("GET", url.with_host(address), headers={"Host": url.host_header})
        assert request.url.raw_host.decode() == address.strip("[]")
        assert (request.url.port or 80) == url.port  # a "#" in the host leaves the port to the fragment
    url.host.encode("idna")

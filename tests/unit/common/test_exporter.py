"""The exporter over a real socket: what it serves, what it leaves behind, and what it refuses."""

from __future__ import annotations

import socket
import sys
import threading
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.common.errors import ConfigError
from headrace.common.exporter import Exporter, MetricsConfig
from headrace.common.figures import Family

ABOUT = (("run", "swing"), ("role", "actor"), ("id", 'arm "0"'))


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def test_each_scrape_is_asked_for_anew_and_nothing_is_left_when_the_block_ends():
    before, told, asked = threading.active_count(), [], []

    def look():
        asked.append(1)
        yield Family("headrace_rows_total", "rows", "", (("", float(len(asked))),))
        yield Family("headrace_age_seconds", "age", "actor", (("arm-0", 0.5), ('a"\n', 1.0)))

    with Exporter(MetricsConfig("127.0.0.1:0"), ABOUT, told.append).serve(look):
        assert scrape(told[0])["headrace_rows"].samples[0].value == 1
        found = scrape(told[0])
    assert found["headrace_rows"].type == "counter"
    assert found["headrace_rows"].samples[0].value == 2
    assert {s.labels["actor"]: s.value for s in found["headrace_age_seconds"].samples} == {"arm-0": 0.5, 'a"\n': 1.0}
    assert found["headrace_info"].samples[0].labels == dict(ABOUT)
    assert threading.active_count() == before
    with pytest.raises(OSError, match="refused"):
        scrape(told[0])


def test_nothing_listens_unless_it_is_asked_for():
    assert MetricsConfig().bind == ""
    before = threading.active_count()
    with Exporter().serve(lambda: pytest.fail("nobody asks")):
        assert threading.active_count() == before


def test_a_disk_that_does_not_take_the_address_ends_nothing(caplog):
    def announce(address):
        raise OSError(28, "No space left on device")

    with Exporter(MetricsConfig("127.0.0.1:0"), (), announce).serve(tuple):
        assert "is not written down" in caplog.text


@pytest.mark.parametrize("bind", ["127.0.0.1", ":9400", "127.0.0.1:", "h:65536", "h:-1", "h:²", "9400"])
def test_what_is_no_address_is_refused(bind):
    with pytest.raises(ConfigError, match=r"metrics\.bind: .* is not HOST:PORT; nearest valid: 127\.0\.0\.1:0"):
        MetricsConfig(bind).check()


def test_a_port_that_is_taken_and_a_package_that_is_missing_are_told_with_what_to_do(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"{bind} cannot be taken: .*in use; .* 0 picks a free one"):
            Exporter(MetricsConfig(bind)).serve(tuple).__enter__()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'headrace\[metrics\]'"):
        Exporter(MetricsConfig("127.0.0.1:0")).serve(tuple).__enter__()

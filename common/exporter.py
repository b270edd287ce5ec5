"""The exporter: one process's figures over HTTP, as Prometheus asks for them, made of what it tells of itself anyway."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.common.config import option
from headrace.common.errors import ConfigError, describe_os_error
from headrace.common.figures import PREFIX, Family
from headrace.common.wire.network import MAX_PORT

LOG = logging.getLogger(__name__)
Announce = Callable[[str], None]


@dataclass(frozen=True)
class MetricsConfig:
    """Where each process serves its figures to Prometheus."""

    bind: str = option(
        "",
        help="HOST:PORT where each process serves its figures to Prometheus, such as 127.0.0.1:0; port 0 picks a free one and"
        " writes it to metrics/ of the run directory; empty: nowhere (needs the extra metrics)",
        resume=True,
    )

    def check(self, path: str = "metrics") -> None:
        """Refuse what is no address."""
        if self.bind:
            self.address(path)

    def address(self, path: str = "metrics") -> tuple[str, int]:
        """Host and port.

        Raises:
            ConfigError: ``bind`` is none.
        """
        host, colon, port = self.bind.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
            raise ConfigError(f"{path}.bind: {self.bind!r} is not HOST:PORT; nearest valid: 127.0.0.1:0")
        return host.strip("[]"), int(port)


@dataclass(frozen=True)
class Exporter:
    """What serves the figures of one process, if it is asked to.

    Args:
        config: where.
        about: labels of ``headrace_info``: run, role, id, version.
        announce: told the address (HOST:PORT) once it is known.
    """

    config: MetricsConfig = MetricsConfig()
    about: tuple[tuple[str, str], ...] = ()
    announce: Announce | None = None

    @contextlib.contextmanager
    def serve(self, look: Callable[[], Iterable[Family]]) -> Iterator[None]:
        """Serve what ``look`` gives, which is asked from a thread of its own, while the block runs.

        Raises:
            ConfigError: the address cannot be taken, or prometheus-client is not installed.
        """
        if not self.config.bind:
            yield
            return
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise ConfigError(
                f"metrics.bind: {self.config.bind}, but prometheus-client cannot be imported ({error}); pip install"
                " 'headrace[metrics]' or leave it empty"
            ) from error
        host, port = self.config.address()
        registry = CollectorRegistry()
        registry.register(_Collector(look, dict(self.about)))
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(
                f"metrics.bind: {self.config.bind} cannot be taken: {describe_os_error(error)}; processes of one host need a"
                " port each, and 0 picks a free one"
            ) from error
        try:
            self._tell(host, server.server_port)
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _tell(self, host: str, port: int) -> None:
        host = socket.gethostname() if host in ("0.0.0.0", "::") else host
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        LOG.info("serves its figures at http://%s/metrics", address)
        if self.announce is not None:
            try:
                self.announce(address)
            except OSError as error:  # whoever knows the address is served
                LOG.warning("where its figures are served is not written down: %s", describe_os_error(error))


class _Collector:
    """What prometheus-client asks at each scrape."""

    def __init__(self, look: Callable[[], Iterable[Family]], about: Mapping[str, str]) -> None:
        self._look, self._about = look, about

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        info = GaugeMetricFamily(f"{PREFIX}info", "which process this is", labels=list(self._about))
        info.add_metric(list(self._about.values()), 1.0)
        yield info
        for family in self._look():
            labels = [family.label] if family.label else []
            kind = CounterMetricFamily if family.counts else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=labels)
            for value, number in family.samples:
                metric.add_metric([value][: len(labels)], number)
            yield metric

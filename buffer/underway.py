"""Imports under way: for each a small file in the pool's directory that says under which names its rows enter.

It is there from before the first row until after the last one. An import of the same rows that finds it goes on under those
names, and the ledger drops the rows that are in: what a kill has cut is finished, and no row is there twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.buffer import manifest
from headrace.common.errors import PoolDamaged


class Underway:
    """One import into one pool.

    Args:
        directory: of the pool; empty for one in memory, of which a kill leaves nothing.
        digest: of the rows and of how they are read.
        source: where they come from, for people.

    Attributes:
        names: actor of the source -> its name in the pool, where an earlier import of the same was cut; else none.
    """

    def __init__(self, directory: str, digest: str, source: str) -> None:
        self._directory = Path(directory) if directory else None
        self._name, self._source = f"import-{digest[:32]}.json", source
        self.names: dict[str, str] | None = None
        body = None if self._directory is None else manifest.read(self._directory, self._name)
        if body is not None:
            try:
                self.names = {str(old): str(new) for old, new in body["names"].items()}
            except (KeyError, AttributeError) as error:
                raise PoolDamaged(f"{self._directory}/{self._name}: not of an import; remove it to begin that anew") from error

    def begin(self, names: Mapping[str, str]) -> None:
        """Rows enter from here on."""
        if self._directory is not None:
            manifest.write(self._directory, {"source": self._source, "names": dict(names)}, self._name)

    def end(self) -> None:
        """All of them are in."""
        if self._directory is not None:
            (self._directory / self._name).unlink()
            manifest.sync_directory(self._directory)


def unfinished(directory: Path) -> dict[str, list[str]]:
    """Source -> names in the pool, of each import into the pool in ``directory`` that has not ended."""
    bodies = [manifest.read(directory, path.name) for path in sorted(directory.glob("import-*.json"))]
    return {str(body["source"]): sorted(body["names"].values()) for body in bodies if body is not None}

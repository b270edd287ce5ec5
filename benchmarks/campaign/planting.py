"""Planted faults: one change of one file in a throw-away copy of the tree, and whether the tests that must see it do."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.process import ProcessFailed, run
from campaign.records import ROOT, Record

TOOL_S = 60.0
GREEN_S, MUTANT_S, TEST_S = 600.0, 180.0, 60
TESTS_FAILED = 1  # pytest's exit code when tests ran and failed; others say that they could not run
_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class PlantingError(Exception):
    """A fault that cannot be planted, or tests that say nothing about one; the text names the mutant and the mend."""


@dataclass(frozen=True)
class Mutant:
    """One planted fault.

    Attributes:
        name: what is wrong.
        file: path in the tree.
        old: text that is in the file exactly once.
        new: what takes its place.
        tests: what pytest is told to run, files or single tests; one of them must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def plant(self, text: str) -> str:
        """The file's ``text`` with the fault.

        Raises:
            PlantingError: the old text is not there exactly once.
        """
        count = text.count(self.old)
        if count != 1:
            raise PlantingError(
                f"{self.name}: its text is in {self.file} {count} times, and must be there exactly once; mend the mutant."
                f" The text:\n{self.old}"
            )
        return text.replace(self.old, self.new)


def planted(name: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """A fault in a module of the buffer; a test without a path is one of that folder, by the part that it tests."""
    paths = (test if "/" in test else f"tests/unit/buffer/test_{test}.py" for test in tests)
    return Mutant(name, f"buffer/{module}.py", old, new, tuple(paths))


class Tree:
    """A copy of the tracked files as they are now, in which faults are planted; the working tree is never touched.

    Args:
        place: where it is to be; does not exist.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, timeout=TOOL_S, check=True
        )
        for name in listed.stdout.split("\0"):
            source, target = ROOT / name, place / name
            if name and (source.is_symlink() or source.is_file()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def require_green(self, mutants: Sequence[Mutant]) -> None:
        """Run all the tests of ``mutants`` on the copy as it is.

        Raises:
            PlantingError: the copy is not what is imported, a text is not there exactly once, or a test fails.
        """
        for mutant in mutants:
            mutant.plant(self._read(mutant))
        try:
            found = self._run([sys.executable, "-c", "import headrace; print(headrace.__file__)"], "import", TOOL_S)
            if not Path(found[-1]).is_relative_to(self.place):
                raise PlantingError("another headrace than that of the copy is imported; look at PYTHONPATH")
            self._test(sorted({test for mutant in mutants for test in mutant.tests}), "green", GREEN_S)
        except ProcessFailed as error:
            raise PlantingError(f"the tests must pass without any fault first: {error}") from error

    def judge(self, mutant: Mutant) -> Record:
        """Plant one fault, run its tests, take it out: ``killed``, the test that failed ``by`` (empty: none), ``seconds``.

        Raises:
            PlantingError: the tests did not run, so that nothing is known.
        """
        path, text = self.place / mutant.file, self._read(mutant)
        path.write_text(mutant.plant(text), encoding="utf-8")
        begun, by = time.monotonic(), ""
        try:
            self._test(mutant.tests, mutant.name, MUTANT_S)
        except ProcessFailed as error:
            log = self._log(mutant.name).read_text(encoding="utf-8", errors="replace")
            failed = _FAILED.search(log)
            if error.code != TESTS_FAILED or failed is None:
                raise PlantingError(f"{mutant.name}: its tests could not run: {error}") from error
            by = failed[1]
        finally:
            path.write_text(text, encoding="utf-8")
        return {"killed": bool(by), "by": by, "seconds": round(time.monotonic() - begun, 1)}

    def _read(self, mutant: Mutant) -> str:
        return (self.place / mutant.file).read_text(encoding="utf-8")

    def _test(self, tests: Sequence[str], name: str, deadline_s: float) -> None:
        words = ["-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider", f"--timeout={TEST_S}", *tests]
        self._run([sys.executable, *words], name, deadline_s)

    def _run(self, command: Sequence[str], name: str, deadline_s: float) -> list[str]:
        # A file may change twice within the clock's step of its compiled form, so none is kept.
        environment = {"PYTHONPATH": str(self.place / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        return run(command, self._log(name), deadline_s=deadline_s, environment=environment, cwd=self.place).output()

    def _log(self, name: str) -> Path:
        return self.place.with_suffix(".logs") / f"{name}.log"

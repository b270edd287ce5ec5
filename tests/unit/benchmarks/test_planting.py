"""Planted faults: each fits the tree that is here, and is taken for a kill only when a test failed because of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from campaign import planting
from campaign.faults import MUTANTS
from campaign.planting import Mutant, PlantingError, Tree

ROOT = Path(__file__).resolve().parents[3]
TESTS = "def test_half():\n    import headrace\n    assert headrace.half(4) == 2\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small tree with one function and one test, copied."""
    source = tmp_path / "source"
    (source / "src" / "headrace").mkdir(parents=True)
    (source / "src" / "headrace" / "__init__.py").write_text("def half(x):\n    return x / 2\n")
    (source / "test_half.py").write_text(TESTS)
    (source / "untracked.py").write_text("")
    subprocess.run(["git", "init", "-q", source], check=True)
    subprocess.run(["git", "-C", source, "add", "src", "test_half.py"], check=True)
    monkeypatch.setattr(planting, "ROOT", source)
    return Tree(tmp_path / "copy")


def mutant(old, new, tests=("test_half.py",)):
    return Mutant("m", "src/headrace/__init__.py", old, new, tests)


@pytest.mark.parametrize("name", MUTANTS)
def test_each_fault_fits_its_file_and_names_tests_that_exist(name):
    fault = MUTANTS[name]
    text = (ROOT / fault.file).read_text()
    compile(fault.plant(text), fault.file, "exec")
    for test in fault.tests:
        path, _, function = test.partition("::")
        assert f"def {function}" in (ROOT / path).read_text()


def test_a_fault_that_tests_see_is_killed_by_name_and_one_that_changes_nothing_survives(tree):
    assert not (tree.place / "untracked.py").exists()
    killed, alive = mutant("x / 2", "x / 3"), mutant("x / 2", "x * 0.5")
    tree.require_green([killed, alive])
    assert tree.judge(killed)["by"] == "test_half.py::test_half"
    assert not tree.judge(alive)["killed"]
    assert "x / 2" in (tree.place / "src/headrace/__init__.py").read_text()


def test_tests_that_cannot_run_kill_nothing(tree):
    with pytest.raises(PlantingError, match="could not run"):
        tree.judge(mutant("x / 2", "x / 3", ("test_missing.py",)))
    with pytest.raises(PlantingError, match=r"(?s)without any fault first.*missing"):
        tree.require_green([mutant("x / 2", "x / 3", ("test_missing.py",))])


@pytest.mark.parametrize(("old", "count"), [("x / 4", 0), ("x", 2)])
def test_a_text_that_is_not_there_exactly_once_is_refused(tree, old, count):
    with pytest.raises(PlantingError, match=f"__init__.py {count} times"):
        tree.require_green([mutant(old, "y")])

"""What the documents point at exists."""

from __future__ import annotations

import itertools
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from headrace.launch.config import RunConfig

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_relative_link_resolves(page):
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_example_configs_that_the_readme_names_exist():
    names = re.findall(r"examples/[\w.]+", (ROOT / "README.md").read_text())
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_readme_plots_the_runs_that_its_line_before_makes():
    found = re.search(r"train examples/(\w+)\.yaml --seeds .*\n\S*headrace plot (\S+)", (ROOT / "README.md").read_text())
    assert found
    assert found[2] == f"runs/{found[1]}"  # where `--seeds` writes, and a directory of runs to `plot`


def test_the_worked_example_of_the_pool_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "pool.md").read_text(), re.DOTALL)
    assert len(blocks) > 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/pool.md", "exec"), names)  # noqa: S102 - a page of this repository
    assert (tmp_path / "shards" / "manifest.json").exists()


def test_every_test_that_the_page_of_vlas_names_exists():
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", (ROOT / "docs" / "vla.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 53))
    missing = []
    for number, row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        missing += [number] if not named else []
        missing += [name for file, name in named if f"\ndef {name}(" not in (ROOT / "tests" / file).read_text()]
    assert missing == []


def test_every_test_that_the_page_of_cases_names_exists():
    rows = re.findall(r"^\| ([BRH]\d+) \|(.*)\|$", (ROOT / "docs" / "cases.md").read_text(), re.MULTILINE)
    parts = [f"B{n:02}" for n in range(1, 41)], [f"R{n:02}" for n in range(1, 43)], [f"H{n}" for n in range(1, 31)]
    assert [number for number, _ in rows] == list(itertools.chain.from_iterable(parts))
    named = {name: number for number, row in rows for name in re.findall(r"`([\w/]+\.py(?:::\w+)?)`", row.rpartition("|")[2])}
    missing = []
    for name, number in named.items():
        file, _, test = name.partition("::")
        path = ROOT / "tests" / file
        if not path.exists() or (test and f"\ndef {test}(" not in path.read_text()):
            missing.append(f"{number}: {name}")
    assert missing == []


def anchors_of(page: Path) -> set[str]:
    """What `#...` may name of a page, as GitHub makes it of a heading."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"`", "", heading)).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_heading_that_a_link_names_exists(page):
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text())
    own = [(page.parent / file if file else page, name) for file, name in links if "://" not in file]
    assert [(str(file), name) for file, name in own if file.suffix == ".md" and name not in anchors_of(file)] == []


def test_the_page_about_training_names_every_key_of_the_learner_and_none_that_does_not_exist():
    page = (ROOT / "docs" / "training.md").read_text()
    sections = {name: kind for name, kind in get_type_hints(RunConfig).items() if is_dataclass(kind)}
    keys = {f"{name}.{field.name}" for name, section in sections.items() for field in fields(section)}
    named = set(re.findall(rf"`(?:--)?((?:{'|'.join(sections)})\.\w+)", page))
    assert sorted(named - keys - {"metrics.jsonl"}) == []  # a file
    assert sorted(key for key in keys - named if key.startswith("learner.")) == []

"""What the documents point at exists."""

from __future__ import annotations

import itertools
import pickle
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from headrace.buffer import SACReplayPool
from headrace.common.specs import OUTCOME_SUCCESS
from headrace.launch.cli import main
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


def keys_on(page: str) -> tuple[set[str], set[str]]:
    """Keys of a run's config, and what looks like some on a page of docs."""
    sections = {name: kind for name, kind in get_type_hints(RunConfig).items() if is_dataclass(kind)}
    keys = {f"{name}.{field.name}" for name, section in sections.items() for field in fields(section)}
    text = (ROOT / "docs" / page).read_text()
    return keys, set(re.findall(rf"`(?:--)?((?:{'|'.join(sections)})\.\w+)", text)) - {"metrics.jsonl"}  # a file


def test_the_page_about_training_names_every_key_of_the_learner_and_none_that_does_not_exist():
    keys, named = keys_on("training.md")
    assert sorted(named - keys) == []
    assert sorted(key for key in keys - named if key.startswith("learner.")) == []


def test_the_page_for_those_who_come_from_elsewhere_names_keys_that_exist():
    keys, named = keys_on("coming-from.md")
    theirs = {"actor.global_batch_size", "actor.micro_batch_size", "model.learn"}  # RLinf's and stable-baselines3's
    assert len(named) > 40
    assert sorted(named - keys - theirs - {"pool.update_priorities"}) == []  # a call


def test_pickled_transitions_of_hil_serl_become_a_file_that_an_import_reads(tmp_path, monkeypatch):
    def step(n, *, done):
        seen = {"state": np.full((1, 3), n, np.float32), "wrist": np.full((1, 4, 4, 3), n, np.uint8)}
        after = {key: value + 1 for key, value in seen.items()}
        return {
            "observations": seen,
            "next_observations": after,
            "actions": np.full(2, n / 10),
            "rewards": float(done),
            "dones": done,
        }

    monkeypatch.chdir(tmp_path)
    Path("demos.pkl").write_bytes(pickle.dumps([step(n, done=n in (2, 5)) for n in range(6)]))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "coming-from.md").read_text(), re.DOTALL)
    exec(compile(code, "docs/coming-from.md", "exec"), {})  # noqa: S102 - a page of this repository
    assert main(["pool", "import", "demos.hdf5", "pool", "--low", "-1", "--high", "1", "--outcome", "success"]) == 0
    with SACReplayPool(6, path=Path("pool"), rng=np.random.default_rng(0)) as pool:
        rows = pool.sample(6)
    order = np.argsort(rows.obs["state"][:, 0])
    assert rows.obs["state"][order][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert rows.next_obs["wrist"][order][:, 0, 0, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert rows.rows["terminated"][order].ravel().tolist() == [0, 0, 1, 0, 0, 1]
    assert set(rows.rows["outcome"].ravel().tolist()) == {OUTCOME_SUCCESS}

"""The layout holds: links resolve, a wheel is whole, the robot side is light, and ROS 2's `launch` stays itself."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("actor", "buffer", "common", "launch", "learner")


def python(code, *, path=(), cwd=None, flags=()):
    """Run code in a child interpreter with ``path`` in front of everything; its standard output."""
    words = [sys.executable, *flags, "-c", f"import sys\nsys.path[:0] = {[str(p) for p in path]!r}\n{code}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def modules():
    """Every Python file and type stub of the five folders, as its path inside the package."""
    return {
        f"headrace/{p.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for p in (ROOT / folder).rglob("*.py*")
        if p.suffix in (".py", ".pyi")
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_link_resolves_to_its_folder(folder):
    link = ROOT / "src" / "headrace" / folder
    assert link.is_symlink(), f"{link} is no link: a checkout without links (core.symlinks=false) builds an empty wheel"
    assert link.readlink() == Path("../..") / folder
    assert link.resolve() == (ROOT / folder).resolve()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    copy = out / "source"  # building leaves files beside the sources, so it is done on a copy
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True, timeout=60).stdout.split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_file():
            target.write_bytes(source.read_bytes())
    words = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-q",
        "-w",
        str(out),
        str(copy),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


def test_the_wheel_holds_every_module(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert modules() - inside == set()
    assert {"headrace/py.typed", "headrace/__main__.py", "headrace/launch/local.sh"} <= inside
    assert not [name for name in inside if name.split("/")[0] in FOLDERS], "a folder is installed under its bare name"


def test_an_unpacked_wheel_imports_and_offers_train(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "import headrace.launch; print(headrace.__file__); print(headrace.launch.train.__module__)"
    file, module = python(code, path=[tmp_path], cwd=tmp_path).splitlines()
    assert Path(file).is_relative_to(tmp_path)
    assert module == "headrace.launch.runner"


def test_the_robot_side_imports_without_torch_gymnasium_and_uvloop():
    code = """
blocked = ("torch", "gymnasium", "uvloop", "matplotlib", "rich", "yaml")
for name in blocked:
    sys.modules[name] = None
import importlib, pkgutil, headrace.actor, headrace.common
for package in (headrace.actor, headrace.common):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if found.name.rpartition(".")[2] not in ("torch_policy",) and "gym_" not in found.name:
            importlib.import_module(found.name)
print("ok")
"""
    assert python(code) == "ok"


def test_the_command_line_answers_without_heavy_imports():
    code = """
from headrace.launch.cli import main
try:
    main(["train", "--help"])
except SystemExit as end:
    print("code", end.code)
print([name for name in ("torch", "gymnasium", "matplotlib", "rich") if name in sys.modules])
"""
    out = python(code)
    assert "--learner.batch_size" in out
    assert out.endswith("code 0\n[]")


@pytest.fixture
def ros(tmp_path):
    """A directory with a package named like ROS 2's."""
    package = tmp_path / "ros" / "launch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("WHO = 'ros'\n")
    (package / "actions.py").write_text("WHO = 'ros actions'\n")
    return tmp_path / "ros"


LAUNCH = (
    "import launch, launch.actions, headrace.launch.supervision as ours; print(launch.WHO, launch.actions.WHO, ours.__name__)"
)
EXPECTED = "ros ros actions headrace.launch.supervision"


@pytest.mark.parametrize("order", ["ros first", "ours first", "repository root first"])
def test_a_package_named_launch_stays_itself_and_so_do_we(ros, order):
    path = {
        "ros first": [ros, ROOT / "src"],
        "ours first": [ROOT / "src", ros],
        "repository root first": [ROOT, ros, ROOT / "src"],
    }
    assert python(LAUNCH, path=path[order]) == EXPECTED


def test_ours_first_in_import_order_changes_nothing(ros):
    code = "import headrace.launch.supervision as ours; import launch; print(launch.WHO, ours.__name__)"
    assert python(code, path=[ROOT, ROOT / "src", ros]) == "ros headrace.launch.supervision"


def test_python_m_headrace_from_the_repository_root_keeps_the_root_off_the_path(ros):
    code = (
        "import runpy, sys; sys.argv = ['headrace', '--version']\n"
        "try: runpy.run_module('headrace', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: pass\n"
    )
    assert python(code, cwd=ROOT).startswith("headrace ")
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_launch_namespace_offers_only_its_names():
    code = """
import headrace.launch
try:
    headrace.launch.nothing
except AttributeError as error:
    print(error)
"""
    assert python(code) == "module 'headrace.launch' has no attribute 'nothing'"


def test_constraints_pin_numpy_for_every_python():
    text = (ROOT / "constraints.txt").read_text()
    assert 'numpy==1.26.4 ; python_version < "3.11"' in text
    assert [line for line in text.splitlines() if line.startswith("numpy==2") and line.endswith('; python_version >= "3.11"')]
    assert "torch==2.13.0\n" in text
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all("==" in line and "://" not in line for line in lines)


def test_a_robots_python_of_3_10_can_parse_all_of_it():
    project = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.10"' in project
    assert 'target-version = "py310"' in project
    assert 'dependencies = ["numpy>=1.26", "pyzmq>=26", "msgpack>=1.0.8", "msgpack-numpy>=0.4.8"]' in project
    for folder in ("actor", "common"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            ast.parse(path.read_text(), str(path), feature_version=(3, 10))

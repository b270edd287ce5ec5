import subprocess
import sys

from helpers.lane_rows import cpu_only

from headrace.buffer.partial import Partial

HOLD = """
import sys, pathlib
from headrace.buffer.partial import Partial
print(Partial(pathlib.Path(sys.argv[1])).path.name, flush=True)
sys.stdin.read()
"""


def test_it_appears_whole_or_never(tmp_path):
    target = tmp_path / "a[b]" / "new"
    first = Partial(target)
    (first.path / "rows").write_text("1")
    assert not target.exists()
    first.discard()
    assert list(target.parent.iterdir()) == []
    target.mkdir()
    second = Partial(target)
    (second.path / "rows").write_text("2")
    second.publish()
    assert list(target.parent.iterdir()) == [target]
    assert (target / "rows").read_text() == "2"


def test_what_a_killed_maker_left_is_removed_and_what_a_living_one_makes_stays(tmp_path):
    target, other = tmp_path / "a[b]", tmp_path / ".another.partial-1"
    other.mkdir()
    (tmp_path / ".a[b].partial-file").write_text("mine")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=cpu_only(), text=True
    ) as child:
        assert child.stdout is not None
        left = tmp_path / child.stdout.readline().strip()
        (left / "rows").write_text("many")
        Partial(target).discard()
        assert (left / "rows").exists()
        child.kill()
    last = Partial(target)
    assert not left.exists()
    assert last.path.exists()
    assert other.exists()
    assert (tmp_path / ".a[b].partial-file").exists()
    last.discard()

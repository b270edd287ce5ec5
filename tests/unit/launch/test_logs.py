"""Logs of many lives stay bounded, and nothing is lost of the last ones."""

from headrace.launch import logs


def test_a_log_begins_anew_when_it_is_long_and_the_one_before_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LOG_BYTES", 100)
    path = tmp_path / "actor-0.log"
    for life in range(100):
        with logs.open_log(path) as log:
            log.write(f"life {life:04d}\n".encode())
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["actor-0.log", "actor-0.old.log"]
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 2 * 110
    text = (tmp_path / "actor-0.old.log").read_text() + path.read_text()
    told = [int(line.split()[1]) for line in text.splitlines()]
    assert told == list(range(told[0], 100))
    assert len(told) >= 10

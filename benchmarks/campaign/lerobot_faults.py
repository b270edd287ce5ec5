"""Planted faults of demonstrations: LeRobotDatasets, what is kept beside rows, what is recorded and what is given away."""

from __future__ import annotations

from campaign.planting import Mutant

READ, WRITE = ("tests/unit/launch/test_demo_lerobot.py",), ("tests/unit/launch/test_lerobot_export.py",)
RECORDED = ("tests/unit/launch/test_recording.py",)
REWARDING = ("tests/unit/actor/test_rewarding.py",)
WORTH = "actor/rewarding.py"
RECORDING = "launch/recording.py"
READER, EXPORT, TRAILS = "launch/demo_lerobot.py", "launch/lerobot_export.py", "buffer/trails.py"
WRITER = "launch/lerobot_writer.py"

LEROBOT = (
    # what is read
    Mutant("a-time-limit-of-lerobot-is-the-end", READER, "return done & ~truncated, truncated", "return done, truncated", READ),
    Mutant("a-success-pays-at-once", READER, "n - 1 if outcome", "0 if outcome", READ),
    Mutant("a-change-of-task-loses-a-step", READER, "closed=stop < n", "closed=False", READ),
    Mutant("videos-begin-with-their-episode", READER, "round(seconds * self._layout.fps)", "0", READ),
    Mutant("frames-of-another-episode", READER, "(episode != place.index).any() or ", "", READ),
    Mutant("a-slice-of-a-video-is-kept-elsewhere", "launch/videos.py", "= out, start\n", "= out, start + 1\n", READ),
    Mutant("ragged-rows-are-read", "launch/parquet.py", "if (lengths != size).any():", "if False:", READ),
    Mutant("a-row-group-of-any-size", "launch/parquet.py", "if nbytes > MAX_GROUP_BYTES:", "if False:", READ),
    # what is kept beside the rows
    Mutant("tasks-are-told-by-numbers", "launch/demo_load.py", "self._tasks.get(steps.task, steps.task)", "steps.task", READ),
    Mutant("rows-of-two-rates", "buffer/about.py", "self.fps != other.fps", "False", READ),
    Mutant("a-last-step-is-forgotten", "launch/demo_load.py", "found.lasts[found.episodes - 1] = left_out", "pass", WRITE),
    Mutant("exports-say-nothing-of-their-rows", "buffer/transfer.py", "about.write(place, said)", "pass", WRITE),
    # what it is worth
    Mutant(
        "what-was-asked-for-is-worth-it", WORTH, "actions if step.executed is None else step.executed", "actions", REWARDING
    ),
    Mutant(
        "worth-of-what-was-seen-later",
        WORTH,
        "for obs in (before, step.next_obs)",
        "for obs in (step.obs, step.next_obs)",
        REWARDING,
    ),
    Mutant("resets-are-worth-something", WORTH, "np.flatnonzero(step.live & ~step.crashed)", "range(self.count)", REWARDING),
    Mutant("any-reward-goes", WORTH, "if not abs(given) <= LARGEST:", "if False:", REWARDING),
    Mutant(
        "a-success-from-the-start", "launch/demos.py", "steps.outcome if ends else OUTCOME_UNKNOWN", "steps.outcome", REWARDING
    ),
    # what is recorded
    Mutant("episodes-of-any-end-are-kept", RECORDING, "take.judged == OUTCOME_SUCCESS", "True", RECORDED),
    Mutant("a-discarded-episode-is-kept", RECORDING, ' and take.said != "discard"', "", RECORDED),
    Mutant(
        "what-was-asked-for-is-recorded", RECORDING, "action if step.executed is None else step.executed[0]", "action", RECORDED
    ),
    Mutant("a-full-pool-of-demonstrations-evicts", RECORDING, "> capacity:", "< 0:", RECORDED),
    Mutant(
        "a-second-recording-plays-the-same",
        "launch/record_command.py",
        "session = Shelf.sessions(out)",
        "session = 0",
        RECORDED,
    ),
    # what is given away
    Mutant("a-window-ends-with-its-step", TRAILS, 'alone & (rows["terminated"] != 0)', 'rows["terminated"] != 0', WRITE),
    Mutant("oldest-frame-of-a-stack", TRAILS, "(slice(None), -1)", "(slice(None), 0)", WRITE),
    Mutant("a-gap-is-no-end", TRAILS, " & (key[1:, 3] == key[:-1, 3] + 1)", "", WRITE),
    Mutant("videos-are-not-compared", EXPORT, "if far.max() > MAX_ERROR:", "if False:", WRITE),
    Mutant("every-last-frame-is-a-success", EXPORT, "ends and trail.outcome == OUTCOME_SUCCESS", "ends", WRITE),
    Mutant("videos-of-all-episodes-begin-at-once", WRITER, "video.frames / self._fps", "0.0", WRITE),
    Mutant("old-layouts-keep-episodes-together", WRITER, "alone = self._layout == V2", "alone = False", WRITE),
    Mutant("old-layouts-tell-figures-of-all-frames", WRITER, ", self._new_stats()\n", ", self._stats\n", WRITE),
    Mutant(
        "frames-count-on-over-episodes",
        WRITER,
        "np.arange(episode.length, episode.length + n), np.full",
        "np.arange(self._frames, self._frames + n), np.full",
        WRITE,
    ),
)

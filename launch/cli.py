"""The command line: ``headrace COMMAND``, where COMMAND is train, a role such as buffer or actor, or a tool such as status."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import traceback
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import headrace
from headrace.common.errors import HeadraceError, describe_os_error
from headrace.launch.children import thread_variables
from headrace.launch.classifier_command import add_classifier
from headrace.launch.cluster.command import add_launch
from headrace.launch.doctor_command import add_doctor
from headrace.launch.exits import FAILED, STOPPED, TEXT, USAGE, leave
from headrace.launch.key_command import add_keys
from headrace.launch.people_command import add_people
from headrace.launch.policy_server_command import add_policy_server
from headrace.launch.pool_command import add_pool

TOP_LEVEL = ("seed", "schema")  # config keys without a dot
THREADED = ("train", "learner", "policy-server", "doctor")  # for all others one thread of the numeric libraries is best


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. An understood error is one line on standard error; see exits.py."""
    words = list(sys.argv[1:] if words is None else words)
    if words and words[0] not in THREADED:
        for name, value in thread_variables(1).items():  # before numpy is imported, which reads them once
            os.environ.setdefault(name, value)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: one's own `module:factory` is found there, and hides nothing
    parser = make_parser()
    known, overrides = split_overrides(words, own_options(parser, words))
    args = parser.parse_args(known)
    if overrides and not args.takes_overrides:
        print(f"headrace: error: `headrace {args.command}` takes no config keys such as {overrides[0]}", file=sys.stderr)
        return USAGE
    try:
        code: int = args.run(args, overrides)
    except HeadraceError as error:
        return _fail(" ".join(str(error).split()))
    except KeyboardInterrupt:
        return STOPPED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left, as `| head` does
        return 0
    except OSError as error:
        return _fail(describe_os_error(error))
    except Exception as error:
        return _fail(f"internal error: {type(error).__name__}: {error} (HEADRACE_DEBUG=1 shows where)")
    return code


def own_options(parser: _Parser, words: Sequence[str]) -> set[str]:
    """The options of the command that ``words`` begin with, and of its subcommands, such as ``--json``."""
    command = parser.commands.get(words[0]) if words else None
    if command is None:
        return set()
    children = [a.choices for a in command._actions if isinstance(a, argparse._SubParsersAction)]
    return command.options.union(*(child.options for choices in children for child in choices.values()))


def split_overrides(words: Sequence[str], own: Container[str] = ()) -> tuple[list[str], list[str]]:
    """Part the words of a command line into those for argparse and config overrides (``--learner.lr 3e-4``, ``--seed=1``).

    An option in ``own`` is the command's, even where a config key has the same name.
    """
    known: list[str] = []
    overrides: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        key, equals, _ = word[2:].partition("=")
        if not word.startswith("--") or f"--{key}" in own or not ("." in key or key in TOP_LEVEL):
            known.append(word)
            continue
        overrides.append(word)
        if not equals and queue and not queue[0].startswith("--"):
            overrides.append(queue.pop(0))
    return known, overrides


class _Parser(argparse.ArgumentParser):
    """Names the config key that an unknown option may have meant, and lists all of them in ``--help`` where asked to."""

    lists_keys = False
    commands: Mapping[str, _Parser] = {}

    @property
    def options(self) -> set[str]:
        """Every option string, such as ``--json``."""
        return {text for action in self._actions for text in action.option_strings}

    def error(self, message: str) -> NoReturn:
        word = message.rpartition("--")[2].split("=")[0].split()[0] if "unrecognized arguments: --" in message else ""
        if word:
            from headrace.launch.keys import all_keys

            near = [k for k in all_keys() if k.rpartition(".")[2] == word] or difflib.get_close_matches(word, all_keys(), 1)
            message += f"; did you mean --{near[0]}?" if near else ""
        super().error(message)

    def format_help(self) -> str:
        text = super().format_help()
        if self.lists_keys:
            from headrace.launch.keys import keys_text

            text += "\n" + keys_text()
        return text


def make_parser() -> _Parser:
    """The parser of every command."""
    about = "Asynchronous actor-learner SAC. `headrace COMMAND --help` tells more."
    parser = _Parser(prog="headrace", description=about, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"headrace {headrace.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    _add_train(commands)
    _add_roles(commands)
    add_policy_server(commands, _add)
    _add_tools(commands)
    parser.commands = commands.choices
    return parser


def _add(
    commands: Any, name: str, run: Callable[[argparse.Namespace, list[str]], int], help: str, *, keys: bool = False
) -> argparse.ArgumentParser:
    # argparse formats the help of a command with %, but not its description.
    parser: _Parser = commands.add_parser(name, help=help.replace("%", "%%"), description=help, allow_abbrev=False)
    parser.set_defaults(run=run, takes_overrides=keys)
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.lists_keys = keys
    return parser


def _add_train(commands: Any) -> None:
    train = _add(commands, "train", _train, "Start all roles of one run on this host and supervise them to its end.", keys=True)
    train.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="YAML file (path)")
    train.add_argument("--preset", type=Path, metavar="PRESET", help="YAML file laid over CONFIG, see examples/presets (path)")
    train.add_argument("--seeds", metavar="A..B|A,B,C", help="one run for each seed, e.g. 0..4; finished ones are skipped")
    train.add_argument("--resume", type=Path, metavar="RUN", help="continue the run in this directory (path)")
    train.add_argument(
        "--init-from",
        type=Path,
        metavar="POLICY",
        help="begin with the policy of a checkpoint, run, export or .hrw file (path)",
    )
    train.add_argument("--mode", choices=("async", "sync"), help="short for --run.mode")
    train.epilog = TEXT


def _add_roles(commands: Any) -> None:
    target: dict[str, Any] = {"type": Path, "metavar": "CONFIG|RUN", "help": "YAML file or run directory (path)"}
    connect: dict[str, Any] = {
        "metavar": "ENDPOINT",
        "help": "where the buffer listens, tcp://HOST:PORT; default: as the run or config says",
    }
    buffer = _add(commands, "buffer", _buffer, "Run the buffer of a run: the pool, pacing, and the newest weights.", keys=True)
    buffer.add_argument("target", **target)
    buffer.add_argument("--bind", metavar="ENDPOINT", help="where to listen, tcp://HOST:PORT; without it network.endpoint")
    buffer.add_argument(
        "--shard", type=int, default=0, metavar="N", help="which one of network.shards it is; 0 is the home shard (int)"
    )
    learner = _add(commands, "learner", _learner, "Run the learner of a run; it continues the newest checkpoint.", keys=True)
    learner.add_argument("target", **target)
    learner.add_argument("--connect", **connect)
    learner.add_argument("--id", default="learner", help="name of this learner (text)")
    learner.add_argument("--init-from", type=Path, metavar="POLICY", help="begin with it if there is no checkpoint (path)")
    actor = _add(commands, "actor", _actor, "Run one actor of a run, or with --evaluate its evaluator.", keys=True)
    actor.add_argument("target", **target)
    actor.add_argument("--connect", **connect)
    actor.add_argument("--id", help="name of this actor, unique in the run (text); default: host and process id")
    actor.add_argument("--evaluate", action="store_true", help="act deterministically, judge each new policy, store nothing")


def _add_tools(commands: Any) -> None:
    play = _add(commands, "eval", _eval, "Play a policy: return, length and success with 95 % intervals.")
    source: dict[str, Any] = {"type": Path, "metavar": "CHECKPOINT|RUN", "help": "checkpoint, run, export or .hrw file (path)"}
    best = "of a run: the policy with the best evaluation in place of the newest one"
    ema = "the average of the policy, of a run with learner.ema_decay"
    play.add_argument("target", **source)
    play.add_argument("--best", action="store_true", help=best)
    play.add_argument("--ema", action="store_true", help=ema)
    play.add_argument("--episodes", type=int, metavar="N", help="episodes to play (count); default: eval.final_episodes")
    play.add_argument("--seed", type=int, default=0, help="seed of the episodes (int)")
    play.add_argument(
        "--video", type=Path, metavar="DIR", help="record the first episode into DIR/episode-0.mp4 if the env renders (path)"
    )
    play.add_argument("--config", type=Path, help="config with the env, for a policy outside a run directory (path)")
    export = _add(commands, "export", _export_policy, "Write a policy alone, for other programs and for acting elsewhere.")
    export.add_argument("target", **source)
    export.add_argument("out", type=Path, metavar="OUT", help="directory to make; it appears when everything is written (path)")
    export.add_argument("--best", action="store_true", help=best)
    export.add_argument("--ema", action="store_true", help=ema)
    export.add_argument(
        "--format",
        choices=("safetensors", "torchscript", "onnx"),
        default="safetensors",
        help="what to write; the last two beside the first",
    )
    plot = _add(commands, "plot", _plot, "Overlay the learning curves of runs, with the mean and its 95 % bootstrap interval.")
    plot.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="runs, or directories that hold runs (paths)")
    plot.add_argument("--out", type=Path, default=Path("curves.png"), help="picture to write (path)")
    status = _add(commands, "status", _status, "Show a running run: live, once, or as one JSON object.")
    status.add_argument(
        "target", nargs="?", metavar="RUN|ENDPOINT", help="run directory or tcp://HOST:PORT; default: newest in runs/"
    )
    status.set_defaults(takes_overrides=True)
    status.epilog = "Beyond this host say --network.keys DIR, where operator.secret lies, or --network.insecure true."
    status.add_argument("--json", action="store_true", help="print one JSON object and exit")
    status.add_argument("--once", action="store_true", help="print once and exit")
    status.add_argument("--deadline", type=float, default=5.0, metavar="S", help="longest wait for an answer (float, s)")
    add_pool(commands, _add)
    _add_chaos(commands)
    _add_dry_run(commands)
    _add_record(commands)
    add_people(commands, _add)
    add_classifier(commands, _add)
    add_keys(commands, _add)
    add_launch(commands, _add)
    add_doctor(commands, _add)


def _add_chaos(commands: Any) -> None:
    chaos = _add(commands, "chaos", _chaos, "Put a whole job on this host through faults, and judge what became of every row.")
    chaos.add_argument("--minutes", type=float, default=2.0, metavar="M", help="how long faults happen (float, min)")
    chaos.add_argument("--seed", type=int, default=0, help="which faults, when and on whom (int)")
    chaos.add_argument("--only", metavar="KIND,...", help="kinds of faults (text); default: all of them")
    chaos.add_argument(
        "--dir", type=Path, metavar="DIR", help="new directory for all histories (path); default: runs/chaos-TIME"
    )
    chaos.add_argument("--judge", type=Path, metavar="DIR", help="only judge the histories of an earlier one again (path)")
    chaos.add_argument("--json", action="store_true", help="end with one JSON object")


def _add_record(commands: Any) -> None:
    record = _add(
        commands, "record", _record, "Record demonstrations of a config's env or robot, by a script or by people.", keys=True
    )
    record.add_argument("config", type=Path, metavar="CONFIG", help="YAML file (path)")
    record.add_argument("out", type=Path, metavar="POOL", help="directory of a pool; one that is there takes more (path)")
    record.add_argument("--episodes", type=int, default=20, metavar="N", help="episodes that are kept (count)")
    record.add_argument(
        "--by",
        default="",
        metavar="MODULE:FUNCTION",
        help="of (env, rng), gives the next action; without it people drive: a robot by robot.teleop.device, an env by its own",
    )
    record.add_argument(
        "--keep", choices=("success", "known", "all"), default="success", help="which episodes; known: success or failure"
    )
    record.add_argument("--tasks", nargs="+", default=(), metavar="TEXT", help="what tasks 0, 1, ... are, in words")


def _add_dry_run(commands: Any) -> None:
    dry = _add(
        commands, "dry-run", _dry_run, "Run a robot's config with a fake arm, fake cameras and a bad network.", keys=True
    )
    dry.add_argument("config", type=Path, metavar="CONFIG", help="YAML file of a robot (path)")
    dry.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long the arm acts (float, s)")
    dry.add_argument("--dir", type=Path, metavar="DIR", help="new directory for what it leaves (path); default: runs/dry-TIME")
    dry.add_argument("--json", action="store_true", help="end with one JSON object")


def _train(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.train_command import refuse_both, train_command

    if args.mode:
        refuse_both("--mode", args.mode, "run.mode", overrides)
        overrides = [*overrides, "--run.mode", args.mode]
    return train_command(
        args.config,
        overrides,
        preset=args.preset,
        seeds=args.seeds,
        resume_run=args.resume,
        init_from=args.init_from,
    )


def _buffer(args: argparse.Namespace, overrides: list[str]) -> NoReturn:
    from headrace.launch import roles
    from headrace.launch.targets import load_target, shared_run

    def body() -> int:
        config, run = load_target(args.target, overrides)
        run = run or shared_run(config, args.target.stem)
        with run.undone_if_refused():
            return roles.run_buffer(config, run, args.bind, args.shard)

    leave(roles.guarded(f"buffer-{args.shard}" if args.shard else "buffer", body))


def _learner(args: argparse.Namespace, overrides: list[str]) -> NoReturn:
    from headrace.launch import roles
    from headrace.launch.play import find_policy
    from headrace.launch.targets import load_target, shared_run
    from headrace.learner.place import rank_name

    def body() -> int:
        config, run = load_target(args.target, overrides)
        policy = find_policy(args.init_from) if args.init_from else None
        run = run or shared_run(config, args.target.stem)
        with run.undone_if_refused():
            return roles.run_learner(config, run, args.connect, args.id, policy)

    leave(roles.guarded(rank_name(args.id, os.environ.get("RANK", 0)), body))


def _actor(args: argparse.Namespace, overrides: list[str]) -> NoReturn:
    from headrace.launch import roles
    from headrace.launch.targets import load_target

    name = args.id or roles.own_id("evaluator" if args.evaluate else "actor")

    def body() -> int:
        config, run = load_target(args.target, overrides)
        role = roles.run_evaluator if args.evaluate else roles.run_actor
        return role(config, run, args.connect, name)

    leave(roles.guarded(name, body))


def _eval(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.play import play_command

    return play_command(
        args.target,
        best=args.best,
        ema=args.ema,
        config=args.config,
        episodes=args.episodes,
        seed=args.seed,
        video=args.video,
    )


def _export_policy(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.export import export_policy_command

    return export_policy_command(args.target, args.out, form=args.format, best=args.best, ema=args.ema)


def _plot(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.curves import draw_groups, find_groups

    draw_groups(find_groups(args.runs), args.out)
    print(args.out)
    return 0


def _status(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.credentials import network_of
    from headrace.launch.watch import endpoint_of, newest_run, show, show_synchronous, synchronous_status

    target = args.target or newest_run(Path("runs"))
    if (status := synchronous_status(target)) is not None:
        return show_synchronous(status, as_json=args.json)
    network = network_of(target, overrides)
    return show(endpoint_of(target), network, as_json=args.json, once=args.once, deadline_s=args.deadline)


def _chaos(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.chaos.command import chaos_command, judge_again

    if args.judge:
        return judge_again(args.judge, as_json=args.json)
    return chaos_command(args.minutes, args.seed, args.only, args.dir, as_json=args.json)


def _record(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.record_command import record_command

    asked = {"episodes": args.episodes, "by": args.by, "keep": args.keep, "tasks": args.tasks}
    return record_command(args.config, overrides, args.out, **asked)


def _dry_run(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.chaos.dry_run import dry_run_command

    return dry_run_command(args.config, overrides, args.seconds, args.dir, as_json=args.json)


def _fail(text: str) -> int:
    if os.environ.get("HEADRACE_DEBUG") == "1":
        traceback.print_exc()
    print(f"headrace: error: {text}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())

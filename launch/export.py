"""``headrace export``: the policy of a checkpoint or run alone, for other programs and for machines that only act."""

from __future__ import annotations

from pathlib import Path

from headrace.common.errors import ConfigError
from headrace.common.exported import write_export
from headrace.launch.play import find_policy, read_policy, read_spec


def export_policy_command(source: Path, out: Path, *, form: str, best: bool, ema: bool) -> int:
    """Write ``out``, see :mod:`headrace.common.exported`, and say what it holds.

    Raises:
        ConfigError: ``out`` exists, or the policy cannot be had in this format.
        CheckpointError: ``source`` holds no policy, or a damaged one.
        SpecError: the average was asked for (``ema``), and there is none.
    """
    if out.exists():
        raise ConfigError(f"{out}: exists already; name a directory that does not")
    path = find_policy(source, best=best)
    weights, spec = read_policy(path, ema=ema), read_spec(path)
    modules: dict[str, bytes] = {}
    if form != "safetensors":
        from headrace.launch.policy_module import onnx_file, torchscript_file

        modules = dict([torchscript_file(weights, spec) if form == "torchscript" else onnx_file(weights, spec)])
    write_export(out, weights, spec, modules)
    count = sum(tensor.size for tensor in weights.tensors.values())
    which = "average of the policy" if ema else "policy"
    print(f"{out}: {which} of update {weights.version.step} from {path}, {count:,} numbers")
    for name in modules:
        print(f"  {name}: takes {', '.join(o.key for o in spec.obs if o.role != 'critic')}, gives actions in env units")
    return 0

"""Planted faults of plain dictionaries and of the steps that become rows: what comes back must be what came in."""

from __future__ import annotations

from campaign.planting import Mutant

FORM = ("tests/unit/buffer/test_plain_form.py",)
ASSEMBLER = ("tests/unit/actor/test_assembler.py",)

FORMS = (
    Mutant("tags-in-the-first-ones-dtype", "buffer/plain.py", "if not key and path[0] in TAGS:", "if False:", FORM),
    Mutant(
        "rewards-in-the-first-ones-dtype",
        "buffer/plain.py",
        'path[0] in ("action", "reward") and not is_wide_float(dtype)',
        "False",
        FORM,
    ),
    Mutant(
        "states-in-half-floats",
        "buffer/plain.py",
        "is_float(dtype) and is_wide_float(field.dtype)",
        "is_float(dtype) and is_float(field.dtype)",
        FORM,
    ),
    Mutant(
        "forms-not-compared",
        "buffer/plain.py",
        "[] if ours is None or theirs is None else ours.differences(theirs)",
        "[]",
        FORM,
    ),
    Mutant(
        "imports-of-any-form",
        "buffer/transfer.py",
        "    require_form(str(source), as_layout(pool.made_of()), as_layout(reader.body))\n",
        "",
        FORM,
    ),
    Mutant(
        "a-pool-where-the-process-is", "buffer/pool.py", 'directory("path", path).absolute()', 'directory("path", path)', FORM
    ),
    Mutant("valid-without-a-number", "buffer/flat.py", "np.flatnonzero(~np.isfinite(marks).all(axis=1))", "[]", FORM),
    Mutant("names-of-fields-lost", "buffer/flat.py", "if array.dtype.names is not None:", "if False:", FORM),
    Mutant("half-a-step-kept", "actor/assembler.py", "value.shape != o.shape or not (", "not (", ASSEMBLER),
    Mutant(
        "pictures-of-fractions",
        "actor/assembler.py",
        ' or np.can_cast(value.dtype, o.dtype, "same_kind")',
        " or True",
        ASSEMBLER,
    ),
    Mutant("actions-spread-out", "actor/assembler.py", "value is not None and np.shape(value) != shape", "False", ASSEMBLER),
)

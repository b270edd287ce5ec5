"""``python -m headrace``: the command line without its script."""

from __future__ import annotations

import sys

if not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)  # -m puts the working directory first, where a folder could hide an installed package

from headrace.launch.cli import main  # after the path is safe

if __name__ == "__main__":
    sys.exit(main())

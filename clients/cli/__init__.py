"""The command `adsum`: everything a person types."""

import sys
from importlib.util import find_spec

__all__ = ["main"]


def main() -> None:
    """Run the command; where its extra is not installed, say so."""
    if not (find_spec("click") and find_spec("rich")):
        print("adsum: needs adsum[cli]: pip install 'adsum[cli]'", file=sys.stderr)
        sys.exit(2)
    from .app import main as run

    run()

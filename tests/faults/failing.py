"""adsumd that kills itself at a failpoint: `failing.py ORDER OPTIONS…`, the options being those of adsumd.

ORDER names a file. As long as there is none nothing happens; one that says "after fold 2" ends the process, as
kill -9 does, when it passes that point the second time since the file is there.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from adsum.projector import failpoints, main


def give(file: Path, point: failpoints.Point, times: int) -> None:
    """Write an order."""
    whole = file.with_suffix(".new")
    whole.write_text(f"{point} {times}")
    whole.rename(file)


class Order:
    """The hook: obeys what the file says."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._passed = 0

    def __call__(self, point: failpoints.Point) -> None:
        if not self._file.exists():
            return
        wanted, times = self._file.read_text().rsplit(" ", 1)
        if point == wanted:
            self._passed += 1
        if self._passed >= int(times):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    failpoints.listen(Order(Path(sys.argv[1])))
    sys.exit(main.main(sys.argv[2:]))

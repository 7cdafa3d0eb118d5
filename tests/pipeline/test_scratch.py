from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trunkline.pipeline.scratch import Scratch

CHILD = """
import sys, pathlib
from trunkline.pipeline.scratch import Scratch
with Scratch(pathlib.Path(sys.argv[1])) as folder:
    (folder / "checkpoint").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_folder_of_a_living_process_stays_and_a_dead_ones_goes(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with Scratch(tmp_path) as mine:
            assert mine.is_dir()
            assert (theirs / "checkpoint").exists()
        assert not mine.exists()
        other.kill()
        other.wait()
        assert theirs.exists()
    with Scratch(tmp_path):
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []

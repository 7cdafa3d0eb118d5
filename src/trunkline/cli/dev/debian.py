"""Programs that a Debian package brings: as root we install it, anybody else is told how."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

from trunkline.core.errors import Terminal

Say = Callable[[str], None]


def quiet(_: str) -> None: ...


def program(name: str, package: str, say: Say = quiet) -> str:
    """The path of a program; it is installed first if it is missing and we may."""
    return shutil.which(name) or _installed(name, package, say)


def _installed(name: str, package: str, say: Say) -> str:
    mend = f"apt-get install -y {package}"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Terminal(f"the program {name}", "it is not installed here", f"sudo {mend}")
    say(f"{name} is missing; as root I install it: {mend}")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-q"], ["install", "-yq", "--no-install-recommends", package]):
        done = subprocess.run(["apt-get", *words], capture_output=True, text=True, check=False, env=environ)
    found = shutil.which(name)
    if found is None:
        raise Terminal(f"the program {name}", (done.stderr or done.stdout).strip()[-400:] or "apt-get brought none", mend)
    return found

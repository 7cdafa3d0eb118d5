"""This package as a zip: executors of a cluster import it, and so run the driver's version, whatever is installed there."""

from __future__ import annotations

import zipfile
from pathlib import Path

import trunkline


def write_package(folder: Path) -> Path:
    package = Path(trunkline.__file__).parent
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"trunkline-{trunkline.__version__}.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as out:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                out.write(file, file.relative_to(package.parent))
    return made

"""What a file's texts refer to: paths relative to its folder, and secrets that stand elsewhere.

Passed to pydantic as the context of a validation, so that a value is made whole at the place where it is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from trunkline.core.mistakes import printable
from trunkline.core.reasons import Unfit
from trunkline.core.secret import FORMS, SCHEME

LARGEST_SECRET = 64 * 1024  # bytes; more is the wrong file, or a device that never ends


@dataclass(frozen=True)
class References:
    """With `follows` off a secret stays a reference: for looking at a file on a machine that lacks its secrets."""

    folder: Path
    environ: Mapping[str, str]
    follows: bool = True

    def path(self, written: Path | str) -> Path:
        return self.folder / written

    def follow(self, reference: str) -> str:
        kind, slash, rest = reference.removeprefix(SCHEME).partition("/")
        if not slash or not rest or kind not in ("env", "file"):
            raise Unfit("this is not a reference to a secret", f"write {FORMS}")
        return self._variable(rest) if kind == "env" else self._file(rest)

    def secret_file(self, reference: str) -> Path | None:
        prefix = f"{SCHEME}file/"
        return self.path(reference.removeprefix(prefix)) if reference.startswith(prefix) else None

    def _variable(self, name: str) -> str:
        if name in self.environ:
            return self.environ[name]
        near = "".join(f", but there is {other}" for other in get_close_matches(name, self.environ, n=1))
        raise Unfit(f"there is no environment variable {printable(name)}{near}", "set it, or correct its name here")

    def _file(self, written: str) -> str:
        path = self.path(written)
        try:
            with path.open("rb") as file:
                text = file.read(LARGEST_SECRET + 1).decode()
        except UnicodeDecodeError:
            why = "is not text"
        except (OSError, ValueError) as error:
            why = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        else:
            if len(text) <= LARGEST_SECRET:
                return text.removesuffix("\n").removesuffix("\r")
            why = f"is larger than {LARGEST_SECRET} bytes"
        raise Unfit(f"the secret's file {printable(path)} {why}", "write the secret into it, or correct its path here")

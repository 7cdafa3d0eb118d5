"""A site's own file of routes: put into the table at each start, so that what the file says is what runs.

The file wins: a route of it that somebody changed otherwise is as in the file after the next start. What left the file stays
in the table until somebody removes it there: several nodes may start with files of different age, and none may end what
another one began.
"""

from __future__ import annotations

from pathlib import Path

from trunkline.core.mistakes import Mistakes, in_order
from trunkline.routes.compile import compile_written
from trunkline.routes.model import open_routes, read_routes
from trunkline.routes.plugin import Around
from trunkline.routes.registry import Registry
from trunkline.routes.route import notes_of
from trunkline.routes.storage.base import Put


def file_routes(path: Path, around: Around, plugins: Registry) -> list[Put]:
    """Raises `Mistakes`, all of them with their lines, if anything is wrong with the file."""
    written = open_routes(path)
    reading = read_routes(written)
    wrong = [mistake for one in reading.routes for mistake in compile_written(one, written, around, plugins)[1]]
    if reading.mistakes or wrong:
        raise Mistakes(f"routes {path}", in_order([*reading.mistakes, *wrong]), "mend these fields")
    return [Put(one.key, one.hash, one.configuration.body, notes_of(one.notes)) for one in reading.routes]

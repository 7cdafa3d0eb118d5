"""Which sites a client hears from: the queues that are there, each new one told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

NewSite = Callable[[str], None]


class Discovery:
    """A callback that fails is called again at the next look; the sites behind it are not kept waiting."""

    def __init__(self, on_new_site: NewSite, on_error: Callable[[Exception], None]) -> None:
        self._on_new_site, self._on_error = on_new_site, on_error
        self._told: set[str] = set()

    def look(self, remotes: Iterable[str]) -> None:
        for remote in remotes:
            if remote not in self._told:
                self._tell(remote)

    def _tell(self, remote: str) -> None:
        try:
            self._on_new_site(remote)
        except Exception as error:
            self._on_error(error)
        else:
            self._told.add(remote)

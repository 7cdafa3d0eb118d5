"""Keys this node itself takes note of: found by their prefix without a look at all others, with what changed of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class Noted:
    def __init__(self, prefixes: tuple[str, ...]) -> None:
        self._prefixes = prefixes
        self._keys: dict[str, dict[str, None]] = {prefix: {} for prefix in prefixes}
        self._changed: dict[str, None] = {}

    def is_there(self, keys: Iterable[str]) -> None:
        for prefix, key in self._mine(keys):
            self._keys[prefix][key] = None

    def is_gone(self, keys: Iterable[str]) -> None:
        for prefix, key in self._mine(keys):
            self._keys[prefix].pop(key, None)

    def _mine(self, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
        for key in keys if self._prefixes else ():
            for prefix in self._prefixes:
                if key.startswith(prefix):
                    self._changed[key] = None
                    yield prefix, key

    def keys(self, prefix: str) -> Iterable[str]:
        return self._keys[prefix]

    def changes(self) -> list[str]:
        """Those that came, changed or went since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

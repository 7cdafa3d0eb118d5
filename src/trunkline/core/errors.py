"""Every error names the thing, the reason and the next step; whether trying again can help is its type."""

from __future__ import annotations


class TrunklineError(Exception):
    """Base of all errors that reach a person. Raise `Retryable` or `Terminal`, or a subclass of one of them."""

    def __init__(self, what: str, why: str, next_step: str) -> None:
        super().__init__(what, why, next_step)
        self.what = what
        self.why = why
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.what}: {self.why} (next: {self.next_step})"


class Retryable(TrunklineError):
    """The same call may succeed later without anybody changing anything."""


class Terminal(TrunklineError):
    """The same call will fail again until somebody changes something."""


class Invalid(Terminal):
    """The caller's input is wrong; nothing was changed."""


class Fenced(Terminal):
    """Another holder has the lease: what this one did since is rolled back, and it must stop."""


class RemoteProtocolError(Terminal):
    """The other side broke the protocol; its connection is closed and nothing else happens."""


class LocalProtocolError(Terminal):
    """This side was about to break the protocol: a defect here, never the peer's fault."""

"""Credit: how much a sender may have on its way on one channel, kept by both ends without asking each other.

Theory of operation
-------------------
Each direction of each data channel begins with a window of bytes (`trunkline.net.channels`), counted in frames' sizes on
the wire. Sending spends credit, handling gives it back: the receiver adds up what it has handled and returns it in one
control message when it is half a window. A receiver that is *paused* goes on handling what arrives, but returns nothing;
so at most a window and one frame reach it, the sender stops, and the other channels do not notice.

The sender keeps an `Allowance`, the receiver an `Account`:

    allowance.left + bytes on their way + account.owed + returns on their way  =  window

 1. A frame may be sent while `left` is positive, and may overdraw it: so a frame larger than the window passes, too, and
    none waits for credit that can never come.
 2. `account.left + account.owed = window`: what the peer may still send is known exactly, so a frame that begins beyond it
    is a breach of the protocol ("credit"), never bad luck: returns count from when they are written.
 3. The peer never gives back more than was spent: `allowance.left` never passes the window. More is a breach as well.
 4. A sender without credit gets some again as soon as what it sent was handled, unless the receiver is paused: the whole
    window is then owed, and half is enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError


@dataclass
class Allowance:
    """The sender's end of one channel."""

    window: int
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.window

    def spend(self, size: int, last: int) -> None:
        """For frames of `size` bytes together, the last of them of `last` bytes."""
        if self.left - (size - last) <= 0:
            raise LocalProtocolError("credit", f"{self.left} bytes are left, {size} were to be sent", "wait for credit")
        self.left -= size

    def returned(self, size: int) -> None:
        if not 0 < size <= self.window - self.left:
            why = f"{size} bytes came back, {self.window - self.left} were spent"
            raise RemoteProtocolError("credit", why, "return what was handled, once")
        self.left += size


@dataclass
class Account:
    """The receiver's end of one channel."""

    window: int
    left: int = field(init=False)
    owed: int = 0
    paused: bool = False

    def __post_init__(self) -> None:
        self.left = self.window

    def received(self, size: int, last: int) -> None:
        """Frames of `size` bytes together, the last of them of `last` bytes."""
        if self.left - (size - last) <= 0:
            why = f"{size} bytes came, {self.left} were left of a window of {self.window}"
            raise RemoteProtocolError("credit", why, "send on while credit is left, then wait")
        self.left -= size
        self.owed += size

    @property
    def due(self) -> bool:
        return not self.paused and self.owed * 2 >= self.window

    def give_back(self) -> int:
        """What the return message says; it must be sent."""
        owed, self.owed = self.owed, 0
        self.left += owed
        return owed

"""Moving an origin from one parent to another while both are there.

EXACT     STOP to the old parent, which answers STOPPED in stream; then subscribe at the new one from there. Nothing crosses
          twice; the stream stands still for one and a half round trips. STOPPED comes behind the records that are on their
          way: while these come it is waited for, and STOP is said again, up to STOPS times, every HANDOVER_SECONDS.
SEAMLESS  subscribe at the new one first, as a *rival*; when it is as far as the old one it takes over and the old one is
          stopped. Nothing stands still; what both sent meanwhile crosses twice and is dropped by its number.

The same rivals serve `take_from_any`: several are asked, and the first that gets beyond what this site has takes over.
"""

from __future__ import annotations

from enum import StrEnum

from trunkline.trunk.messages import Batch
from trunkline.trunk.streams import Stream

HANDOVER_SECONDS = 2.0
STOPS = 5


class Handover(StrEnum):
    EXACT = "exact"
    SEAMLESS = "seamless"


def takes_over(rival: Stream, batch: Batch, reached: int) -> bool:
    return batch.upto.seq > reached or (batch.upto.seq == reached and not rival.any)


def fit_to_take_over(rival: Stream, start: int) -> None:
    """Takers that the rival's stream has passed by, or whose destinations it was not asked for, stay out; they ask anew."""
    fitting = (t for t in rival.takers if t.cursor is not None and t.cursor.seq >= start)
    rival.takers = [t for t in fitting if t.wants.keys() <= rival.wants.keys()]

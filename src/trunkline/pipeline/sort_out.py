"""What survived a micro-batch, sorted out for the inbox: bundles, messages that are none, sites that lost something. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trunkline.bridge.envelope import is_unkept
from trunkline.bridge.inbox import Arrived, Batch, Lost, Rejected
from trunkline.bridge.types import Types
from trunkline.core.bundle import parse_bundle
from trunkline.core.errors import Invalid
from trunkline.pipeline.conflate import Conflated
from trunkline.queues.kinds import Kind

LOST_HEADER = "trunkline-lost"


def sort_out(types: Types, conflated: Conflated, transport: str, lost: Sequence[Lost] = ()) -> Batch:
    """Bundles of their authenticated sender, as declared; how many nobody keeps; and the rest, each with its reason."""
    arrived: list[Arrived] = []
    rejected: list[Rejected] = []
    unkept: Counter[str] = Counter()
    gone = list(lost)
    for s in conflated.survivors:
        if s.kind is Kind.LOST:
            gone.append(Lost(s.remote, f"entries {s.headers.get(LOST_HEADER, '')} of {s.queue} never came".replace("  ", " ")))
        elif s.is_bundle and is_unkept(s.headers):
            unkept[s.remote] += s.copies
        elif s.is_bundle:
            try:
                bundle = types.accept(parse_bundle(s.headers, s.payload, s.remote))
            except Invalid as error:
                rejected.append(Rejected(s.remote, s.headers, s.payload, str(error), s.queue, s.position))
            else:
                arrived.append(Arrived(bundle, s.queue, s.position, s.at))
    return Batch(arrived, rejected, conflated.received(), gone, transport, unkept)

"""A provider that the test kills: `killed_provider.py <dsn> <client>`. It sends two chunks and then does nothing."""

from __future__ import annotations

import sys
import threading

from trunkline.queues.provider import SnapshotContext, SnapshotProvider


def provide(context: SnapshotContext) -> None:
    for n in range(3):
        context.transmit(bytes([n]) * (1 << 20))
    threading.Event().wait()


if __name__ == "__main__":
    SnapshotProvider(sys.argv[1], sys.argv[2], provide).run(threading.Event())

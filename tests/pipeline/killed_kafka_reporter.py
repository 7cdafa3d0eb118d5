"""Reports changes as fast as it can, until it is killed."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from trunkline.bridge.shipped import SHIPPED
from trunkline.pipeline.reporter_kafka import KafkaStatusReporter

if __name__ == "__main__":
    bootstrap, topic, state = sys.argv[1:]
    reporter = KafkaStatusReporter(bootstrap, "berlin", Path(state), SHIPPED, topic=topic)
    for number in itertools.count():
        reporter.report("clusters", [{"name": f"{os.getpid()}-{number}"}])
        os.write(1, b"sent\n")

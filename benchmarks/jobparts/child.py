"""A driver with another master than this benchmark's own: `python -m jobparts.child MASTER EVENTS FOLDER` prints a rate."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from jobparts.place import servers, site
from jobparts.rates import kafka_to_kafka
from trunkline.core.config import SparkConfig
from trunkline.pipeline.session import open_session


def main(master: str, events: int, folder: Path) -> None:
    folder.mkdir(parents=True)
    spark = open_session(folder / "spark", "bench", config=SparkConfig(master=master))
    try:
        with servers(folder) as (postgres, broker):
            print(json.dumps(kafka_to_kafka(site(spark, postgres, broker, folder, "cluster"), 1_000, events)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))

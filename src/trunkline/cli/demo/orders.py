"""Numbered orders on a Kafka topic of the hub: what its database says was ordered is what the topic has."""

from __future__ import annotations

import signal
import threading
from random import Random

import psycopg
import structlog

from trunkline.core.jsoncodec import dumps

ORDERS = "orders"
SCHEMA = """
CREATE SCHEMA IF NOT EXISTS app;
CREATE TABLE IF NOT EXISTS app.ordered (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, product text NOT NULL);
"""
PRODUCTS = ("pump", "valve", "sensor")
PATIENCE_SECONDS = 30.0


def run_orders(site: str, dsn: str, brokers: str, pace: float) -> None:
    from confluent_kafka import Producer

    stop, random, log = threading.Event(), Random(), structlog.get_logger().bind(site=site)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        while not stop.wait(pace * random.uniform(0.5, 1.5)):
            product = random.choice(PRODUCTS)
            with conn.transaction():
                row = conn.execute("INSERT INTO app.ordered (product) VALUES (%s) RETURNING number", (product,)).fetchone()
                assert row is not None
                order = {"kind": ORDERS, "site": site, "number": row[0], "product": product}
                producer.produce(ORDERS, dumps(order), key=product)
                if producer.flush(PATIENCE_SECONDS):
                    log.warning("the broker did not take an order", number=row[0])

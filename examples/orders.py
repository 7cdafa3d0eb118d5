"""A shop that keeps orders in a table of its own, and sends each change of an order to other sites in the same transaction.

    python examples/orders.py --dsn "$DATABASE_URL" --to berlin --orders 5

Whatever happens on the way, the table and the messages never tell different stories: both commit, or neither does.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import psycopg

from trunkline.queues.client import QueueClient

ORDERS = QueueClient("orders")
TABLE = "CREATE TABLE IF NOT EXISTS shop_order (id bigint PRIMARY KEY, item text NOT NULL, state text NOT NULL)"
PUT = """
INSERT INTO shop_order VALUES (%(id)s, %(item)s, %(state)s)
ON CONFLICT (id) DO UPDATE SET item = excluded.item, state = excluded.state
"""


def change(conn: psycopg.Connection[Any], order: dict[str, Any], destinations: list[str]) -> None:
    """The row and the message: the caller commits both, or neither."""
    conn.execute(PUT, order)
    ORDERS.transmit(conn, json.dumps(order).encode(), destinations, {"kind": "order"})


def run(dsn: str, destinations: list[str], orders: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(TABLE)
        (last,) = conn.execute("SELECT coalesce(max(id), 0) FROM shop_order").fetchone() or (0,)
        for number in range(last + 1, last + orders + 1):
            for state in ("placed", "paid"):
                with conn.transaction():
                    change(conn, {"id": number, "item": f"item {number}", "state": state}, destinations)
        _refused(conn, destinations)
    print(f"{orders} orders placed and paid; {2 * orders} messages for {', '.join(destinations)}")


def _refused(conn: psycopg.Connection[Any], destinations: list[str]) -> None:
    """An order that the shop itself refuses: neither the row nor the message is left."""
    try:
        with conn.transaction():
            change(conn, {"id": 0, "item": "nothing", "state": "placed"}, destinations)
            raise LookupError("there is no such item")
    except LookupError:
        print("one order was refused, and nobody hears of it")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dsn", required=True, help="the database of the shop, and of its site's queues")
    options.add_argument("--to", required=True, nargs="+", help="sites, or '*' for all")
    options.add_argument("--orders", type=int, default=5)
    given = options.parse_args()
    run(given.dsn, given.to, given.orders)

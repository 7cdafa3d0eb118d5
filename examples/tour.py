"""Two sites on this machine, and orders that go from one to the other: sent, received, and brought up by a snapshot.

    python examples/tour.py

Starts a Postgres and a node for each of `shop` and `berlin`, runs the other three examples between them, and ends by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from trunkline.core.ids import NodeId
from trunkline.db.embedded import EmbeddedPostgres, free_port
from trunkline.net.authority import issue, make_ca

HERE = Path(__file__).parent
PATIENCE = 60.0
ORDERS = 5


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def wait_for(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: it did not come to that within {PATIENCE:.0f} s")
        time.sleep(0.1)


def value(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(query.encode()).fetchone()
    return row[0] if row else None


# -- the sites


@contextmanager
def site(name: str, folder: Path, seed: str, links: list[str]) -> Iterator[str]:
    """A Postgres and a node; its connection string."""
    issue(folder / "ca", folder / name / "tls", NodeId(name, "node-1"))
    with EmbeddedPostgres(folder / name / "postgres") as postgres, ended(node(name, folder, postgres.dsn, seed, links)):
        wait_for(f"the node of {name}", (folder / name / "node.json").exists)
        yield postgres.dsn


def node(name: str, folder: Path, dsn: str, seed: str, links: list[str]) -> subprocess.Popen[bytes]:
    tls = {what: str(folder / name / "tls" / f"{what}.pem") for what in ("certificate", "key")}
    authority = {"ca": str(folder / "ca" / "ca.pem"), "revoked": str(folder / "ca" / "revoked.pem")}
    link = {"listen": seed if not links else "127.0.0.1:0", "seeds": [seed], "links": links}
    config = {"site": name, "database": dsn, "tls": tls | authority, "link": link, "api": {"listen": "127.0.0.1:0"}}
    file = folder / name / "site.yaml"
    file.write_text(json.dumps(config | {"runtime": str(folder / name)}))  # JSON is YAML, too
    with (folder / name / "node.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "trunkline.cli.main", "node", "run", "--config", str(file)], stderr=log)


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


# -- the other examples and the command line, as their page has them


def example(name: str, *words: str) -> None:
    subprocess.run([sys.executable, str(HERE / f"{name}.py"), *words], check=True, timeout=PATIENCE)


def beside(name: str, *words: str) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, str(HERE / f"{name}.py"), *words])


def queues(dsn: str, *words: str) -> None:
    print(f"$ trunkline queues {' '.join(words)}", flush=True)
    environment = {**os.environ, "DATABASE_URL": dsn}
    subprocess.run(
        [sys.executable, "-m", "trunkline.cli.main", "queues", *words], check=True, timeout=PATIENCE, env=environment
    )


# -- the tour


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="trunkline-tour-") as place, ExitStack() as stack:
        folder, seed = Path(place), f"127.0.0.1:{free_port()}"
        make_ca(folder / "ca", "tour")
        say("two sites: shop and berlin")
        shop = stack.enter_context(site("shop", folder, seed, []))
        berlin = stack.enter_context(site("berlin", folder, seed, ["shop"]))
        wait_for("the two to meet", lambda: value(shop, "SELECT count(*) FROM queues.site WHERE name = 'berlin'"))
        provider = stack.enter_context(ended(beside("snapshot_provider", "--dsn", shop)))
        wait_for("the provider", lambda: value(shop, "SELECT count(*) FROM queues.provider"))
        tour(shop, berlin)
        assert provider.poll() is None


def tour(shop: str, berlin: str) -> None:
    say("berlin is new: the shop's orders come as a snapshot, then as changes")
    example("orders", "--dsn", shop, "--to", "berlin", "--orders", str(ORDERS))
    with ended(beside("listener", "--dsn", berlin)):
        wait_for("all orders in berlin", lambda: in_step(shop, berlin))
        say("a snapshot, because an operator wants one")
        queues(shop, "sync", "berlin", "--client", "orders")
        wait_for("the forced snapshot", lambda: value(shop, DONE))
        example("orders", "--dsn", shop, "--to", "berlin", "--orders", str(ORDERS))
        wait_for("the orders after it", lambda: in_step(shop, berlin))
    say("and this is how it looks")
    queues(shop, "status")
    queues(berlin, "ls")
    queues(berlin, "verify")
    print(f"\nshop has {value(shop, ALL)} orders, and so has the ledger in berlin: {value(berlin, LEDGER)}")


ALL = "SELECT count(*) FROM shop_order WHERE state = 'paid'"
LEDGER = "SELECT count(*) FROM ledger WHERE shop = 'shop' AND state = 'paid'"
DONE = "SELECT count(*) FROM queues.request WHERE forced AND state = 'done'"


def in_step(shop: str, berlin: str) -> bool:
    exists = value(berlin, "SELECT to_regclass('ledger') IS NOT NULL")
    return bool(exists and value(shop, ALL) == value(berlin, LEDGER))


if __name__ == "__main__":
    main()

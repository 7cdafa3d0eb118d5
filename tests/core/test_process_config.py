"""The configuration file: read with its defaults, its paths and its overrides, or refused with everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.core.config import ProcessConfig, load_config
from trunkline.core.errors import Invalid
from trunkline.core.mistakes import Mistakes


def written(folder: Path, text: str | bytes) -> Path:
    file = folder / "node.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def refusal(folder: Path, text: str | bytes, **environ: str) -> list[str]:
    """The mistakes, one line each, without the folder."""
    file = written(folder, text)
    with pytest.raises(Mistakes) as refused:
        load_config(file, environ)
    assert str(file) in refused.value.what
    return [str(mistake).removeprefix(f"{folder}/") for mistake in refused.value.mistakes]


def with_tls(folder: Path) -> str:
    for name in ("ca.pem", "node.pem", "node.key"):
        (folder / name).touch()
    return "site: hub\ndatabase: dbname=x\ntls: {ca: ca.pem, certificate: node.pem, key: node.key}\n"


def test_a_small_file_is_enough(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "site: leaf\ndatabase: dbname=x\n"), {})
    assert (config.site, config.node, config.link.links, config.bridge) == ("leaf", "node-1", (), None)
    assert config.database.reveal() == "dbname=x"


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text("routes: []")
    rest = """
node: node-2
link: {listen: "0.0.0.0:7000", seeds: ["a:1"], links: [relay, leaf], follows: [weather], heartbeat_seconds: 1}
topology: {tie: hash, rebalance: true, hold_seconds: 0, publish_rows: never, no_relay: true, costs: {relay: 5, weather: 1000}}
trunk: {handover: seamless}
store: {areas: [plant], key_ttl_seconds: 60, compare_seconds: 5, flood_per_second: 10, flood_burst: 20, max_peers: 0}
api: {listen: "127.0.0.1:8080"}
routes: routes.yaml
bridge: {workers: 2}
"""
    config = load_config(written(tmp_path, with_tls(tmp_path) + rest), {})
    assert (config.link.links, config.link.follows) == (("relay", "leaf"), ("weather",))
    assert (config.topology.tie, config.topology.publish_rows, config.topology.hold_seconds) == ("hash", "never", 0.0)
    assert (config.topology.rebalance, config.topology.no_relay) == (True, True)
    assert config.topology.costs == {"relay": 5, "weather": 1000}
    assert config.trunk.handover == "seamless"
    assert (config.store.areas, config.store.max_peers) == (("plant",), 0)
    assert (config.store.flood_per_second, config.store.flood_burst) == (10.0, 20.0)
    assert config.bridge is not None
    assert (config.bridge.workers, config.bridge.client) == (2, "status")


def test_relative_paths_begin_in_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    config = load_config(written(tmp_path, with_tls(tmp_path) + f"routes: {tmp_path}/ca.pem\n"), {})
    assert config.tls is not None
    assert config.tls.key == tmp_path / "node.key"
    assert config.routes == tmp_path / "ca.pem"
    assert config.runtime == tmp_path


def test_a_default_path_means_the_same_as_when_it_is_written(tmp_path: Path) -> None:
    default = load_config(written(tmp_path, "site: leaf\ndatabase: dbname=x\n"), {})
    explicit = load_config(written(tmp_path, "site: leaf\ndatabase: dbname=x\nruntime: .\n"), {})
    assert default == explicit


def test_a_relative_file_name_is_fixed_to_the_folder_it_was_read_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "site: leaf\ndatabase: dbname=x\nruntime: run\n")
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("node.yaml"), {}).runtime == tmp_path / "run"


def test_a_model_made_without_a_file_keeps_its_paths() -> None:
    assert ProcessConfig.model_validate({"site": "a", "database": "dbname=x", "runtime": "run"}).runtime == Path("run")


@pytest.mark.parametrize("text", ["", "- a", "just text", "site: [", "a: b: c", "\0", b"\xff\xfe\x80", "site: a\n---\nsite: b"])
def test_a_file_that_is_no_configuration_is_refused_in_one_line(tmp_path: Path, text: str | bytes) -> None:
    (line,) = refusal(tmp_path, text)
    assert line.startswith("node.yaml:")
    assert "\n" not in line


def test_a_missing_file_is_refused_with_the_option_to_change(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="No such file") as refused:
        load_config(tmp_path / "gone.yaml")
    assert "--config" in refused.value.next_step


def test_a_configuration_does_not_change(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "site: leaf\ndatabase: dbname=x\n"), {})
    with pytest.raises(ValueError, match="frozen"):
        config.site = "other"


TWENTY = """\
site: Hub One
node: on
databse: dbname=x password=hunter2
tls:
  ca: nowhere/ca.pem
  certificate: node.pem
  key: |
    -----BEGIN PRIVATE KEY-----
  revokd: revoked.pem
link:
  listen: 0.0.0.0
  seeds: hub:7400
  links: [relay, relay]
  heartbeat_seconds: 0
  workers: 3
api:
  listen: 127.0.0.1:8080
  listen: 0.0.0.0:8080
  max_body_bytes: 1 MB
bridge:
log:
  level: trace
otlp:
  endpoint: collector:4318
  headers: {authorization: 12345, x-key: "secret://env/NO_SUCH"}
"""
NAME = "a name is 1 to 63 lower-case letters, digits, '.', '_' or '-', beginning and ending with a letter or digit"
KNOWN = (
    "known: site, node, database, tls, link, store, topology, trunk, queues, api, routes, routing, "
    "route_secrets, bridge, spark, log, otlp, stop_seconds, runtime"
)


def test_a_file_of_twenty_mistakes_gives_twenty_lines(tmp_path: Path) -> None:
    (tmp_path / "node.pem").touch()
    assert refusal(tmp_path, TWENTY, TRUNKLINE_STOP_SECONDS="soon") == [
        "node.yaml:1: database: it is missing (write database: secret://env/DATABASE_URL, connection string of the site's"
        " Postgres, or where it is: secret://env/NAME, secret://file/path)",
        f"node.yaml:1: site: site 'Hub One': {NAME} (rename the site)",
        'node.yaml:2: node: a text is wanted, and YAML reads on as true (put it in quotes: "on")',
        f"node.yaml:3: databse: there is no such key, the nearest is 'database' ({KNOWN})",
        f"node.yaml:5: tls.ca: there is no file {tmp_path}/nowhere/ca.pem (`trunkline ca init` writes it)",
        "node.yaml:7: tls.key: this is the text of a file, not the path of one (`trunkline ca issue` writes it)",
        "node.yaml:9: tls.revokd: there is no such key, the nearest is 'revoked' (known: ca, certificate, key, revoked)",
        "node.yaml:11: link.listen: address '0.0.0.0': it is not <host>:<port>"
        " (write it like 127.0.0.1:7400, hub.example.com:7400 or [::1]:7400)",
        "node.yaml:12: link.seeds: a list is wanted, found 'hub:7400' (such as ['hub.example.com:7400'])",
        "node.yaml:13: link.links[1]: 'relay' is already there as link.links[0] (keep one of them)",
        "node.yaml:14: link.heartbeat_seconds: it must be above 0 and at most 60, found 0 (such as 0.5)",
        "node.yaml:15: link.workers: there is no such key, it belongs to bridge"
        " (known: listen, advertise, seeds, links, follows, heartbeat_seconds, handshake_seconds)",
        "node.yaml:18: api.listen: it is written twice, first in line 17 (keep one of them)",
        "node.yaml:18: api.listen: without tokens everybody who reaches this address could use the API"
        " (add api.tokens, which `trunkline token new` makes, or listen on 127.0.0.1)",
        "node.yaml:19: api.max_body_bytes: a whole number is wanted, found '1 MB' (such as 1048576)",
        "node.yaml:20: bridge: it is empty (write its keys, or {} for its defaults, or remove it)",
        "node.yaml:22: log.level: 'trace' is not known, write 'debug', 'info', 'warning' or 'error'",
        "node.yaml:24: otlp.endpoint: this is not an http or https URL (write it like http://127.0.0.1:4318/v1/traces)",
        "node.yaml:25: otlp.headers.authorization: a text is wanted, found a number (put it in quotes)",
        "node.yaml:25: otlp.headers.x-key: there is no environment variable NO_SUCH (set it, or correct its name here)",
        "TRUNKLINE_STOP_SECONDS: stop_seconds: a number is wanted, found 'soon' (such as 10.0)",
    ]  # fmt: skip


SMALL = "site: leaf\ndatabase: dbname=x\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("node: 7", 'node.yaml:3: node: a text is wanted, and YAML reads 7 as a number (put it in quotes: "7")'),
        ("node: 2024-01-01", 'YAML reads 2024-01-01 as a date (put it in quotes: "2024-01-01")'),
        ("node: [a]", "node: a text is wanted, found a list (such as node-1)"),
        ("link: {listen: 1:30}", 'link.listen: a text is wanted, and YAML reads 1:30 as a number (put it in quotes: "1:30")'),
        ("link: 7", "link: a section is wanted, found 7 (write its keys below it: listen, advertise, seeds"),
        ("link:", "link: it is empty (write its keys, or {} for its defaults, or remove it)"),
        ("link: {links: [a, 1]}", "link.links[1]: a text is wanted, and YAML reads 1 as a number"),
        ("link: {handshake_seconds: yes}", "link.handshake_seconds: a number is wanted; this is true or false to YAML"),
        ("link: {handshake_seconds: .inf}", "link.handshake_seconds: a number is wanted, found inf"),
        ("link: {advertise: ['a:0']}", "link.advertise[0]: address 'a:0': nobody can dial it"),
        ("link: {advertise: ['0.0.0.0:7']}", "link.advertise[0]: address '0.0.0.0:7': nobody can dial it"),
        ("link: {listen: 'a:70000'}", "a port is at most 65535"),
        ("link: {listen: '::1:80'}", "'::1' is not the name or number of a host"),
        ("store: {areas: [fleet]}", "store.areas[0]: every node is in it already (name further areas only"),
        ("store: {areas: ['site:hub']}", "store.areas[0]: every node is in it already"),
        ("store: {areas: [Plant 1]}", "store.areas[0]: area 'Plant 1': a name is 1 to 63 lower-case letters"),
        ("store: {key_ttl_seconds: 0}", "store.key_ttl_seconds: it must be at least 5 and at most 86400"),
        ("store: {max_peers: 65}", "store.max_peers: it must be at least 0 and at most 64"),
        ("store: {flood_per_second: 0, flood_burst: 1}", "store.flood_per_second: it must be above 0"),
        ("bridge: {workers: 1.5}", "bridge.workers: a whole number is wanted, found 1.5 (such as 4)"),
        ("bridge: {client: No}", 'bridge.client: a text is wanted, and YAML reads No as false (put it in quotes: "No")'),
        ("listen: a:1", "listen: there is no such key, it belongs to link or api"),
        ("role: admin", "role: there is no such key, it belongs to api.tokens (known: site"),
        ("1: x", "node.yaml:3: 1: a key is a text (write '1')"),
        ("api: {tokens: [{name: '', sha256: x}]}", "api.tokens[0].name: it must be at least 1 long and at most 63 long,"),
        ("api: {tokens: [{name: ci, sha256: hunter2}]}", "api.tokens[0](ci).sha256: a SHA-256 is 64 hexadecimal digits"),
        ("api: {tokens: [{name: ci, role: root}]}", "[0](ci).role: 'root' is not known, write 'read', 'write' or 'admin'"),
        ("otlp: {endpoint: 'http://u:hunter2@h/'}", "otlp.endpoint: it has a password in it, which would be printed"),
        ("otlp: {endpoint: 'http://h', headers: {1: a}}", "otlp.headers.1: a key is a text (write '1')"),
        ("topology: {tie: random}", "topology.tie: 'random' is not known, write 'first' or 'hash'"),
        ("topology: {publish_rows: true}", "topology.publish_rows: true is not known, write 'auto', 'always' or 'never'"),
        ("topology: {no_relay: sometimes}", "topology.no_relay: true or false is wanted, found 'sometimes' (such as false)"),
        ("topology: {hold_seconds: -1}", "topology.hold_seconds: it must be at least 0 and at most 3600, found -1"),
        ("topology: {costs: [hub]}", "topology.costs: a map is wanted, found a list (such as {hub: 5})"),
        ("topology: {costs: {hub: 0}}", "topology.costs.hub: it must be at least 1 and at most 1000, found 0"),
        ("topology: {costs: {hub: 1001}}", "topology.costs.hub: it must be at least 1 and at most 1000, found 1001"),
        ("topology: {costs: {hub: cheap}}", "topology.costs.hub: a whole number is wanted, found 'cheap'"),
        ("topology: {costs: {hub: on}}", "topology.costs.hub: a number is wanted; this is true or false to YAML"),
        ("trunk: {handover: soft}", "trunk.handover: 'soft' is not known, write 'exact' or 'seamless'"),
        ("topology: {handover: exact}", "topology.handover: there is no such key, it belongs to trunk"),
        ("routing: {storage: memory}", "routing.storage: it is neither postgres nor the address of a Redis such as redis://"),
        ("routing: {sync: 'redis://:hunter2@h/a'}", "routing.sync: it is neither postgres nor the address of a Redis"),
        ("routing: {repair_seconds: 0}", "routing.repair_seconds: it must be at least 1 and at most 86400, found 0"),
        ("routing: {event_seconds: 0}", "routing.event_seconds: it must be above 0 and at most 3600, found 0"),
        ("route_secrets: {acme: {shop: hunter2}}", "route_secrets.acme.shop: a map is wanted, found a text"),
        ("route_secrets: {acme: {shop: {k: 12}}}", "route_secrets.acme.shop.k: a text is wanted, found a number"),
        ("route_secrets: {acme: {shop: {k: 'secret://env/NO'}}}", "route_secrets.acme.shop.k: there is no environment"),
        ("runtime: node.yaml", "runtime: this is a file, not a folder"),
        ("routes: .", "is not a file"),
        ('runtime: "a\\0b"', "runtime: a path has no character 0"),
        ("log: {level: info, level: error}", "node.yaml:3: log.level: it is written twice, first in line 3"),
    ],
)  # fmt: skip
def test_a_mistake_says_what_would_be_right(tmp_path: Path, text: str, line: str) -> None:
    lines = refusal(tmp_path, SMALL + text)
    assert line in "\n".join(lines)
    assert "hunter2" not in "\n".join(lines)


@pytest.mark.parametrize(
    ("rest", "line"),
    [
        ("link: {links: [hub]}", "link.links[0]: a site has no link with itself"),
        ("link: {follows: [leaf, hub]}", "link.follows[1]: a site has no link with itself"),
        ("link: {follows: [leaf, leaf]}", "link.follows[1]: 'leaf' is already there as link.follows[0]"),
        (
            "link: {links: [a, b], follows: [b]}",
            "link.follows[0]: 'b' is already there as link.links[1], and a link gives and takes (keep it in",
        ),
        (
            "link: {links: [a], follows: [b]}\ntopology: {costs: {a: 2, b: 2, c: 2}}",
            "node.yaml:5: topology.costs.c: this site neither links nor follows it (name it in link.links or link.follows, or",
        ),
        ("link: {seeds: ['a:1', 'b:1', 'a:1']}", "link.seeds[2]: 'a:1' is already there as link.seeds[0]"),
        (
            "api: {tokens: [{name: a, sha256: 'secret://env/H'}, {name: a, sha256: 'secret://env/H'}]}",
            "api.tokens[1](a).name: 'a' is already there",
        ),
        ("store: {areas: [plant, plant]}", "store.areas[1]: 'plant' is already there as store.areas[0]"),
        ("store: {flood_per_second: 5}", "store.flood_per_second: it means nothing without store.flood_burst (write both,"),
        ("store: {flood_burst: 5}", "store.flood_burst: it means nothing without store.flood_per_second (write both,"),
        ("api: {listen: '192.0.2.1:80'}", "api.listen: without tokens everybody"),
        ("api: {listen: '[::]:80', tokens: []}", "api.listen: without tokens everybody"),
        ("api: {listen: 'localhost.example.com:80'}", "api.listen: without tokens everybody"),
    ],
)
def test_keys_must_fit_together(tmp_path: Path, rest: str, line: str) -> None:
    (found,) = refusal(tmp_path, with_tls(tmp_path) + rest, H="0" * 64)
    assert line in found


@pytest.mark.parametrize("listen", ["localhost:1", "127.0.0.1:1", "127.9.9.9:0", "'[::1]:1'"])
def test_loopback_needs_no_tokens(tmp_path: Path, listen: str) -> None:
    assert load_config(written(tmp_path, f"{SMALL}api: {{listen: {listen}}}"), {})


def test_with_tokens_the_api_may_listen_anywhere(tmp_path: Path) -> None:
    tokens = f"[{{name: ci, sha256: '{'ab' * 32}', role: admin}}]"
    config = load_config(written(tmp_path, f"{SMALL}api: {{listen: '0.0.0.0:80', tokens: {tokens}}}"), {})
    assert config.api.tokens[0].sha256.reveal() == "ab" * 32


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres", "postgres"),
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://ann:hunter2@h:1", "rediss://ann:***@h:1"),
        ("redis://:hunt@er2@h/3?health_check_interval=2", "redis://:***@h/3?***"),
    ],
)
def test_of_a_redis_people_see_all_but_its_password(tmp_path: Path, text: str, shown: str) -> None:
    config = load_config(written(tmp_path, f"{SMALL}routing: {{storage: '{text}'}}"), {})
    assert (str(config.routing.storage), config.routing.storage.reveal()) == (shown, text)


def test_links_and_seeds_need_tls(tmp_path: Path) -> None:
    lines = refusal(tmp_path, SMALL + "link:\n  links: [hub]\n  seeds: ['hub:1']\n  follows: [relay]\n")
    assert [line.partition(" (")[0] for line in lines] == [
        "node.yaml:4: link.links: nodes meet over TLS only, and there is no tls section",
        "node.yaml:5: link.seeds: nodes meet over TLS only, and there is no tls section",
        "node.yaml:6: link.follows: nodes meet over TLS only, and there is no tls section",
    ]


def test_a_section_may_be_null_but_not_forgotten(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, SMALL + "bridge: null\notlp: ~\n"), {}).bridge is None
    assert refusal(tmp_path, SMALL + "bridge:\n  # workers: 4\n")


def test_values_that_come_by_an_anchor_have_their_line_too(tmp_path: Path) -> None:
    lines = refusal(tmp_path, SMALL + "link: &l\n  heartbeat_seconds: 0\nlog:\n  <<: *l\n")
    assert [line.split(": ")[:2] for line in lines] == [
        ["node.yaml:4", "link.heartbeat_seconds"],
        ["node.yaml:4", "log.heartbeat_seconds"],
    ]

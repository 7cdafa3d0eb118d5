"""The configuration file: read with its defaults, or refused with everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.core.config import load_config
from trunkline.core.errors import Invalid


def refusal(folder: Path, text: str | bytes) -> Invalid:
    file = folder / "node.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(Invalid) as refused:
        load_config(file)
    assert str(file) in refused.value.what
    return refused.value


def test_a_small_file_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("site: leaf\ndatabase: dbname=x\n")
    config = load_config(file)
    assert (config.site, config.node, config.link.links, config.bridge) == ("leaf", "node-1", (), None)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("""
site: hub
node: node-2
database: dbname=x
tls: {ca: ca.pem, certificate: node.pem, key: node.key}
link: {listen: "0.0.0.0:7000", seeds: ["a:1"], links: [relay, leaf], heartbeat_seconds: 1}
api: {listen: "127.0.0.1:8080"}
routes: routes.yaml
bridge: {workers: 2}
""")
    config = load_config(file)
    assert config.link.links == ("relay", "leaf")
    assert config.tls is not None
    assert config.tls.key == Path("node.key")
    assert config.bridge is not None
    assert (config.bridge.workers, config.bridge.client) == (2, "status")


def test_all_that_is_wrong_comes_in_one_error(tmp_path: Path) -> None:
    error = refusal(
        tmp_path,
        """
site: Not A Name
link: {links: [ok, "no good"], heartbeat_seconds: 0}
bridge: {workers: 0, colour: red}
tls: {ca: x}
""",
    )
    for key in (
        "site:", "database:", "link.links.1:", "link.heartbeat_seconds:",
        "bridge.workers:", "bridge.colour:", "tls.certificate:", "tls.key:",
    ):  # fmt: skip
        assert key in error.why
    assert "lower-case" in error.why


@pytest.mark.parametrize("text", ["", "- a", "just text", "site: [", "a: b: c", b"\xff\xfe\x80"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str | bytes) -> None:
    assert refusal(tmp_path, text).why


def test_a_missing_file_is_refused_with_the_option_to_change(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="No such file") as refused:
        load_config(tmp_path / "gone.yaml")
    assert "--config" in refused.value.next_step


def test_a_configuration_does_not_change(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("site: leaf\ndatabase: dbname=x\n")
    with pytest.raises(ValueError, match="frozen"):
        load_config(file).site = "other"  # type: ignore[misc]

"""`trunkline token`: a token is shown once, its hash is what a configuration keeps, and neither is ever an argument."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from trunkline.api.tokens import Keyring, hash_of, looks_like_a_token
from trunkline.cli.token import app
from trunkline.core.config import ApiConfig, Role
from trunkline.core.errors import Invalid

cli = CliRunner()


def made(*words: str) -> dict[str, str]:
    done = cli.invoke(app, ["new", "--json", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return dict(json.loads(done.stdout))


@pytest.fixture
def configuration(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A configuration with three tokens, and the last one."""
    entries = [made("--name", name, "--role", "write", "--tenant", "acme") for name in ("a", "b", "c")]
    path = tmp_path / "site.yaml"
    tokens = [{key: value for key, value in entry.items() if key != "token"} for entry in entries]
    path.write_text(yaml.safe_dump({"site": "paris", "database": "postgresql:///x", "api": {"tokens": tokens}}))
    return path, entries[-1]


@pytest.mark.parametrize("words", [["new"], ["check"]])
def test_the_help_has_an_example(words: list[str]) -> None:
    assert f"Example: trunkline token {words[0]}" in " ".join(cli.invoke(app, [*words, "--help"]).stdout.split())


def test_a_new_token_and_the_lines_for_the_configuration() -> None:
    done = cli.invoke(app, ["new", "--name", "shop-app", "--role", "write", "--tenant", "acme"], catch_exceptions=False)
    token, _, snippet = done.stdout.partition("\n")
    assert looks_like_a_token(token)
    assert done.output.count(token) == 1
    api = ApiConfig.model_validate(yaml.safe_load(snippet)["api"])
    caller = Keyring(api.tokens).caller(token.encode())
    assert caller is not None
    assert (caller.name, caller.role, caller.tenant) == ("shop-app", Role.WRITE, "acme")
    assert "shown this once" in done.stderr


def test_as_json_it_is_one_document_and_no_two_are_the_same() -> None:
    first, second = made("--name", "a", "--role", "read"), made("--name", "a", "--role", "read")
    assert set(first) == {"token", "name", "sha256", "role"}
    assert first["sha256"] == hash_of(first["token"].encode())
    assert first["token"] != second["token"]


@pytest.mark.parametrize("name", ["", "x" * 64])
def test_a_name_that_the_configuration_would_refuse_is_refused_here(name: str) -> None:
    with pytest.raises(Invalid, match="name"):
        cli.invoke(app, ["new", "--name", name, "--role", "read"], catch_exceptions=False)


def test_a_role_that_is_none_is_a_wrong_use() -> None:
    assert cli.invoke(app, ["new", "--name", "a", "--role", "god"]).exit_code == 2


def test_check_tells_the_hash() -> None:
    token = made("--name", "a", "--role", "read")
    done = cli.invoke(app, ["check"], input=token["token"] + "\n")
    assert (done.exit_code, done.stdout) == (0, f"sha256: {token['sha256']}\n")


def test_check_tells_whose_a_token_is(configuration: tuple[Path, dict[str, str]]) -> None:
    path, token = configuration
    done = cli.invoke(app, ["check", "--config", str(path)], input=token["token"], catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (0, "yes: c, role write, bound to the tenant acme\n")
    done = cli.invoke(app, ["check", "--json", "--config", str(path)], input=token["token"], catch_exceptions=False)
    assert json.loads(done.stdout) == {
        "sha256": token["sha256"], "well_formed": True, "fits": True, "name": "c", "role": "write", "tenant": "acme",
    }  # fmt: skip


def test_check_ends_with_1_when_it_is_nobodys(configuration: tuple[Path, dict[str, str]]) -> None:
    path, token = configuration
    for text in (made("--name", "c", "--role", "write")["token"], token["sha256"]):
        done = cli.invoke(app, ["check", "--config", str(path)], input=text)
        assert done.exit_code == 1
        assert done.stdout.startswith("no: none of the tokens in ")
        assert text not in done.output


def test_check_without_a_token_says_how() -> None:
    with pytest.raises(Invalid, match="empty"):
        cli.invoke(app, ["check"], input=" \n", catch_exceptions=False)


@pytest.mark.parametrize("words", [["check", "tl_x"], ["new", "--token", "tl_x"], ["check", "--token", "tl_x"]])
def test_no_command_takes_a_token_as_an_argument(words: list[str]) -> None:
    assert cli.invoke(app, words).exit_code == 2

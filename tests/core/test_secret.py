"""Secrets: found where the file says, used by `reveal`, and printed nowhere."""

from __future__ import annotations

import copy
import pickle
import traceback
from pathlib import Path

import pytest
from pydantic import ValidationError

from trunkline.core.config import ProcessConfig, TokenConfig, load_config
from trunkline.core.errors import Invalid
from trunkline.core.mistakes import Mistakes
from trunkline.core.secret import ConnectionString, Secret

HIDDEN = "hunter2"
DSN = f"host=db.example.com dbname=site password={HIDDEN}"


def load(folder: Path, text: str, **environ: str) -> ProcessConfig:
    file = folder / "node.yaml"
    file.write_text(text)
    return load_config(file, environ)


def test_a_variable_gives_a_secret(tmp_path: Path) -> None:
    config = load(tmp_path, "site: a\ndatabase: secret://env/DB\n", DB=DSN)
    assert config.database.reveal() == DSN
    assert str(config.database) == "secret://env/DB"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_file_gives_a_secret_without_its_last_newline(tmp_path: Path, ending: str) -> None:
    (tmp_path / "db").write_bytes((DSN + ending).encode())
    for reference in ("secret://file/db", f"secret://file/{tmp_path}/db"):
        config = load(tmp_path, f"site: a\ndatabase: {reference}\n")
        assert (config.database.reveal(), str(config.database)) == (DSN, reference)


def test_secrets_in_maps_and_lists_are_found_too(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
site: a
database: dbname=x
otlp: {endpoint: "http://h", headers: {authorization: secret://env/A, plain: hunter2}}
api: {tokens: [{name: ci, sha256: secret://env/H}]}
""",
        A=HIDDEN,
        H="ab" * 32,
    )
    assert config.otlp is not None
    assert {name: secret.reveal() for name, secret in config.otlp.headers.items()} == {"authorization": HIDDEN, "plain": HIDDEN}
    assert config.api.tokens[0].sha256.reveal() == "ab" * 32


@pytest.mark.parametrize("reference", ["env/DB", "file/db", None])
def test_a_secret_is_printed_nowhere(tmp_path: Path, reference: str | None) -> None:
    (tmp_path / "db").write_text(DSN)
    config = load(tmp_path, f"site: a\ndatabase: {'secret://' + reference if reference else DSN}\n", DB=DSN)
    again = [config, copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config)), config.model_copy()]
    assert all(one.database.reveal() == DSN for one in again)
    shown = "".join(f"{one!r}{one}{one.database}{one.database!r}{one.model_dump()}{one.model_dump_json()}" for one in again)
    assert HIDDEN not in shown
    assert "database" in shown


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("secret://env/GONE", "node.yaml:2: database: there is no environment variable GONE (set it"),
        ("secret://env/DBX", "there is no environment variable DBX, but there is DB "),
        ("secret://file/gone", "/gone cannot be read: No such file or directory (write the secret into it"),
        ("secret://file/.", "cannot be read: Is a directory"),
        ("secret://file/bytes", "is not text"),
        ("secret://file/large", "is larger than 65536 bytes"),
        ("secret://vault/db", "this is not a reference to a secret (write secret://env/NAME or secret://file/path)"),
        ("secret://env/", "this is not a reference to a secret"),
        ("secret://env/WRONG", "what secret://env/WRONG holds cannot be used: it is not a connection string"),
        ("secret://env/EMPTY", "what secret://env/EMPTY holds cannot be used"),
        (HIDDEN, "database: it is not a connection string such as host="),
        ("[hunter2]", "database: a text is wanted, found a list (such as secret://env/DATABASE_URL)"),
        ("{hunter2: hunter2}", "database: a text is wanted, found a map"),
        ("7", "database: a text is wanted, found a number (put it in quotes)"),
        ("*hunter2", "it is not YAML: found undefined alias (put a text that begins with * in quotes)"),
        ("!hunter2 x", "it is not YAML: could not determine a constructor for the tag (put a text that begins with ! in"),
        ("'hunter2", "it is not YAML: while scanning a quoted scalar, found unexpected end of stream"),
    ],
)
def test_a_secret_that_cannot_be_had_is_a_mistake_without_its_text(tmp_path: Path, reference: str, reason: str) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"a" * 70_000)
    with pytest.raises(Mistakes) as refused:
        load(tmp_path, f"site: a\ndatabase: {reference}\n", DB=DSN, WRONG=HIDDEN, EMPTY="")
    text = "".join(traceback.format_exception(refused.value)) + repr(refused.value)
    assert reason in text
    assert HIDDEN not in text
    assert refused.value.__context__ is None, "pydantic's error holds the value: nobody must find it here"


def test_a_model_made_without_a_file_prints_no_value_either() -> None:
    with pytest.raises(ValidationError) as refused:
        TokenConfig.model_validate({"name": "ci", "sha256": HIDDEN})
    assert HIDDEN not in str(refused.value)


def test_a_reference_that_nobody_followed_is_not_taken_for_the_secret() -> None:
    config = ProcessConfig.model_validate({"site": "a", "database": "secret://env/DB"})
    assert not config.database.known
    with pytest.raises(Invalid, match="secret://env/DB"):
        config.database.reveal()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (DSN, "host=db.example.com dbname=site password=***"),
        (f"password = 'it\\'s {HIDDEN}' host=/run/x", "password=*** host=/run/x"),
        (f"password=a\\ {HIDDEN} port=5", "password=*** port=5"),
        (f"host=a sslpassword={HIDDEN}", "host=a sslpassword=***"),
        (f"dbname=postgresql://u:{HIDDEN}@h/d", "dbname=***"),
        (f"postgresql://u:{HIDDEN}@h:5/d", "postgresql://u:***@h:5/d"),
        (f"postgresql://u:p@{HIDDEN}@h/d", "postgresql://u:***@h/d"),
        (f"postgresql://u:p/{HIDDEN}@h/d", "postgresql://u:***@h/d"),
        (f"postgresql://u@h,[::1]:5/d?password={HIDDEN}", "postgresql://u@h,[::1]:5/d?***"),
        (f"postgresql://u:p@h/d?password=x@{HIDDEN}", "postgresql://u:***@h/d?***"),
        (f"postgresql://u:{HIDDEN}", "***"),
        (f"password='{HIDDEN}", "***"),
        (HIDDEN, "***"),
    ],
)
def test_of_a_connection_string_only_harmless_parts_are_shown(text: str, shown: str) -> None:
    assert str(ConnectionString.plain(text)) == shown


def test_equal_secrets_are_equal() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1
    assert Secret("a") != "a"

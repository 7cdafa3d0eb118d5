"""Whatever stands in a file: a configuration or mistakes, never another error, and never a secret."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trunkline.core.config import ProcessConfig, load_config
from trunkline.core.fields import sections
from trunkline.core.mistakes import Mistakes

HIDDEN = "xyzzy-plugh"
KEYS = sorted({name for _, model in sections(ProcessConfig) for name in model.model_fields} | {"name", "sha256", "role"})
GOOD: dict[str, Any] = {
    "site": "hub",
    "database": f"host=a password={HIDDEN}",
    "link": {"listen": "127.0.0.1:1", "seeds": ["a:1"], "links": ["b"]},
    "api": {"tokens": [{"name": "t", "sha256": HIDDEN}]},
    "otlp": {"endpoint": "http://a", "headers": {"h": HIDDEN}},
}

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.binary(max_size=5) | st.text(max_size=9)
    | st.sampled_from(["127.0.0.1:1", "secret://env/A", "secret://file/x", "secret://", "hub", "1:2", "", "http://[", "\0"])
)  # fmt: skip
keys = st.sampled_from(KEYS) | st.text(max_size=5) | st.integers() | st.none()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
variables = st.sampled_from(KEYS).map(lambda key: f"TRUNKLINE_{key.upper()}") | st.text(max_size=9).map("TRUNKLINE_".__add__)
documents = values | st.dictionaries(st.sampled_from(KEYS), values, max_size=8)


def read(data: bytes, environ: dict[str, str] | None = None) -> str:
    """What a person may come to see of this file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "node.yaml"
        file.write_bytes(data)
        try:
            config = load_config(file, environ or {})
        except Mistakes as error:
            refused = error
        else:
            return repr(config) + config.model_dump_json()
    assert refused.mistakes
    assert all(str(mistake).isprintable() for mistake in refused.mistakes), "one line each, harmless for a terminal"
    return f"{refused}{refused!r}"


@settings(max_examples=150, deadline=None)
@given(documents)
def test_any_document_gives_a_configuration_or_mistakes(document: Any) -> None:
    read(yaml.safe_dump(document).encode(errors="surrogatepass"))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@example(b"a: " + b"[" * 5000)
@example(b"&a [*a, *a]")
@example(b"site: &a {? *a : *a}")
@example(b"link: &a {links: *a}")
@example(b'"\\ud800": 1')
@example(b"site: 0x_\nnode: !!timestamp x\n")
@example(b"site: !!int x")
@example(b"? [a]\n: b")
@example(b"<<: 7")
@example(b"!!set {a, b}")
@example(b"site: " + b"9" * 5000)
@example(b"=: 7")
def test_any_bytes_give_a_configuration_or_mistakes(data: bytes) -> None:
    read(data)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="abcdefgh.:/[]{}*&!#'\"%-, \n\t@=", max_size=40), st.integers(0, 400), st.integers(0, 10))
def test_a_damaged_file_never_shows_its_secrets(damage: str, at: int, cut: int) -> None:
    text = yaml.safe_dump(GOOD)
    at = min(at, len(text))
    damaged = text[:at] + damage + text[at + cut :]
    seen = read(damaged.encode())
    if all(f"{lead}{HIDDEN}\n" in damaged for lead in ("password=", "sha256: ", "h: ")):
        assert HIDDEN not in seen


@settings(max_examples=150, deadline=None)
@given(values, st.sampled_from(["database", "otlp", "api"]))
def test_a_secret_among_anything_is_not_shown(value: Any, key: str) -> None:
    wrapped = {
        "database": [HIDDEN, value],
        "otlp": {"endpoint": "http://a", "headers": {"a": HIDDEN, "b": value, "c": [HIDDEN]}},
        "api": {"tokens": [{"name": "t", "sha256": HIDDEN, "role": value}, {"name": value, "sha256": {"x": HIDDEN}}]},
    }
    assert HIDDEN not in read(yaml.safe_dump({**GOOD, key: wrapped[key]}).encode(errors="surrogatepass"))


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(KEYS).map(lambda key: f"TRUNKLINE_{key.upper()}") | st.text(max_size=9), st.text(max_size=20)
    )
)
def test_any_environment_gives_a_configuration_or_mistakes(environ: dict[str, str]) -> None:
    read(b"site: hub\ndatabase: dbname=x\n", environ)
    read(b"[]", environ)

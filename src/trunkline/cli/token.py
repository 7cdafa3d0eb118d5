"""`trunkline token`: makes tokens of the API, and says whose one is. A token is never an argument: others can read those."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.options import JsonOption
from trunkline.core.config import Role, TokenConfig, load_config
from trunkline.core.errors import Invalid
from trunkline.core.secret import Secret

app = typer.Typer(no_args_is_help=True, help="Tokens of the API.")

NO_FIT = 1
_MAX_TOKEN = 4096


@app.callback()
def _group() -> None: ...


@app.command("new")
def new(
    name: Annotated[str, typer.Option(help="Appears in the log instead of the token.")],
    role: Annotated[Role, typer.Option(help="Each includes the ones before it.")],
    tenant: Annotated[str | None, typer.Option(help="What the token may touch; none: everything.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Makes a token and shows it this once; the configuration keeps its hash only.

    Example: [bold]trunkline token new --name shop-app --role write[/]
    """
    import secrets

    from trunkline.api.tokens import RANDOM_BYTES, hash_of, new_token

    token = new_token(secrets.token_bytes(RANDOM_BYTES))
    entry = _entry(name, role, tenant, hash_of(token.encode()))
    if as_json:
        typer.echo(json.dumps({"token": token, **entry}))
    else:
        _show(token, entry)


def _entry(name: str, role: Role, tenant: str | None, sha256: str) -> dict[str, str]:
    from pydantic import ValidationError

    try:
        TokenConfig(name=name, sha256=Secret(sha256), role=role, tenant=tenant)
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise Invalid(f"token {name!r}", reasons, "choose another name") from None
    return {"name": name, "sha256": sha256, "role": role.value} | ({"tenant": tenant} if tenant else {})


def _show(token: str, entry: dict[str, str]) -> None:
    import yaml
    from rich.console import Console

    told = Console(stderr=True, highlight=False)
    told.print("The token. Keep it: it is shown this once.")
    typer.echo(token)
    told.print("\nFor the node's configuration:")
    typer.echo(yaml.safe_dump({"api": {"tokens": [entry]}}, sort_keys=False), nl=False)
    told.print("\nTo use it, put the line [bold]Authorization: Bearer <token>[/] into a file that only you can read, and")
    told.print("[bold]curl -H @that-file http://<api.listen>/v1/status[/]")


@app.command("check")
def check(
    file: Annotated[
        Path | None, typer.Option("--config", help="Says which of this file's tokens it is.", dir_okay=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Reads a token from standard input; says its hash, or whose it is. Ends with 1 if it is nobody's.

    Example: [bold]trunkline token check --config site.yaml < token.txt[/]
    """
    from trunkline.api.tokens import Keyring, hash_of, looks_like_a_token

    token = _read()
    found: dict[str, object] = {"sha256": hash_of(token.encode()), "well_formed": looks_like_a_token(token)}
    if file is not None:
        caller = Keyring(load_config(file).api.tokens).caller(token.encode())
        owner = {"name": caller.name, "role": caller.role.value, "tenant": caller.tenant} if caller else {}
        found |= {"fits": caller is not None, **owner}
    typer.echo(json.dumps(found) if as_json else _verdict(found, file))
    raise typer.Exit(NO_FIT if found.get("fits") is False else 0)


def _read() -> str:
    import getpass

    text = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.read(_MAX_TOKEN)
    if not text.strip():
        raise Invalid("token", "standard input is empty", "pipe the token in: trunkline token check < token.txt")
    return text.strip()


def _verdict(found: dict[str, object], file: Path | None) -> str:
    form = "" if found["well_formed"] else "  (not made by `trunkline token new`)"
    if file is None:
        return f"sha256: {found['sha256']}{form}"
    if not found["fits"]:
        return f"no: none of the tokens in {file} is this one{form}"
    tenant = f", bound to the tenant {found['tenant']}" if found["tenant"] else ""
    return f"yes: {found['name']}, role {found['role']}{tenant}{form}"

"""`trunkline ca`: the fleet's authority in a folder, certificates for its nodes, and which ones are revoked."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trunkline.cli.options import JsonOption
from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.ids import NodeId

if TYPE_CHECKING:
    from cryptography import x509

    from trunkline.net.ledger import Entry, Issued

SOON_DAYS = 30
STYLES = {"good": "green", "replaced": "", "expired": "red", "revoked": "red"}

app = typer.Typer(no_args_is_help=True, help="Certificates of the fleet: its authority, its nodes, and which are revoked.")

AuthorityOption = Annotated[Path, typer.Option("--ca", help="Folder of the authority.", file_okay=False)]


@app.callback()
def _group() -> None: ...


@app.command("init")
def init(
    out: Annotated[Path, typer.Option(help="Folder for the authority.", file_okay=False)],
    name: Annotated[str, typer.Option(help="Name of the authority, for people.")] = "trunkline fleet",
    as_json: JsonOption = False,
) -> None:
    """Makes the fleet's authority; one that exists is left as it is.

    Example: [bold]trunkline ca init --out ca --name "our fleet"[/]
    """
    from trunkline.net.authority import CA, CA_KEY, REVOKED, load_authority, make_ca

    made = not (out / CA).exists()
    if made:
        make_ca(out, name)
    authority = load_authority(out)
    end = authority.certificate.not_valid_after_utc
    if as_json:
        return _print_json({"made": made, "folder": str(out), "name": authority.name, "expires_at": end})
    did = "made" if made else "exists already, nothing was changed:"
    _say(f"{did} authority {authority.name!r} in {out}, until {end:%Y-%m-%d}")
    _say(f"  {CA:<13}goes to every node (tls.ca)")
    _say(f"  {REVOKED:<13}goes to every node (tls.revoked), again after each `ca revoke`")
    _say(f"  {CA_KEY:<13}stays here: whoever has it can be any node")
    return _say(f"next: trunkline ca issue --ca {out} <site>/<node>")


@app.command("issue")
def issue_certificate(
    node: Annotated[str, typer.Argument(metavar="SITE/NODE", help="The node's name.")],
    ca: AuthorityOption,
    out: Annotated[Path | None, typer.Option(help="Folder for the pair; else ./SITE/NODE.", file_okay=False)] = None,
    days: Annotated[int, typer.Option(help="How long it is valid.")] = 365,
    as_json: JsonOption = False,
) -> None:
    """Issues a node's certificate and key, or renews them; a running node takes the new ones by itself.

    Example: [bold]trunkline ca issue --ca ca berlin/node-1 --out tls[/]
    """
    from trunkline.net.authority import CA, CERTIFICATE, KEY, REVOKED, issue

    identity = NodeId.parse(node)
    out = out or Path(identity.site) / identity.node
    renewed = (out / CERTIFICATE).exists()
    issued = issue(ca, out, identity, days)
    files = {"ca": ca / CA, "certificate": out / CERTIFICATE, "key": out / KEY, "revoked": ca / REVOKED}
    if as_json:
        tls = {what: str(path) for what, path in files.items()}
        return _print_json({"renewed": renewed, **_facts(issued), "tls": tls})
    did = "renewed" if renewed else "issued"
    _say(f"{did} {identity}, serial {issued.serial}, until {issued.expires_at:%Y-%m-%d} ({days} days)")
    _say("for the node's configuration, with the paths where the files lie there:")
    return _say("\n".join(["  tls:", *(f"    {what}: {path}" for what, path in files.items())]))


@app.command("revoke")
def revoke_certificate(
    who: Annotated[str, typer.Argument(metavar="SITE/NODE|SERIAL", help="All certificates of a node, or one by its serial.")],
    ca: AuthorityOption,
    as_json: JsonOption = False,
) -> None:
    """Revokes certificates: signs a new list. What is revoked stays so; issue anew to let the node in again.

    Example: [bold]trunkline ca revoke --ca ca berlin/node-1[/]
    """
    from trunkline.net.authority import REVOKED, revoke

    done = revoke(ca, who)
    if as_json:
        now, before = ([_facts(entry.issued) for entry in part] for part in (done.now, done.before))
        return _print_json({"revoked": now, "revoked_before": before, "list": str(ca / REVOKED)})
    for entry in done.now:
        _say(f"revoked {entry.issued.node}, serial {entry.issued.serial}")
    for entry in done.before:
        _say(f"revoked already on {entry.revoked_at:%Y-%m-%d}: {entry.issued.node}, serial {entry.issued.serial}")
    return _say(f"next: copy {ca / REVOKED} to every node's tls.revoked; running nodes obey it within seconds")


@app.command("show")
def show(
    certificate: Annotated[Path | None, typer.Argument(metavar="[CERTFILE]", help="A certificate.", dir_okay=False)] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="Folder of the authority.", file_okay=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Shows an authority and all it issued, or one certificate (exit code 1 if it is not good now).

    Example: [bold]trunkline ca show --ca ca[/]  or  [bold]trunkline ca show tls/certificate.pem --ca ca[/]
    """
    if certificate is not None:
        raise typer.Exit(_show_certificate(certificate, ca, as_json))
    if ca is None:
        raise Invalid("ca show", "neither --ca nor a file was given", "name the authority's folder or a certificate")
    _show_authority(ca, as_json)


def _show_authority(folder: Path, as_json: bool) -> None:
    from trunkline.net.authority import load_authority, load_list
    from trunkline.net.ledger import read_ledger

    authority = load_authority(folder)
    now = datetime.datetime.now(datetime.UTC)
    end = authority.certificate.not_valid_after_utc
    ledger = read_ledger(folder)
    listed = {serial for _, serial in load_list(authority).since}
    if unlisted := ledger.revoked().keys() - listed:
        why = f"it lacks {len(unlisted)} that are revoked, such as {min(unlisted):x}"
        raise Invalid(f"list in {folder}", why, f"trunkline ca revoke --ca {folder} {min(unlisted):x}")
    entries = sorted(ledger.entries(), key=lambda entry: (entry.issued.node, entry.issued.issued_at))
    if as_json:
        rows = [{**_facts(e.issued), "state": e.state(now), "revoked_at": e.revoked_at} for e in entries]
        return _print_json({"name": authority.name, "expires_at": end, "days_left": _days(end, now), "issued": rows})
    _say(f"{authority.name!r} in {folder}, until {end:%Y-%m-%d} ({_days(end, now)} days left)")
    return _print_entries(entries, now)


def _print_entries(entries: list[Entry], now: datetime.datetime) -> None:
    from rich.console import Console
    from rich.table import Table

    if not entries:
        return _say("it has issued nothing yet")
    table = Table("node", "serial", "until", "state", box=None, padding=(0, 2, 0, 0))
    table.add_column("days left", justify="right")
    for entry in entries:
        state, end = entry.state(now), entry.issued.expires_at
        days = _days(end, now)
        style = "yellow" if state == "good" and days < SOON_DAYS else STYLES[state]
        table.add_row(entry.issued.node, entry.issued.serial, f"{end:%Y-%m-%d}", state, str(max(0, days)), style=style)
    return Console().print(table)


def _show_certificate(path: Path, folder: Path | None, as_json: bool) -> int:
    certificate = _read(path)
    now = datetime.datetime.now(datetime.UTC)
    state = _state(certificate, folder, now)
    end = certificate.not_valid_after_utc
    facts: dict[str, Any] = {
        "file": str(path),
        "node": _node(certificate),
        "subject": certificate.subject.rfc4514_string(),
        "authority": certificate.issuer.rfc4514_string(),
        "serial": format(certificate.serial_number, "x"),
        "valid_from": certificate.not_valid_before_utc,
        "expires_at": end,
        "days_left": _days(end, now),
        "state": state,
        "revocation_checked": folder is not None,
    }
    _print_json(facts) if as_json else _print_facts(facts)
    return 0 if state == "good" else 1


def _print_facts(facts: dict[str, Any]) -> None:
    state, checked = facts["state"], facts.pop("revocation_checked")
    for name, value in facts.items():
        text = f"{value:%Y-%m-%d %H:%M UTC}" if isinstance(value, datetime.datetime) else str(value)
        _say(f"{name.replace('_', ' '):<12}{text}", style=STYLES.get(state, "red") if name == "state" else "")
    if not checked:
        _say("            by its dates; with --ca also whether it is revoked")


def _state(certificate: x509.Certificate, folder: Path | None, now: datetime.datetime) -> str:
    """What a node that trusts this authority and has its list would say."""
    if folder is not None and (objection := _objection(certificate, folder)):
        return objection
    if certificate.not_valid_after_utc <= now:
        return "expired"
    return "not yet valid" if certificate.not_valid_before_utc > now else "good"


def _objection(certificate: x509.Certificate, folder: Path) -> str | None:
    from cryptography.exceptions import InvalidSignature

    from trunkline.net.authority import load_authority, load_list

    authority = load_authority(folder)
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return "of another authority"
    named = (certificate.issuer.public_bytes(), certificate.serial_number)
    return "revoked" if named in load_list(authority).since else None


def _node(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    from trunkline.net.certificate import read_certificate

    try:
        return str(read_certificate(certificate.public_bytes(Encoding.DER)).identity)
    except RemoteProtocolError as error:
        return f"none: {error.why}"


def _read(path: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise Invalid(f"certificate {path}", error.strerror or str(error), "name an existing file") from None
    except ValueError:
        raise Invalid(f"certificate {path}", "it is no certificate in PEM form", "name a certificate.pem or ca.pem") from None


def _facts(issued: Issued) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC)
    return {**msgspec.structs.asdict(issued), "days_left": _days(issued.expires_at, now)}


def _days(end: datetime.datetime, now: datetime.datetime) -> int:
    return (end - now).days


def _say(text: str, style: str = "") -> None:
    """Without wrapping: what is printed can be copied."""
    from rich.console import Console

    Console(soft_wrap=True, highlight=False).print(text, style=style, markup=False)


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())

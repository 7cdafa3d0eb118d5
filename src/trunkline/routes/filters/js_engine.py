"""The process in which scripts of the `js` filter run: quickjs, and nothing else of this program.

Quickjs is written in C and scripts are anybody's. Some of what they do cannot be interrupted from inside (a regular expression
that backtracks without end), so whoever started this process kills it and starts another when one event takes too long. It
knows no secret: it is started without the environment, and only standard input, which is a socket, is connected.

    request   a line of JSON: {key, source, seconds, bytes, now, count}, then `count` lines: {payload, metadata} as JSON
    answer    a line for each of them, in order: a letter, then JSON
              R  what the script returned       L  the same in an array, then what it logged: [[level, text], ...]
              E  why it failed, as a text
              of a request without events one line: why the script cannot be used, as a text that is empty if it can
    begun     how many events of the current request were begun, in the memory that argument 1 names: whom to blame

    J1  A script is compiled once, in a context of its own for each key, and kept for as long as there is room.
    J2  Nothing stays from one event to the next. A script is the body of a strict function, so it has no variables but those of
        the call; the globals and all that can be reached from them are frozen before the first call, and there is no `eval`.
    J3  A context in which a script ran out of time, memory or stack is thrown away. Who ran out of memory is tried once more
        in a fresh one: perhaps it was only what the engine kept of others (promises that are never run).
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

import quickjs  # type: ignore[import-untyped]

MAX_CONTEXTS = 256  # of about 0.2 MB each
BUFFER_BYTES = 1 << 18
BEGUN_BYTES = 8
READY = b"ready\n"
ORPHAN_SECONDS = 60  # beyond what a request may take; then the system ends this process, whatever it does

FREEZE = """(function () {
    const { freeze, getOwnPropertyDescriptor, getPrototypeOf, defineProperty, isFrozen } = Object, { ownKeys } = Reflect;
    const free = { writable: true, enumerable: true, configurable: true };
    // Assigning to a key that a frozen prototype has would fail for all objects: these keys are as free as before.
    const loosen = (proto, key) => {
        const was = getOwnPropertyDescriptor(proto, key);
        if (was && was.configurable && 'value' in was)
            defineProperty(proto, key, {
                get: () => was.value, set(value) { defineProperty(this, key, { value, ...free }); }, configurable: false });
    };
    delete globalThis.eval;  // what it declares would stay
    const kinds = [Object, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, InternalError];
    for (const { prototype } of kinds)
        for (const key of ['constructor', 'toString', 'toLocaleString', 'valueOf', 'hasOwnProperty', 'name', 'message'])
            loosen(prototype, key);
    const open = [globalThis, Function.prototype, function* () {}, async function () {}, async function* () {},
                  [].values(), new Map().entries(), new Set().values(), ''[Symbol.iterator](), /a/[Symbol.matchAll]('a')];
    const hasOwn = Object.prototype.hasOwnProperty, isObject = (value) => typeof value === 'object' && value !== null;
    const see = (value) => {
        if (typeof value === 'function' && !hasOwn.call(value, 'prototype')) freeze(value);
        else if ((isObject(value) || typeof value === 'function') && !isFrozen(value)) open.push(value);
    };
    while (open.length) {
        const object = open.pop();
        if (isFrozen(object)) continue;
        freeze(object);
        see(getPrototypeOf(object));
        const keys = ownKeys(object), length = keys.length;
        for (let n = 0; n < length; n++) {
            const found = getOwnPropertyDescriptor(object, keys[n]);
            if (found.get || found.set) see(found.get), see(found.set);
            else see(found.value);
        }
    }
})"""

CALL = """(function (script) {
    const { parse, stringify } = JSON, { freeze } = Object, encode = encodeURIComponent, MAX_LOGS = 100;
    let logs = [], milliseconds = 0;
    const place = (error) => {
        const found = /<input>(?::(\\d+))?/.exec(error.stack);
        return found ? ' (line ' + (found[1] || 1) + ')' : '';
    };
    const why = (error) => error instanceof Error ? error + place(error) : 'threw ' + stringify(error);
    const esc = freeze((text) => {
        if (typeof text !== 'string') throw new TypeError('esc needs a text');
        return encode(text).replace(/[!'()*]/g, (c) => '%' + c.charCodeAt(0).toString(16).toUpperCase()).replace(/%20/g, '+');
    });
    const now = freeze(() => new Date(milliseconds).toISOString()), nowms = freeze(() => milliseconds);
    const log = freeze((text) => { if (logs.length < MAX_LOGS) logs.push(['info', '' + text]); });
    const logError = freeze((text) => { if (logs.length < MAX_LOGS) logs.push(['error', '' + text]); });
    return (text, time) => {
        logs = [], milliseconds = time;
        const event = parse(text), { payload, metadata } = event;
        let returned;
        try {
            returned = script({ event, payload, metadata, esc, now, nowms, log, logInfo: log, logError });
        } catch (error) {
            if (error === null || error instanceof InternalError) throw error;
            return 'E' + stringify(why(error));
        }
        try {
            const made = returned === undefined ? 'null' : stringify(returned);
            if (made === undefined) return 'E' + stringify('returned a ' + typeof returned);
            return logs.length ? 'L[' + made + ',' + stringify(logs) + ']' : 'R' + made;
        } catch (error) {
            if (error === null || error instanceof InternalError) throw error;
            return 'E' + stringify('returned what is not JSON: ' + error.message);
        }
    };
})"""

Run = Callable[[str, float], str]

# What quickjs says when there is no memory left even for the text of the error.
_NO_TEXT = "(Failed obtaining QuickJS error string. Concurrency issue?)"
OUT_OF_MEMORY = ("null", "InternalError: out of memory", _NO_TEXT)
_REASONS = {
    _NO_TEXT: "it needs more memory than it may have",
    "null": "it threw null, or needs more memory than it may have",
    "InternalError: out of memory": "it needs more memory than it may have",
    "InternalError: interrupted": "it took longer than it may",
    "InternalError: stack overflow": "it calls itself too deeply",
}


class Request:
    def __init__(self, key: Any, source: str, seconds: float, bytes: int, now: float, count: int) -> None:
        self.key, self.source, self.seconds, self.bytes, self.count = key, source, seconds, bytes, count
        self.now = float(now)  # quickjs takes an int for one of 32 bits


def fresh(request: Request) -> quickjs.Context:
    context = quickjs.Context()
    context.set_memory_limit(request.bytes)
    context.set_time_limit(request.seconds)
    return context


def load(request: Request) -> Run:
    context = fresh(request)
    call, freeze = context.eval(CALL), context.eval(FREEZE)
    run: Run = call(context.eval(f"(function (_) {{ 'use strict'; {request.source}\n}})"))
    freeze()
    return run


def check(request: Request) -> str:
    """Why the script cannot be used. A body that ends its function and begins another fits only one of the two forms."""
    context = fresh(request)
    try:
        for form in ("(function (_) {{ 'use strict'; {}\n}})", "if (0) {{ function f(_) {{ 'use strict'; {}\n}} }}"):
            context.eval(form.format(request.source))
    except quickjs.JSException as error:
        return reason(error)
    return ""


def reason(error: Exception) -> str:
    what, *stack = [line.strip() for line in str(error).splitlines()] or [type(error).__name__]
    line = next((text.rpartition("<input>:")[2].rstrip(")") for text in stack if "<input>:" in text), "")
    return _REASONS.get(what) or (f"{what} (line {line})" if line else what)


class Engine:
    def __init__(self, room: int = MAX_CONTEXTS) -> None:
        self._contexts: OrderedDict[Any, Run] = OrderedDict()
        self._room = room

    def answer(self, request: Request, event: str, again: bool = False) -> str:
        try:
            return self._loaded(request)(event, request.now)
        except Exception as error:
            self._contexts.pop(request.key, None)
            if not again and str(error).partition("\n")[0] in OUT_OF_MEMORY:
                return self.answer(request, event, again=True)
            return "E" + json.dumps(reason(error))

    def _loaded(self, request: Request) -> Run:
        run = self._contexts.get(request.key)
        if run is None:
            run = self._contexts[request.key] = load(request)
            if len(self._contexts) > self._room:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(request.key)
        return run


def serve(requests: BinaryIO, answers: BinaryIO, begun: mmap.mmap) -> None:
    engine = Engine()
    while line := requests.readline():
        request = Request(**json.loads(line))
        signal.alarm(int(request.seconds * request.count) + ORPHAN_SECONDS)
        for n in range(1, request.count + 1):
            event = requests.readline().decode()
            begun[:BEGUN_BYTES] = n.to_bytes(BEGUN_BYTES, "little")
            answers.write(engine.answer(request, event).encode() + b"\n")
        if not request.count:
            answers.write(json.dumps(check(request)).encode() + b"\n")
        answers.flush()
        signal.alarm(0)


def main() -> None:
    begun = mmap.mmap(int(sys.argv[1]), BEGUN_BYTES)
    answers = os.fdopen(os.dup(0), "wb", buffering=BUFFER_BYTES)
    answers.write(READY)
    answers.flush()
    serve(os.fdopen(0, "rb", buffering=BUFFER_BYTES), answers, begun)


if __name__ == "__main__":
    main()

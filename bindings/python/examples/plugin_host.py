"""A host of plug-ins: a store by key, requests to the servers that it allows, and a log.

    python plugin_host.py target/applets/plugin.wasm title http://localhost:8000/ --allow localhost:8000

The plug-ins are `applets/plugin` (C) and `applets/plugin-rust`; the first one's README has the functions. The same host in
Rust is `sandbox/applet/examples/plugin_host.rs`.

Invariants: a plug-in reaches no server that is not allowed, also not by a redirect; nothing that it logs reaches the terminal
with a control character; what it stores is bounded.
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any, NoReturn
from urllib.parse import SplitResult, urlsplit

import holdfast

KEYS_MAX = 1000
ENTRY_BYTES_MAX = 64 << 10
URL_BYTES_MAX = 8 << 10
BODY_BYTES_MAX = 4 << 20
LINE_BYTES_MAX = 1000
REQUEST_TIMEOUT_SECONDS = 10.0
LEVELS = {"d": "debug", "i": "info", "w": "warning", "e": "error"}
PORTS = {"http": 80, "https": 443}

Functions = dict[str, Callable[[bytes], bytes | None]]


def fail(code: int, words: str) -> NoReturn:
    """Ends a function with a code for the plug-in."""
    raise holdfast.HostFunctionError(words, code=code)


class AllowedServer:
    """`example.org`, `*.example.org`, `localhost:8080`."""

    def __init__(self, text: str) -> None:
        address = urlsplit(f"//{text}")
        self.port = address.port
        name = address.hostname or ""
        self.is_suffix = name.startswith("*.")
        self.name = name.removeprefix("*.")
        is_name = bool(self.name) and not any(letter in "* /@" for letter in self.name)
        if not is_name or address.path or address.username is not None:
            raise ValueError(f"{text!r} is no server; write NAME, *.NAME or NAME:PORT")

    def allows(self, name: str, port: int) -> bool:
        is_name = name.endswith(f".{self.name}") if self.is_suffix else name == self.name
        return is_name and self.port in (None, port)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """The server that a redirect leads to may not be allowed."""

    def redirect_request(self, *_: Any) -> None:
        return None


class PluginHost:
    """What the host lets its plug-ins do. Each plug-in that gets these functions shares the store."""

    def __init__(self, allowed: Iterable[str] = (), level: str = "info", log: Callable[[str], object] | None = None) -> None:
        names = list(LEVELS.values())
        if level not in names:
            raise ValueError(f"{level!r} is no level; use debug, info, warning or error")
        self._levels = names[names.index(level) :]
        self._allowed = [AllowedServer(text) for text in allowed]
        self._log = log or (lambda line: print(line, file=sys.stderr))
        self._store: dict[bytes, bytes] = {}
        # Nor may a proxy of the environment be.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect())

    @property
    def functions(self) -> Functions:
        """For `holdfast.Applet(path, functions=...)`."""
        return {"kv_get": self._kv_get, "kv_set": self._kv_set, "http_get": self._http_get, "log": self._note}

    def _kv_get(self, key: bytes) -> bytes:
        if key not in self._store:
            fail(404, "there is no such key")
        return self._store[key]

    def _kv_set(self, pair: bytes) -> None:
        key, zero, value = pair.partition(b"\0")
        if not zero:
            fail(400, "no zero byte ends the key")
        if len(pair) > ENTRY_BYTES_MAX:
            fail(413, f"key and value may have {ENTRY_BYTES_MAX} bytes")
        if len(self._store) >= KEYS_MAX and key not in self._store:
            fail(507, "the store has no room for one more key")
        self._store[key] = value

    def _http_get(self, url: bytes) -> bytes:
        address = self._address(url)
        name, port = address.hostname or "", address.port or PORTS[address.scheme]
        if not any(server.allows(name, port) for server in self._allowed):
            fail(403, f"the host does not allow requests to {name}:{port}")
        try:
            try:
                response = self._opener.open(address.geturl(), timeout=REQUEST_TIMEOUT_SECONDS)
            except urllib.error.HTTPError as error:
                response = error
            with response:
                body = response.read(BODY_BYTES_MAX + 1)
                status = response.status
        except (OSError, ValueError) as error:
            fail(502, f"{name}:{port} cannot be reached: {error}")
        if len(body) > BODY_BYTES_MAX:
            fail(502, f"the answer of {name}:{port} is longer than {BODY_BYTES_MAX} bytes")
        return b"%03d\n" % status + bytes(body)

    def _address(self, url: bytes) -> SplitResult:
        try:
            address = urlsplit(url[:URL_BYTES_MAX].decode("ascii"))
            is_good = len(url) <= URL_BYTES_MAX and address.scheme in PORTS and bool(address.hostname)
            # A number that is no port is an error of the look at it.
            is_good = is_good and address.port != 0
        except ValueError:
            is_good = False
        if not is_good or any(byte <= 32 for byte in url):
            fail(400, "this is no URL of a server")
        return address

    def _note(self, line: bytes) -> None:
        level = LEVELS.get(line[:1].decode("latin-1"))
        if level is None or line[1:2] != b" ":
            fail(400, "a log line begins with d, i, w or e, and a blank")
        if level in self._levels:
            text = line[2 : 2 + LINE_BYTES_MAX].decode("utf-8", "replace")
            shown = "".join(letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}" for letter in text)
            self._log(f"{level}: {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Calls a function of a plug-in.")
    parser.add_argument("applet", help="the plug-in's file, WebAssembly or native")
    parser.add_argument("function")
    parser.add_argument("input")
    parser.add_argument("--allow", action="append", default=[], metavar="SERVER", help="NAME, *.NAME or NAME:PORT")
    parser.add_argument("--level", default="info", choices=list(LEVELS.values()))
    options = parser.parse_args()
    host = PluginHost(options.allow, options.level)
    try:
        with holdfast.Applet(options.applet, functions=host.functions, call_timeout=30.0) as applet:
            print(applet.call(options.function, options.input.encode()).decode("utf-8", "replace"))
    except holdfast.HoldfastError as error:
        sys.exit(f"plugin_host: {error}")


if __name__ == "__main__":
    main()

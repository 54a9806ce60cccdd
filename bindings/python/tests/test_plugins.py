"""The host of plug-ins in Python (examples/plugin_host.py), with the plug-ins in C and Rust, native and WebAssembly."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import holdfast
import pytest
from conftest import Start

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin_host.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("plugin_host", EXAMPLE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://localhost:1/")
            self.end_headers()
        elif self.path == "/page":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<HTML><Title lang=en>\n A page </TITLE>")
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(20)


@pytest.mark.parametrize("plugin", ["plugin", "plugin-rust"])
def test_each_plugin_gets_what_the_host_allows(start: Start, example: ModuleType, server: str, plugin: str) -> None:
    lines: list[str] = []
    host = example.PluginHost([server], "info", lines.append)
    for total in (3, 6):
        applet = start(plugin, functions=host.functions)
        assert applet.call("count_vowels", b"Hello, World!") == b'{"count":3,"total":%d,"vowels":"aeiouAEIOU"}' % total
    assert applet.call("title", f"http://{server}/page".encode()) == b"A page"
    for url, code, words in [
        ("http://example.org/", 403, "does not allow requests to example.org:80"),
        (f"http://{server}@example.org/", 403, "does not allow requests to example.org:80"),
        ("http://127.0.0.1:1/", 403, "does not allow requests to 127.0.0.1:1"),
        ("file:///etc/passwd", 400, "no URL of a server"),
        (f"http://{server}/page\r\nX: y", 400, "no URL of a server"),
        (f"http://{server}/away", 1, "no such page"),
        (f"http://{server}/none", 1, "no such page"),
    ]:
        with pytest.raises(holdfast.CallFailed, match=words) as failed:
            applet.call("title", url.encode())
        assert failed.value.code == code
    assert lines[:2] == ["info: 3 vowels in 13 bytes"] * 2
    assert not any(line.startswith("debug") for line in lines)


def test_host_bounds_what_a_plugin_stores_and_logs(example: ModuleType) -> None:
    lines: list[str] = []
    functions = example.PluginHost(["*.example.org", "localhost:80"], "debug", lines.append).functions
    functions["log"](b"w \x1b[31mred\n" + b"x" * 2000)
    assert lines == ["warning: \\u{1b}[31mred\\u{a}" + "x" * 991]
    for number in range(1000):
        functions["kv_set"](b"%d\0value" % number)
    functions["kv_set"](b"7\0other")
    assert functions["kv_get"](b"7") == b"other"
    for name, data, code in [
        ("kv_set", b"one more\0", 507),
        ("kv_set", b"no end", 400),
        ("kv_set", b"7\0" + b"x" * (64 << 10), 413),
        ("kv_get", b"none", 404),
        ("log", b"x no level", 400),
        ("http_get", b"http://example.org/", 403),
        ("http_get", b"http://notexample.org/", 403),
        ("http_get", b"http://localhost:81/", 403),
        ("http_get", b"http://localhost:99999/", 400),
    ]:
        with pytest.raises(holdfast.HostFunctionError) as failed:
            functions[name](data)
        assert failed.value.code == code, data
    for wrong in ("", "*", "a b", "a/b", "*.*.org"):
        with pytest.raises(ValueError):
            example.PluginHost([wrong])
    with pytest.raises(ValueError):
        example.PluginHost(level="loud")

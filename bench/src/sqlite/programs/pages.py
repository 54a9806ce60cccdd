"""Serves /page/N with six pictures each, on 127.0.0.1: always the same bytes."""

import http.server
import random
import sys

WORDS = "river stone window garden letter morning paper engine summer road".split()
SIDE = 64
HEADER = 54


def page(number):
    chosen = random.Random(number)
    pictures = "".join(f'<img src="/picture/{number * 10 + index}">' for index in range(6))
    text = " ".join(chosen.choice(WORDS) for _ in range(2000))
    script = f"""
        localStorage.setItem('visit {number}', 'x'.repeat(200));
        const opening = indexedDB.open('visits', 1);
        opening.onupgradeneeded = () =>
            opening.result.createObjectStore('visits', {{keyPath: 'number'}});
        opening.onsuccess = () =>
            opening.result.transaction('visits', 'readwrite').objectStore('visits')
                .put({{number: {number}, text: 'y'.repeat(500)}});"""
    return f"<!doctype html><title>Page {number}</title>{pictures}<p>{text}<script>{script}</script>"


def picture(number):
    pixels = random.Random(-number).randbytes(SIDE * SIDE * 3)

    def word(value):
        return value.to_bytes(4, "little")

    planes_and_depth = (1).to_bytes(2, "little") + (24).to_bytes(2, "little")
    header = b"BM" + word(HEADER + len(pixels)) + bytes(4) + word(HEADER)
    return header + word(40) + word(SIDE) * 2 + planes_and_depth + bytes(24) + pixels


class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        kind, _, number = self.path.strip("/").partition("/")
        if kind not in ("page", "picture") or not number.isdecimal():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        number = int(number)
        is_page = kind == "page"
        body = page(number).encode() if is_page else picture(number)
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if is_page else "image/bmp")
        self.send_header("Cache-Control", "max-age=86400")
        self.send_header("Set-Cookie", f"visit{number % 50}={number}; Max-Age=864000")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Pages).serve_forever()

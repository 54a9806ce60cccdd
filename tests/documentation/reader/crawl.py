"""Writes a crawl of one page, as crawlers keep them (WARC 1.1), to standard output."""

import sys

PAGE = b"<!DOCTYPE html><title>Example</title><h2>Kept</h2><p>A page that a crawler kept.\n"
HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + PAGE
HEAD = (
    "WARC/1.1\r\n"
    "WARC-Type: response\r\n"
    "WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000001>\r\n"
    "WARC-Date: 2026-01-01T00:00:00Z\r\n"
    "WARC-Target-URI: https://example.org/\r\n"
    "Content-Type: application/http; msgtype=response\r\n"
    f"Content-Length: {len(HTTP)}\r\n\r\n"
)
sys.stdout.buffer.write(HEAD.encode() + HTTP + b"\r\n\r\n")

"""Flips the lowest bit of a byte: flip.py FILE OFFSET."""

import sys

with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2], 0))
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 1]))

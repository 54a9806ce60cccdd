"""MD5 in plain Python, as RFC 1321 defines it: what the applet is compared with.

`python3 reference.py FILE...` prints digests as md5sum does. Written as one writes it in Python without a library for
it: words are integers that are cut to 32 bits, and the functions and indices of the four rounds are spelled out in the
loops, so that it is no slower than it has to be.
"""

import math
import struct
import sys

SHIFTS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
SINES = [int(abs(math.sin(step + 1)) * 2**32) for step in range(64)]
# Of each step: the word of the block, the sine, the shift.
STEPS = [
    [(index, SINES[16 * number + step], SHIFTS[number][step % 4]) for step, index in enumerate(indices)]
    for number, indices in enumerate(
        (
            range(16),
            [(5 * step + 1) % 16 for step in range(16)],
            [(3 * step + 5) % 16 for step in range(16)],
            [7 * step % 16 for step in range(16)],
        )
    )
]
MASK = 0xFFFFFFFF


def digest(message):
    """The 16 bytes of the digest of a bytes-like message."""
    size = len(message)
    whole = size - size % 64
    state = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
    for words in struct.iter_unpack("<16I", memoryview(message)[:whole]):
        state = _block(state, words)
    end = bytes(message[whole:]) + b"\x80"
    end += bytes(-(len(end) + 8) % 64) + struct.pack("<Q", size * 8 % 2**64)
    for words in struct.iter_unpack("<16I", end):
        state = _block(state, words)
    return struct.pack("<4I", *state)


def _block(state, words):
    a, b, c, d = state
    first, second, third, fourth = STEPS
    for index, sine, shift in first:
        turned = (a + (d ^ (b & (c ^ d))) + words[index] + sine) & MASK
        a, d, c, b = d, c, b, (b + (turned << shift | turned >> (32 - shift))) & MASK
    for index, sine, shift in second:
        turned = (a + (c ^ (d & (b ^ c))) + words[index] + sine) & MASK
        a, d, c, b = d, c, b, (b + (turned << shift | turned >> (32 - shift))) & MASK
    for index, sine, shift in third:
        turned = (a + (b ^ c ^ d) + words[index] + sine) & MASK
        a, d, c, b = d, c, b, (b + (turned << shift | turned >> (32 - shift))) & MASK
    for index, sine, shift in fourth:
        turned = (a + (c ^ (b | (d ^ MASK))) + words[index] + sine) & MASK
        a, d, c, b = d, c, b, (b + (turned << shift | turned >> (32 - shift))) & MASK
    return (
        (state[0] + a) & MASK,
        (state[1] + b) & MASK,
        (state[2] + c) & MASK,
        (state[3] + d) & MASK,
    )


def main(paths):
    for path in paths:
        with open(path, "rb") as file:
            print(f"{digest(file.read()).hex()}  {path}")


if __name__ == "__main__":
    main(sys.argv[1:])

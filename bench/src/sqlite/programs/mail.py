"""Puts mails into a Maildir: FOLDER FIRST COUNT. Always the same texts."""

import email.utils
import os
import random
import sys
import time

WORDS = "river stone window garden letter morning paper engine summer road".split()

folder, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + count):
    chosen = random.Random(number)
    lines = [" ".join(chosen.choices(WORDS, k=12)) for _ in range(chosen.randrange(5, 60))]
    head = [
        f"From: Sender {number % 7} <sender{number % 7}@localhost>",
        "To: user@localhost",
        f"Subject: {' '.join(chosen.choices(WORDS, k=3))} {number}",
        f"Message-ID: <{number}@localhost>",
        f"Date: {email.utils.formatdate(time.time() - 3600 * 24 + number * 60)}",
        "Content-Type: text/plain; charset=utf-8",
    ]
    name = f"{int(time.time())}.M{number}.localhost"
    with open(f"{folder}/tmp/{name}", "w", encoding="utf-8") as file:
        file.write("\n".join(head + [""] + lines) + "\n")
    os.chmod(f"{folder}/tmp/{name}", 0o666)
    # As a delivery is made: whole, or not at all.
    os.rename(f"{folder}/tmp/{name}", f"{folder}/new/{name}")

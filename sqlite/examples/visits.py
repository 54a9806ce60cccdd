"""visits.py DATABASE: counts its runs in a database, each in a commit that needs no journal.

HOLDFAST_SQLITE_EXTENSION names libholdfast_sqlite.so. What goes wrong is told on standard error, with its reason.
"""

import os
import sqlite3
import sys
from pathlib import Path


def load_holdfast() -> None:
    """Brings the VFS into this process, for all connections."""
    os.environ.setdefault("HOLDFAST_SQLITE_LOG", "stderr")
    connection = sqlite3.connect(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(os.environ["HOLDFAST_SQLITE_EXTENSION"])
    connection.close()


def main() -> None:
    load_holdfast()
    place = Path(sys.argv[1]).absolute().as_uri()
    connection = sqlite3.connect(f"{place}?vfs=holdfast", uri=True)
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS visits (number INTEGER PRIMARY KEY, program TEXT)")
        connection.execute("INSERT INTO visits (program) VALUES ('python')")
    print(connection.execute("SELECT count(*) FROM visits").fetchone()[0])
    connection.close()


main()

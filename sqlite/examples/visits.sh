#!/bin/sh
# visits.sh DATABASE: counts its runs in a database, each in a commit that needs no journal.
# HOLDFAST_SQLITE_EXTENSION names libholdfast_sqlite.so.
set -eu
# What goes wrong is told on standard error, with its reason.
export HOLDFAST_SQLITE_LOG="${HOLDFAST_SQLITE_LOG-stderr}"
sqlite3 -batch -bail :memory: <<END
.load "$HOLDFAST_SQLITE_EXTENSION"
.open "file:$1?vfs=holdfast"
CREATE TABLE IF NOT EXISTS visits (number INTEGER PRIMARY KEY, program TEXT);
INSERT INTO visits (program) VALUES ('shell');
SELECT count(*) FROM visits;
END

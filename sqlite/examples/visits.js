// visits.js DATABASE: counts its runs in a database, each in a commit that needs no journal.
// HOLDFAST_SQLITE_EXTENSION names libholdfast_sqlite.so.
//
// better-sqlite3 opens plain paths only, so the VFS becomes the default one: the variable says so before it is loaded.
"use strict";

process.env.HOLDFAST_SQLITE_DEFAULT = "1";
// An error goes to standard error, with its reason.
process.env.HOLDFAST_SQLITE_LOG ??= "stderr";

const Database = require("better-sqlite3");

const loader = new Database(":memory:");
loader.loadExtension(process.env.HOLDFAST_SQLITE_EXTENSION);
loader.close();

const db = new Database(process.argv[2]);
db.exec("CREATE TABLE IF NOT EXISTS visits (number INTEGER PRIMARY KEY, program TEXT)");
db.prepare("INSERT INTO visits (program) VALUES (?)").run("node");
console.log(db.prepare("SELECT count(*) FROM visits").pluck().get());
db.close();

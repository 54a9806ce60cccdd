/* visits DATABASE: counts its runs in a database, each in a commit that needs no journal.
 *
 *   cc visits.c -o visits -lsqlite3
 *   HOLDFAST_SQLITE_EXTENSION=/usr/local/lib/libholdfast_sqlite.so ./visits visits.db
 *
 * A program with an SQLite of its own links libholdfast_sqlite.a instead: sqlite/embedded.md. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static int print_count(void *unused, int columns, char **values, char **names) {
    (void)unused, (void)columns, (void)names;
    puts(values[0]);
    return 0;
}

/* Brings the VFS into this process, for all connections. */
static int load_holdfast(const char *path) {
    /* What goes wrong is told on standard error, with its reason. */
    setenv("HOLDFAST_SQLITE_LOG", "stderr", 0);
    sqlite3 *db;
    char *message = NULL;
    int failed = sqlite3_open(":memory:", &db);
    if (!failed) failed = sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
    if (!failed) failed = sqlite3_load_extension(db, path, NULL, &message);
    if (failed) fprintf(stderr, "cannot load %s: %s\n", path, message ? message : sqlite3_errmsg(db));
    sqlite3_free(message);
    sqlite3_close(db);
    return failed;
}

int main(int count, char **arguments) {
    const char *path = getenv("HOLDFAST_SQLITE_EXTENSION");
    if (count != 2 || !path) {
        fprintf(stderr, "usage: HOLDFAST_SQLITE_EXTENSION=libholdfast_sqlite.so visits DATABASE\n");
        return 2;
    }
    if (load_holdfast(path)) return 1;
    sqlite3 *db;
    char *message = NULL;
    int failed = sqlite3_open_v2(arguments[1], &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "holdfast");
    if (!failed)
        failed = sqlite3_exec(db,
                              "CREATE TABLE IF NOT EXISTS visits (number INTEGER PRIMARY KEY, program TEXT);"
                              "INSERT INTO visits (program) VALUES ('c');"
                              "SELECT count(*) FROM visits;",
                              print_count, NULL, &message);
    if (failed) fprintf(stderr, "%s\n", message ? message : sqlite3_errmsg(db));
    sqlite3_free(message);
    sqlite3_close(db);
    return failed != 0;
}

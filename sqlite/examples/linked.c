/* linked DATABASE: counts its runs in a database, each in a commit that needs no journal; with the VFS linked into the program.
 *
 *   cc linked.c libholdfast_sqlite.a -lsqlite3 -lpthread -ldl -lm -o linked
 *   ./linked visits.db
 *
 * A program that compiles SQLite itself needs no call: sqlite/embedded.md. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

/* Of libholdfast_sqlite.a: makes the VFS the default one. The argument is ignored. */
int holdfast_sqlite_register(const char *unused);

static int print_count(void *unused, int columns, char **values, char **names) {
    (void)unused, (void)columns, (void)names;
    puts(values[0]);
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: linked DATABASE\n");
        return 2;
    }
    /* What goes wrong is told on standard error, with its reason. */
    setenv("HOLDFAST_SQLITE_LOG", "stderr", 0);
    if (sqlite3_initialize() || holdfast_sqlite_register(NULL)) {
        fprintf(stderr, "the VFS cannot be registered\n");
        return 1;
    }
    sqlite3 *db;
    char *message = NULL;
    int failed = sqlite3_open(arguments[1], &db);
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

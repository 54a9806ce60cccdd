/*
 * A guest book whose entries live in the persistent heap: the C counterpart of the smallest Rust applet.
 *
 *     guestbook add TEXT    writes an entry
 *     guestbook list        prints them all, oldest first
 *     guestbook crash       starts to throw the book away, and dies half-way
 *
 * There is no file and no format: the book is a linked list of plain structures, and the pointers in it stay
 * valid from run to run. What a run has not committed when it dies is rolled back when the next one starts.
 */
#include <holdfast.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct entry {
    struct entry *next;
    long long written_unix_s;
    char text[]; /* ends with a zero byte */
};

/* The root object; nvmalloc gives it all zero, which is an empty book. */
struct book {
    struct entry *first, *last;
    unsigned count;
};

static int fail(const char *doing) {
    fprintf(stderr, "guestbook: cannot %s: %s\n", doing, nv_strerror(nv_errno()));
    return 1;
}

static struct book *open_book(void) {
    struct book *book = nvread("guestbook", NULL);
    return book ? book : nvmalloc("guestbook", sizeof *book);
}

static int add(struct book *book, const char *text) {
    size_t length = strlen(text) + 1;
    if (nv_tx_begin()) return fail("begin");
    struct entry *entry = nvmalloc(NULL, sizeof *entry + length);
    /* What exists is announced before it is changed; the new entry needs no announcement. */
    if (!entry || nv_tx_add(book, sizeof *book) || (book->last && nv_tx_add(book->last, sizeof *book->last))) {
        int status = fail("write the entry");
        nv_tx_abort();
        return status;
    }
    entry->written_unix_s = (long long)time(NULL);
    memcpy(entry->text, text, length);
    if (book->last) book->last->next = entry;
    else book->first = entry;
    book->last = entry;
    book->count++;
    if (nv_tx_commit()) return fail("commit");
    printf("entry %u is written\n", book->count);
    return 0;
}

static int list(const struct book *book) {
    for (const struct entry *entry = book->first; entry; entry = entry->next) {
        time_t written = (time_t)entry->written_unix_s;
        struct tm *utc = gmtime(&written);
        char date[32] = "?";
        if (utc) strftime(date, sizeof date, "%Y-%m-%d %H:%M", utc);
        printf("%s  %s\n", date, entry->text);
    }
    printf("%u %s\n", book->count, book->count == 1 ? "entry" : "entries");
    return 0;
}

static int crash(struct book *book) {
    if (nv_tx_begin() || nv_tx_add(book, sizeof *book)) return fail("begin");
    for (struct entry *entry = book->first; entry; entry = entry->next) {
        /* In a transaction an object is freed at the commit, so `next` may still be read. */
        if (nv_tx_add(entry, sizeof *entry + strlen(entry->text) + 1) || nvfree(entry)) return fail("tear out a page");
        memset(entry->text, '#', strlen(entry->text));
    }
    book->first = book->last = NULL;
    book->count = 0;
    printf("all entries are gone, nothing is committed, and now the program dies\n");
    fflush(stdout);
    __builtin_trap();
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    int want_add = !strcmp(command, "add") && argc == 3;
    int want_list = !strcmp(command, "list") && argc == 2;
    int want_crash = !strcmp(command, "crash") && argc == 2;
    if (!want_add && !want_list && !want_crash) {
        fprintf(stderr, "usage: guestbook add TEXT | list | crash\n");
        return 2;
    }
    struct book *book = open_book();
    if (!book) return fail("open the book");
    return want_add ? add(book, argv[2]) : want_list ? list(book) : crash(book);
}

/* Several heaps in one program: `several COMMAND`. What differs from what must be is printed. */
#define _GNU_SOURCE
#include <holdfast.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition)                                                                                   \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            printf("line %d: not so: %s (%d: %s)\n", __LINE__, #condition, nv_errno(), nv_message());     \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

/* Each heap has roots, objects and transactions of its own. */
static void apart(void) {
    nv_heap *words = nv_heap_open("words"), *notes = nv_heap_open("notes");
    MUST(words && notes && words != notes && nv_heap_open("words") == words);
    MUST(nv_open("first", 0) == 0 && nv_heap_open("first") == nv_heap_open(NULL));
    long *in_words = nv_malloc_in(words, "root", sizeof(long)), *in_notes = nv_malloc_in(notes, "root", sizeof(long));
    MUST(in_words && in_notes && in_words != in_notes && !nvread("root", NULL));
    MUST(nv_malloc_in(words, "root", 8) == NULL && nv_errno() == NV_NAME_TAKEN);
    *in_words = 1, *in_notes = 2;

    MUST(nv_tx_begin_in(words) == 0 && nv_tx_add_in(words, in_words, sizeof(long)) == 0);
    *in_words = 10;
    MUST(nv_tx_begin_in(notes) == NV_OTHER_HEAP && strstr(nv_message(), "another heap"));
    MUST(nv_tx_begin() == NV_OTHER_HEAP && nv_tx_begin_in(words) == 0 && nv_tx_commit_in(words) == 0);
    MUST(nv_tx_add_in(words, in_notes, sizeof(long)) == NV_BAD_RANGE && nv_tx_commit_in(notes) == NV_NO_TRANSACTION);
    MUST(nv_free_in(notes, in_words) == NV_NOT_ALLOCATED);
    MUST(nv_tx_abort_in(words) == 0 && *in_words == 1);
    MUST(nv_tx_begin_in(notes) == 0 && nv_tx_commit_in(notes) == 0 && nv_commit_in(notes, NV_POWER) == 0);

    MUST(nv_heap_close(words) == 0 && nv_read_in(words, "root", NULL) == NULL && nv_errno() == NV_NOT_GRANTED);
    MUST(nv_heap_close(words) == NV_NOT_GRANTED && nv_heap_close(NULL) == NV_NOT_GRANTED);
    MUST(nv_heap_close((nv_heap *)1234567) == NV_NOT_GRANTED);
    nv_heap *again = nv_heap_open("words");
    MUST(again && again != words && nv_read_in(again, "root", NULL) == in_words && *in_words == 1);
    MUST(nv_read_in(notes, "root", NULL) == in_notes && *in_notes == 2);
    MUST(nv_heap_open("no such/name") == NULL && nv_errno() == NV_BAD_NAME);
}

/* A handle leads to the heap that it was given for, and to none that is opened after that was closed. */
static void stale(void) {
    MUST(nv_open("words", 0) == 0);
    nv_heap *words = nv_heap_open(NULL);
    MUST(words && nv_heap_open("words") == words && nv_malloc_in(words, "root", 8) && nv_close() == 0);
    MUST(!nv_read_in(words, "root", NULL) && nv_errno() == NV_NOT_GRANTED);
    MUST(nv_open("notes", 0) == 0);
    nv_heap *notes = nv_heap_open(NULL);
    MUST(notes && notes != words && nv_malloc_in(notes, "root", 8));
    MUST(!nv_malloc_in(words, "stray", 8) && nv_errno() == NV_NOT_GRANTED && !nvread("stray", NULL));
    MUST(nv_tx_begin_in(words) == NV_NOT_GRANTED && nv_heap_close(words) == NV_NOT_GRANTED);
    MUST(nvread("root", NULL) && nv_heap_close(notes) == 0 && nv_heap_close(notes) == NV_NOT_GRANTED);
    /* The same one opened anew has another handle, which a rollback leaves to it. */
    MUST(nv_open_atomic("words", 0) == 0 && nv_heap_open("words") != words && (words = nv_heap_open(NULL)));
    MUST(nv_rollback() == 0 && nv_heap_open(NULL) == words && nv_read_in(words, "root", NULL));
}

static void *begin_in(void *heap) {
    return (void *)(long)(nv_tx_begin_in(heap) || nv_tx_commit_in(heap) ? nv_errno() : 0);
}

/* Another thread may have a transaction in another heap at the same time. */
static void threads(void) {
    nv_heap *words = nv_heap_open("words"), *notes = nv_heap_open("notes");
    pthread_t thread;
    void *code;
    MUST(nv_tx_begin_in(words) == 0);
    MUST(pthread_create(&thread, NULL, begin_in, notes) == 0 && pthread_join(thread, &code) == 0 && code == 0);
    MUST(nv_tx_begin_in(notes) == NV_OTHER_HEAP && nv_tx_commit_in(words) == 0 && nv_tx_begin_in(notes) == 0);
    MUST(nv_tx_commit_in(notes) == 0);
    /* A child has none of them, and closing one heap does not make it forget that. */
    MUST(nv_heap_close(words) == 0);
    pid_t child = fork();
    if (child == 0) _exit(nv_tx_begin_in(notes) == NV_FORKED && !nv_heap_open("words") ? 0 : 1);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

/* Room that is made before it is needed; too much changes nothing. */
static void reserve(void) {
    nv_heap *words = nv_heap_open("words");
    MUST(words && nv_reserve_in(words, 16 << 20) == 0 && nv_reserve_in(words, 1ull << 40) == NV_LIMIT_REACHED);
    for (int i = 0; i < 100; i++) MUST(nv_malloc_in(words, NULL, 100 << 10));
    MUST(nv_reserve_in(NULL, 1) == NV_NOT_GRANTED);
    MUST(nv_open(NULL, 0) == 0 && nv_reserve(1 << 20) == 0 && nv_close() == 0);
}

/* Objects by number, in a program that names no heap. */
static void numbered(void) {
    uint64_t uid = geteuid();
    long *count = qnvretrieve(uid, 0xABBA, NULL);
    if (!count) count = qnvmalloc(uid, 0xABBA, sizeof *count);
    MUST(count);
    printf("%ld\n", ++*count);
    MUST(qnvretrieve(uid, 0xABBA, NULL) == count && nvread("no such root", NULL) == NULL && nv_errno() == NV_NO_SUCH_ROOT);
    MUST(nv_close() == 0 && qnvretrieve(uid, 0xABBA, NULL) == NULL && nv_errno() == NV_NOT_GRANTED);
}

/* Only the functions by number need no name. */
static void unnamed(void) {
    MUST(nvmalloc("root", 8) == NULL && nv_errno() == NV_NOT_GRANTED && nv_heap_open(NULL) == NULL);
    MUST(nv_errno() == NV_NOT_GRANTED);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "apart")) apart();
    else if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "stale")) stale();
    else if (!strcmp(what, "numbered")) numbered();
    else if (!strcmp(what, "unnamed")) unnamed();
    else if (!strcmp(what, "reserve")) reserve();
    else return 2;
    return 0;
}

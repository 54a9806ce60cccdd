/* Calls every function of holdfast.h: `calls COMMAND`. What differs from what must be is printed and ends it. */
#include <holdfast.h>
#include <pthread.h>
#include <signal.h>
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

static long *counter(void) {
    long *count = nvread("count", NULL);
    if (!count) count = nvmalloc("count", sizeof *count);
    MUST(count);
    return count;
}

static void raise_counter(long *count) {
    MUST(nv_tx_begin() == 0);
    MUST(nv_tx_add(count, sizeof *count) == 0);
    ++*count;
    MUST(nv_tx_commit() == 0);
}

static void count(void) {
    long *count = counter();
    raise_counter(count);
    printf("%ld\n", *count);
}

/* Ends without any handler, so as a kill would. */
static void count_and_die(void) {
    count();
    fflush(stdout);
    raise(SIGKILL);
}

static void die_in_transaction(void) {
    long *count = counter();
    MUST(nv_tx_begin() == 0);
    MUST(nv_tx_add(count, sizeof *count) == 0);
    *count = -1;
    MUST(nvmalloc("half", 100));
    raise(SIGKILL);
}

static void commit_and_die(void) {
    long *count = counter();
    raise_counter(count);
    MUST(nv_commit(NV_PROCESS) == 0);
    MUST(nv_commit(NV_POWER) == 0);
    MUST(nv_commit(NV_SYSTEM) == 0);
    MUST(nv_commit(7) == NV_UNSUPPORTED);
    /* Stores go on after a commit, and count at level process. */
    MUST(*count >= 1);
    raise(SIGKILL);
}

/* A list whose every node is filled with its number. */
struct node {
    struct node *next;
    unsigned char number, filled[199];
};

static struct node **list(void) {
    struct node **first = nvread("list", NULL);
    return first ? first : nvmalloc("list", sizeof *first);
}

static void lengthen(struct node **first, int count) {
    for (int i = 0; i < count; i++) {
        struct node *node = nvmalloc(NULL, sizeof *node);
        MUST(node);
        node->number = (unsigned char)((*first ? (*first)->number : 0) + 1);
        memset(node->filled, node->number, sizeof node->filled);
        node->next = *first;
        *first = node;
    }
}

static int length(struct node *node) {
    int length = 0;
    for (; node; node = node->next, length++) {
        for (size_t i = 0; i < sizeof node->filled; i++) MUST(node->filled[i] == node->number);
        MUST(!node->next || (unsigned char)(node->next->number + 1) == node->number);
    }
    return length;
}

static void roll_back_and_die(void) {
    MUST(nv_open_atomic("heap", 0) == 0);
    counter();
    /* Never committed, so a new heap again. */
    MUST(nv_rollback() == 0 && !nvread("count", NULL) && nv_errno() == NV_NO_SUCH_ROOT);
    long *count = counter();
    *count = 1;
    MUST(nv_commit(NV_PROCESS) == 0);
    *count = 2;
    MUST(nvmalloc("gone", 100000));
    MUST(nv_tx_begin() == 0 && nvmalloc("undone", 10));
    MUST(nv_rollback() == NV_IN_TRANSACTION && strstr(nv_message(), "abort") && *count == 2);
    MUST(nv_tx_abort() == 0 && *count == 2 && nvread("gone", NULL));
    MUST(nv_rollback() == 0 && *count == 1 && nvread("count", NULL) == count);
    MUST(!nvread("gone", NULL) && nv_errno() == NV_NO_SUCH_ROOT && nv_rollback() == 0);
    struct node **first = list();
    for (int round = 1; round <= 50; round++) {
        lengthen(first, 20);
        MUST(nv_commit(NV_PROCESS) == 0);
        /* Freed and allocated, so that what the library remembers of free memory is wrong afterwards. */
        for (struct node *node = *first, *next; node; node = next) {
            next = node->next;
            MUST(nvfree(node) == 0);
        }
        *first = NULL;
        lengthen(first, 300);
        MUST(nv_rollback() == 0 && list() == first && length(*first) == 20 * round);
    }
    *count = 3;
    lengthen(first, 100);
    raise(SIGKILL);
}

/* The image is cut off by somebody else: the last commit is gone, and nothing takes its place. */
static void roll_back_without_image(void) {
    char image[4096];
    snprintf(image, sizeof image, "%s/heap.image", getenv("HOLDFAST_POOL"));
    MUST(nv_open_atomic(NULL, 0) == 0);
    *counter() = 7;
    MUST(nv_commit(NV_POWER) == 0 && truncate(image, 0) == 0);
    MUST(nv_rollback() == NV_BAD_FILE && strstr(nv_message(), "heap.image"));
    /* The heap is closed, and opening it is refused. */
    MUST(!nvread("count", NULL) && nv_errno() == NV_BAD_FILE && nv_close() == 0);
    MUST(unlink(image) == 0 && nv_open_atomic("heap", 0) == 0 && *counter() == 7 && nv_rollback() == 0);
}

static void print_length(void) {
    printf("%d\n", length(*list()));
}

static void papers_make(void) {
    char *range = nvmmap("range", 10000);
    MUST(range && (size_t)range % 4096 == 0);
    for (int i = 0; i < 10000; i++) MUST(range[i] == 0);
    memset(range, 'r', 10000);
    MUST(nvmmap("range", 10000) == range && nvmmap("range", 0) == range);
    MUST(nvunmmap(range) == 0 && nvunmmap(range + 4096) == NV_BAD_RANGE && nvunmmap(NULL) == NV_BAD_RANGE);
    MUST(!nvmmap("range", 1 << 20) && nv_errno() == NV_TOO_SMALL && strstr(nv_message(), "12288"));
    uid_t us = geteuid();
    char *block = qnvmalloc(us, 0xC0FFEE, 50);
    MUST(block);
    strcpy(block, "of this user");
    MUST(!qnvmalloc(us, 0xC0FFEE, 50) && nv_errno() == NV_NAME_TAKEN);
    MUST(qnvmalloc(us, 1, 8) && qnvfree(us, 1) == 0 && qnvfree(us, 1) == NV_NO_SUCH_ROOT);
    MUST(!qnvmalloc(us + 1, 1, 8) && nv_errno() == NV_DENIED && strstr(nv_message(), "HOLDFAST_KEEPER"));
    MUST(!qnvretrieve(us + 1, 0xC0FFEE, NULL) && nv_errno() == NV_DENIED && qnvfree(us + 1, 1) == NV_DENIED);
    MUST(!qnvmalloc(((uint64_t)1 << 32) + us, 1, 8) && nv_errno() == NV_DENIED);
    char *text = nvmalloc("text", 20);
    MUST(text);
    strcpy(text, "a root");
    printf("%p\n", (void *)range);
}

static void papers_find(void) {
    size_t size = 0;
    char *range = nvmmap("range", 10000);
    MUST(range && range[0] == 'r' && range[9999] == 'r' && range[10000] == 0);
    char *block = qnvretrieve(geteuid(), 0xC0FFEE, &size);
    MUST(block && size == 50 && !strcmp(block, "of this user"));
    MUST(qnvretrieve(geteuid(), 0xC0FFEE, NULL) == block && !qnvretrieve(geteuid(), 1, NULL));
    char *text = nvread("text", &size);
    MUST(text && size == 20 && !strcmp(text, "a root"));
    MUST(nvremove("text") == 0 && !nvread("text", NULL) && nvremove("nvmap/range") == 0);
    printf("%p\n", (void *)range);
}

static void errors(void) {
    MUST(nv_errno() == 0 && !strcmp(nv_message(), "no error"));
    MUST(!nvmalloc("x", 1) && nv_errno() == NV_NOT_GRANTED && strstr(nv_message(), "HOLDFAST_HEAP"));
    MUST(nv_rollback() == NV_NOT_GRANTED);
    MUST(nv_close() == 0);
    MUST(nv_open("../x", 0) == NV_BAD_NAME && strstr(nv_message(), "../x"));
    MUST(nv_open("errors", UINT64_MAX) == NV_LIMIT_REACHED);
    MUST(nv_open("errors", 1 << 20) == 0);
    MUST(nv_open("errors", 0) == NV_IS_OPEN && strstr(nv_message(), "errors"));
    MUST(!nvread(NULL, NULL) && nv_errno() == NV_BAD_NAME);
    MUST(!nvread("\xff", NULL) && nv_errno() == NV_BAD_NAME);
    MUST(!nvread("missing", NULL) && nv_errno() == NV_NO_SUCH_ROOT);
    MUST(!nvmalloc(NULL, 2 << 20) && nv_errno() == NV_LIMIT_REACHED && strstr(nv_message(), "1048576"));
    MUST(strstr(nv_message(), "2097152 bytes:"));
    MUST(!nvmalloc(NULL, SIZE_MAX) && nv_errno() == NV_LIMIT_REACHED);
    int local = 0;
    MUST(nvfree(&local) == NV_NOT_ALLOCATED && nvfree(NULL) == NV_OK);
    void *object = nvmalloc(NULL, 10);
    MUST(object && nvfree(object) == 0 && nvfree(object) == NV_NOT_ALLOCATED);
    /* A root is not freed like what has no name; an address that was one's before is. */
    char *root = nvmalloc("root", 100);
    MUST(root && nvfree(root) == NV_IS_ROOT && strstr(nv_message(), "nvremove") && nvread("root", NULL) == root);
    MUST(nvremove("root") == 0 && nvfree(root) == NV_NOT_ALLOCATED);
    MUST(nv_tx_begin() == 0 && nvmalloc("root", 100) == root && nv_tx_abort() == 0);
    MUST(nvmalloc(NULL, 100) == root && nvfree(root) == 0);
    MUST(nv_tx_add(object, 1) == NV_NO_TRANSACTION && nv_tx_commit() == NV_NO_TRANSACTION);
    MUST(nv_tx_begin() == 0 && nv_tx_add(&local, sizeof local) == NV_BAD_RANGE);
    MUST(nv_commit(NV_POWER) == NV_IN_TRANSACTION);
    MUST(nv_rollback() == NV_UNSUPPORTED && strstr(nv_message(), "nv_tx_abort") && strstr(nv_message(), "atomic"));
    MUST(nvmalloc("undone", 10) && nv_tx_abort() == 0 && !nvread("undone", NULL));
    MUST(nvmalloc("kept", 10) && nv_rollback() == NV_UNSUPPORTED && nvread("kept", NULL));
    for (int error = 0; error <= NV_NOT_PORTABLE; error++) MUST(nv_strerror(error));
    MUST(strstr(nv_strerror(-1), "nv_errno") && strstr(nv_strerror(NV_NOT_PORTABLE + 1), "nv_errno") && nv_strerror(999));
    MUST(nv_close() == 0 && !nvread("x", NULL) && nv_errno() == NV_NOT_GRANTED);
    MUST(nv_open("errors", 0) == 0 && nvmalloc("again", 1));
    MUST(nv_close() == 0 && nv_open("others", 0) == 0 && !nvread("again", NULL));
}

static void hold(void) {
    counter();
    printf("held\n");
    fflush(stdout);
    getchar();
}

static void try_to_open(void) {
    int error = nv_open(NULL, 0);
    printf("%d %s\n", error, nv_message());
}

static void fork_and_look(void) {
    long *count = counter();
    raise_counter(count);
    pid_t child = fork();
    if (child == 0) {
        MUST(!nvread("count", NULL) && nv_errno() == NV_FORKED && strstr(nv_message(), "forked"));
        MUST(nv_tx_begin() == NV_FORKED && nv_open("other", 0) == NV_FORKED && nv_close() == NV_FORKED);
        exit(0); /* with all handlers, which must leave the parent's heap alone */
    }
    int status = -1;
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    raise_counter(count);
    printf("%ld\n", *count);
}

/* All at once, so that they meet in the library. */
static pthread_barrier_t all_started;

/* Each thread fills objects with its number and finds it there when it frees them. */
static void *allocate_and_free(void *argument) {
    unsigned char number = *(unsigned char *)argument;
    enum { LIVE = 64, ROUNDS = 200000 };
    unsigned char *live[LIVE] = {0};
    pthread_barrier_wait(&all_started);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned slot = i * 31 % LIVE, size = 16 + i * 7 % 300;
        if (live[slot]) {
            MUST(live[slot][0] == number && live[slot][15] == number);
            MUST(nvfree(live[slot]) == 0);
        }
        live[slot] = nvmalloc(NULL, size);
        MUST(live[slot]);
        memset(live[slot], number, size);
    }
    for (unsigned slot = 0; slot < LIVE; slot++) MUST(nvfree(live[slot]) == 0);
    /* Its own last error. */
    MUST(nv_errno() == 0 && nvfree(&number) == NV_NOT_ALLOCATED && nv_errno() == NV_NOT_ALLOCATED);
    return NULL;
}

static void threads(void) {
    counter();
    MUST(!nvread("missing", NULL));
    pthread_t started[4];
    MUST(pthread_barrier_init(&all_started, NULL, 4) == 0);
    unsigned char numbers[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++) MUST(pthread_create(&started[i], NULL, allocate_and_free, &numbers[i]) == 0);
    for (int i = 0; i < 4; i++) MUST(pthread_join(started[i], NULL) == 0);
    MUST(nv_errno() == NV_NO_SUCH_ROOT);
}

static void use_at_exit(void) {
    long *count = nvread("count", NULL);
    if (count) raise_counter(count);
}

/* Registered before the heap is opened, so called after everything that opening may register. */
static void exit_handler(void) {
    MUST(atexit(use_at_exit) == 0);
    count();
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } commands[] = {
        {"count", count},           {"count-and-die", count_and_die}, {"die-in-transaction", die_in_transaction},
        {"papers-make", papers_make}, {"papers-find", papers_find},   {"commit-and-die", commit_and_die},
        {"errors", errors},         {"hold", hold},                   {"try-to-open", try_to_open},
        {"fork", fork_and_look},    {"threads", threads},             {"exit-handler", exit_handler},
        {"roll-back-and-die", roll_back_and_die},
        {"length", print_length},   {"roll-back-without-image", roll_back_without_image},
    };
    alarm(60); /* nothing here takes a second */
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (argc == 2 && !strcmp(argv[1], commands[i].name)) {
            commands[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: calls COMMAND\n");
    return 2;
}

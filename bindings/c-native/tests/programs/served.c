/* A program whose heap comes from a keeper: one command, and what became of it. */
#include <holdfast.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(condition)                                                                                     \
    do {                                                                                                    \
        if (!(condition)) {                                                                                 \
            fprintf(stderr, "line %d: %s: %d %s\n", __LINE__, #condition, nv_errno(), nv_message());        \
            exit(1);                                                                                        \
        }                                                                                                   \
    } while (0)

static long *counter(void) {
    size_t size = 0;
    long *found = qnvretrieve(geteuid(), 7, &size);
    if (!found) found = qnvmalloc(geteuid(), 7, sizeof *found);
    MUST(found);
    return found;
}

static void say(const char *word) {
    printf("%s\n", word);
    fflush(stdout);
}

static void wait_for_word(void) {
    char word[16];
    MUST(fgets(word, sizeof word, stdin));
}

/* Counts, as programs do that know of transactions. */
static void count(void) {
    long *number = counter();
    MUST(nv_tx_begin() == 0 && nv_tx_add(number, sizeof *number) == 0);
    ++*number;
    MUST(nv_tx_commit() == 0);
    printf("%ld\n", *number);
}

/* Dies in a transaction, with a count before it. */
static void die(void) {
    long *number = counter();
    ++*number;
    MUST(nv_tx_begin() == 0 && nv_tx_add(number, sizeof *number) == 0);
    *number = -1;
    say("here");
    raise(SIGKILL);
}

/* Stores before and after a word from outside, and closes. */
static void hold(void) {
    long *number = counter();
    ++*number;
    say("here");
    wait_for_word();
    ++*number;
    int closed = nv_close();
    if (closed) {
        printf("%d\n", closed);
        /* It is there still: a word later somebody may answer. */
        MUST(nv_session() != 0 && *number > 0);
        fflush(stdout);
        wait_for_word();
        MUST(nv_close() == 0);
    }
    say("closed");
}

static void grow(void) {
    MUST(nv_open("grows", 16 << 20) == 0);
    char *large = nvmalloc("large", 10 << 20);
    MUST(large);
    memset(large, 'l', 10 << 20);
    MUST(!nvmalloc("larger", 10 << 20) && nv_errno() == NV_LIMIT_REACHED);
    MUST(nv_commit(NV_POWER) == 0 && nv_close() == 0 && nv_open("grows", 0) == 0);
    size_t size = 0;
    MUST(nvread("large", &size) == large && size == 10 << 20 && large[size - 1] == 'l');
}

static void refusals(void) {
    MUST(!qnvmalloc(geteuid() + 1, 7, 8) && nv_errno() == NV_DENIED);
    MUST(!qnvretrieve(geteuid() + 1, 7, NULL) && nv_errno() == NV_DENIED);
    MUST(qnvfree(geteuid() + 1, 7) == NV_DENIED);
    MUST(nv_set_limit(128 << 20) == NV_UNSUPPORTED && nv_rollback() == NV_UNSUPPORTED && nv_close() == 0);
    MUST(nv_open_atomic("other", 0) == NV_UNSUPPORTED);
    MUST(nv_open("huge", (uint64_t)1 << 40) == NV_LIMIT_REACHED && strstr(nv_message(), "together"));
    MUST(nv_open("../x", 0) == NV_BAD_NAME);
    MUST(nv_open("other", 1 << 20) == 0);
    pid_t child = fork();
    if (child == 0) _exit(nv_commit(NV_PROCESS) == NV_FORKED ? 0 : 1);
    say("refused");
}

int main(int count_of_words, char **words) {
    MUST(count_of_words == 2);
    const char *command = words[1];
    if (!strcmp(command, "count")) count();
    else if (!strcmp(command, "die")) die();
    else if (!strcmp(command, "hold")) hold();
    else if (!strcmp(command, "grow")) grow();
    else if (!strcmp(command, "refusals")) refusals();
    else if (!strcmp(command, "open")) printf("%d\n", nv_open("heap", 0));
    else return 2;
    return 0;
}

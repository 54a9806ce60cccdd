/*
 * A mail classifier as an applet. What it learnt is in a portable heap, which the next run, a page or a native program uses as it
 * lies. Its functions:
 *
 *     learn     a category, a line feed, and a mail of it
 *     classify  a mail; a line for each category, the likeliest first: its name, a tab, its probability
 *     count     how many mails it learnt, of each category a line: its name, a tab, the number; then the number of words
 *     save      streams all counts as text
 *
 * and, for measurements of what the heap saves:
 *
 *     load      text of `save`: from now on the counts are these, in ordinary memory
 *     unload    none in ordinary memory any more
 *
 * Native and WebAssembly.
 */
#include "bayes.h"

#include <holdfast_applet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What counts in ordinary memory may take, for each byte of text. */
#define LOADED_BYTES_PER_BYTE 8

static bayes_memory kept, loaded;

static const char *open_kept(bayes_memory **memory) {
    *memory = loaded.bayes ? &loaded : &kept;
    if ((*memory)->bayes) return NULL;
    nv_portable(1);
    nv_heap *heap = nv_heap_open(NULL);
    return heap ? bayes_in_heap(&kept, heap) : nv_message();
}

static int learn(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *input = holdfast_input(call, &size), *end = memchr(input, '\n', size);
    if (!end) return holdfast_fail(call, "learn takes a category, a line feed and a mail");
    bayes_memory *memory;
    const char *problem = open_kept(&memory);
    size_t category = (size_t)(end - input);
    if (!problem) problem = bayes_learn(memory, input, category, end + 1, size - category - 1);
    return problem ? holdfast_fail(call, problem) : 0;
}

static int classify(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *mail = holdfast_input(call, &size);
    bayes_memory *memory;
    const char *problem = open_kept(&memory);
    if (problem) return holdfast_fail(call, problem);
    bayes_verdict verdicts[BAYES_CATEGORIES];
    char text[BAYES_CATEGORIES * (BAYES_NAME_SIZE + 32)];
    size_t used = 0;
    unsigned count = bayes_classify(memory, mail, size, verdicts);
    for (unsigned at = 0; at < count; at++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s\t%.6f\n", BAYES_NAME_SIZE - 1,
                                 memory->bayes->categories[verdicts[at].category].name, verdicts[at].probability);
    }
    return holdfast_reply(call, text, used) ? holdfast_fail(call, nv_message()) : 0;
}

static int count(holdfast_call *call, void *context) {
    (void)context;
    bayes_memory *memory;
    const char *problem = open_kept(&memory);
    if (problem) return holdfast_fail(call, problem);
    char text[(BAYES_CATEGORIES + 1) * (BAYES_NAME_SIZE + 32)];
    size_t used = 0;
    const struct bayes *bayes = memory->bayes;
    for (unsigned at = 0; at < bayes->categories_count && at < BAYES_CATEGORIES; at++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s\t%u\n", BAYES_NAME_SIZE - 1,
                                 bayes->categories[at].name, (unsigned)bayes->categories[at].mails);
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "%u\n", (unsigned)bayes->words);
    return holdfast_reply(call, text, used) ? holdfast_fail(call, nv_message()) : 0;
}

static int send(void *call, const char *text, size_t size) {
    return holdfast_send(call, text, size);
}

static int save(holdfast_call *call, void *context) {
    (void)context;
    bayes_memory *memory;
    const char *problem = open_kept(&memory);
    if (problem) return holdfast_fail(call, problem);
    return bayes_save(memory, send, call) ? holdfast_fail(call, nv_message()) : 0;
}

static int unload(holdfast_call *call, void *context) {
    (void)call, (void)context;
    free(loaded.base);
    memset(&loaded, 0, sizeof loaded);
    return 0;
}

static int load(holdfast_call *call, void *context) {
    size_t size;
    const char *text = holdfast_input(call, &size);
    unload(call, context);
    const char *problem = bayes_in_process(&loaded, size * LOADED_BYTES_PER_BYTE + (1 << 20));
    if (!problem) problem = bayes_load(&loaded, text, size);
    if (!problem) return 0;
    unload(call, context);
    return holdfast_fail(call, problem);
}

int main(void) {
    static const struct { const char *name; holdfast_function function; } functions[] = {
        {"learn", learn}, {"classify", classify}, {"count", count}, {"save", save}, {"load", load}, {"unload", unload},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        if (holdfast_export(functions[at].name, functions[at].function, NULL)) return 1;
    }
    int status = holdfast_serve();
    if (status) fprintf(stderr, "mail: %s\n", nv_strerror(status));
    return status;
}

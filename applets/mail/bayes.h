/*
 * A mail classifier by Bayes' rule, whose counts are a structure that is learnt once and then used as it lies: in a portable
 * heap, so that native programs, applets and pages share it, or in ordinary memory that is filled from text at each start.
 * It knows nothing of applets.
 */
#ifndef BAYES_H
#define BAYES_H

#include <holdfast_portable.h>

#define BAYES_CATEGORIES 10
#define BAYES_NAME_SIZE 32
/* Longer words are cut off there. */
#define BAYES_WORD_SIZE 24

struct bayes_word;
typedef NV_REF(struct bayes_word) bayes_word_ref;

struct bayes_word {
    bayes_word_ref next; /* of the same bucket */
    uint32_t hash;
    uint32_t mails[BAYES_CATEGORIES]; /* in which it is */
    char text[BAYES_WORD_SIZE];       /* zeros behind it */
};
NV_PORTABLE(bayes_word, 1, (ref, next, bayes_word), (value, hash), (values, mails), (values, text));

struct bayes_bucket {
    bayes_word_ref first;
};
NV_PORTABLE(bayes_bucket, 1, (ref, first, bayes_word));
typedef NV_REF(struct bayes_bucket) bayes_buckets_ref;

struct bayes_category {
    char name[BAYES_NAME_SIZE];
    uint32_t mails;
    uint32_t words; /* the different words of each mail, added up */
};
NV_PORTABLE(bayes_category, 1, (values, name), (value, mails), (value, words));

struct bayes {
    uint32_t words;
    uint32_t buckets_count; /* a power of two */
    bayes_buckets_ref buckets;
    uint32_t categories_count;
    struct bayes_category categories[BAYES_CATEGORIES];
};
NV_PORTABLE(bayes, 1, (value, words), (value, buckets_count), (ref, buckets, bayes_bucket), (value, categories_count),
            (objects, categories, bayes_category));

/* Where the counts are: in a heap, or in memory of this process. */
typedef struct {
    nv_heap *heap; /* NULL: of this process */
    char *base;    /* what references count from */
    size_t used, size;
    struct bayes *bayes;
} bayes_memory;

/* The probability of a category, by its place in the list. */
typedef struct {
    unsigned category;
    double probability;
} bayes_verdict;

/* The counts of a heap, made if there are none. NULL, or what went wrong. */
const char *bayes_in_heap(bayes_memory *memory, nv_heap *heap);

/* Empty counts in size bytes of this process. NULL, or what went wrong. */
const char *bayes_in_process(bayes_memory *memory, size_t size);

/* Counts a mail of that category, in one transaction. NULL, or what went wrong; nothing is counted then. */
const char *bayes_learn(bayes_memory *memory, const char *category, size_t category_size, const char *mail, size_t size);

/* The categories, the likeliest first; how many there are. */
unsigned bayes_classify(const bayes_memory *memory, const char *mail, size_t size, bayes_verdict verdicts[BAYES_CATEGORIES]);

/* The counts as lines of text, a part at a time: `write` gets each, and returns 0 to go on. Its last result. */
int bayes_save(const bayes_memory *memory, int (*write)(void *context, const char *text, size_t size), void *context);

/* Reads such lines into empty counts. NULL, or what went wrong. */
const char *bayes_load(bayes_memory *memory, const char *text, size_t size);

#endif

#include "bayes.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_AT_FIRST 1024
/* Different words of one mail that count. */
#define MAIL_WORDS_MAX 4096
/* A word that says nothing of any category does not decide. */
#define WORD_SIZE_MIN 3

typedef struct {
    char text[BAYES_WORD_SIZE];
    uint32_t hash;
} word;

static uint32_t hash_of(const char text[BAYES_WORD_SIZE]) {
    uint32_t hash = 2166136261;
    for (int at = 0; at < BAYES_WORD_SIZE && text[at]; at++) hash = (hash ^ (unsigned char)text[at]) * 16777619;
    return hash;
}

/* The next word of a text, in small letters; 0 at its end. */
static int next_word(const char **from, const char *end, word *word) {
    for (const char *at = *from; at < end;) {
        size_t length = 0;
        memset(word->text, 0, sizeof word->text);
        for (; at < end && (isalnum((unsigned char)*at) || *at == '\'' || *at == '-' || *at == '$'); at++)
            if (length < BAYES_WORD_SIZE) word->text[length++] = (char)tolower((unsigned char)*at);
        *from = at < end ? ++at : at;
        if (length < WORD_SIZE_MIN) continue;
        word->hash = hash_of(word->text);
        return 1;
    }
    return 0;
}

/* The different words of a mail, in the order in which they come. */
static size_t words_of(const char *mail, size_t size, word *words) {
    static uint16_t places[MAIL_WORDS_MAX * 2];
    size_t count = 0;
    memset(places, 0, sizeof places);
    for (const char *from = mail; count < MAIL_WORDS_MAX && next_word(&from, mail + size, &words[count]);) {
        size_t place = words[count].hash % (MAIL_WORDS_MAX * 2);
        while (places[place] && memcmp(words[places[place] - 1].text, words[count].text, BAYES_WORD_SIZE))
            place = (place + 1) % (MAIL_WORDS_MAX * 2);
        if (!places[place]) places[place] = (uint16_t)++count;
    }
    return count;
}

static void *allocate(bayes_memory *memory, size_t size) {
    if (memory->heap) return nv_malloc_in(memory->heap, NULL, size);
    size = (size + 7) & ~(size_t)7;
    if (size > memory->size - memory->used) return NULL;
    void *found = memory->base + memory->used;
    memory->used += size;
    return found;
}

/* Announces a change of these bytes. */
static int change(bayes_memory *memory, const void *bytes, size_t size) {
    return memory->heap ? nv_tx_add_in(memory->heap, bytes, size) : 0;
}

static const char *no_room(const bayes_memory *memory) {
    return memory->heap ? nv_message() : "the memory of this process is used up";
}

static const char *start(bayes_memory *memory) {
    struct bayes_bucket *buckets = allocate(memory, BUCKETS_AT_FIRST * sizeof *buckets);
    if (!buckets) return no_room(memory);
    memory->bayes->buckets_count = BUCKETS_AT_FIRST;
    nv_refer(memory->base, memory->bayes->buckets, buckets);
    return NULL;
}

const char *bayes_in_heap(bayes_memory *memory, nv_heap *heap) {
    *memory = (bayes_memory){.heap = heap, .base = nv_base_in(heap)};
    if (!memory->base) return nv_message();
    memory->bayes = nv_read_typed_in(heap, "bayes", nv_layout(bayes), NULL);
    if (memory->bayes) return NULL;
    if (nv_errno() != NV_NO_SUCH_ROOT || nv_tx_begin_in(heap)) return nv_message();
    memory->bayes = nv_malloc_typed_in(heap, "bayes", sizeof *memory->bayes, nv_layout(bayes));
    const char *problem = memory->bayes ? start(memory) : nv_message();
    if (problem) nv_tx_abort_in(heap);
    else if (nv_tx_commit_in(heap)) problem = nv_message();
    return problem;
}

const char *bayes_in_process(bayes_memory *memory, size_t size) {
    /* No reference leads to the first 8 bytes. */
    *memory = (bayes_memory){.base = calloc(1, size), .used = 8, .size = size};
    if (!memory->base) return no_room(memory);
    memory->bayes = allocate(memory, sizeof *memory->bayes);
    return memory->bayes ? start(memory) : no_room(memory);
}

static bayes_word_ref *bucket_of(const bayes_memory *memory, uint32_t hash) {
    struct bayes_bucket *buckets = nv_at(memory->base, memory->bayes->buckets);
    return &buckets[hash & (memory->bayes->buckets_count - 1)].first;
}

static struct bayes_word *find(const bayes_memory *memory, const word *word) {
    struct bayes_word *found = nv_at(memory->base, *bucket_of(memory, word->hash));
    while (found && (found->hash != word->hash || memcmp(found->text, word->text, BAYES_WORD_SIZE)))
        found = nv_at(memory->base, found->next);
    return found;
}

/* Twice as many buckets, in which every word has its place again. */
static int grow(bayes_memory *memory) {
    struct bayes *bayes = memory->bayes;
    uint32_t old_count = bayes->buckets_count, count = old_count * 2;
    struct bayes_bucket *old = nv_at(memory->base, bayes->buckets);
    struct bayes_bucket *buckets = allocate(memory, count * sizeof *buckets);
    if (!buckets || change(memory, bayes, sizeof *bayes)) return 1;
    for (uint32_t bucket = 0; bucket < old_count; bucket++) {
        for (struct bayes_word *word = nv_at(memory->base, old[bucket].first), *next; word; word = next) {
            next = nv_at(memory->base, word->next);
            if (change(memory, &word->next, sizeof word->next)) return 1;
            bayes_word_ref *first = &buckets[word->hash & (count - 1)].first;
            word->next = *first;
            nv_refer(memory->base, *first, word);
        }
    }
    nv_refer(memory->base, bayes->buckets, buckets);
    bayes->buckets_count = count;
    return memory->heap ? nv_free_in(memory->heap, old) : 0;
}

/* The word, which is new in the counts if it must be. */
static struct bayes_word *take(bayes_memory *memory, const word *word) {
    struct bayes_word *found = find(memory, word);
    if (found) return change(memory, found->mails, sizeof found->mails) ? NULL : found;
    if (memory->bayes->words >= memory->bayes->buckets_count && grow(memory)) return NULL;
    bayes_word_ref *first = bucket_of(memory, word->hash);
    if (!(found = allocate(memory, sizeof *found)) || change(memory, first, sizeof *first)) return NULL;
    found->next = *first;
    found->hash = word->hash;
    memcpy(found->text, word->text, BAYES_WORD_SIZE);
    nv_refer(memory->base, *first, found);
    memory->bayes->words++;
    return found;
}

/* The place of a category, which is new if it must be; -1 when there are too many. */
static int category_of(struct bayes *bayes, const char *name, size_t size) {
    char whole[BAYES_NAME_SIZE] = {0};
    memcpy(whole, name, size);
    for (uint32_t at = 0; at < bayes->categories_count; at++)
        if (!memcmp(bayes->categories[at].name, whole, sizeof whole)) return (int)at;
    if (bayes->categories_count == BAYES_CATEGORIES) return -1;
    memcpy(bayes->categories[bayes->categories_count].name, whole, sizeof whole);
    return (int)bayes->categories_count++;
}

static const char *learn(bayes_memory *memory, int category, const char *mail, size_t size) {
    static word words[MAIL_WORDS_MAX];
    size_t count = words_of(mail, size, words);
    for (size_t at = 0; at < count; at++) {
        struct bayes_word *found = take(memory, &words[at]);
        if (!found) return no_room(memory);
        found->mails[category]++;
    }
    memory->bayes->categories[category].mails++;
    memory->bayes->categories[category].words += (uint32_t)count;
    return NULL;
}

const char *bayes_learn(bayes_memory *memory, const char *category, size_t category_size, const char *mail, size_t size) {
    if (category_size == 0 || category_size >= BAYES_NAME_SIZE) return "a category has a name of 1 to 31 bytes";
    for (size_t at = 0; at < category_size; at++)
        if ((unsigned char)category[at] <= ' ') return "a category has a name without blanks";
    if (memory->heap && nv_tx_begin_in(memory->heap)) return nv_message();
    const char *problem = NULL;
    if (change(memory, memory->bayes, sizeof *memory->bayes)) problem = nv_message();
    if (!problem) {
        int place = category_of(memory->bayes, category, category_size);
        problem = place < 0 ? "there are 10 categories already" : learn(memory, place, mail, size);
    }
    if (!memory->heap) return problem;
    if (problem) nv_tx_abort_in(memory->heap);
    else if (nv_tx_commit_in(memory->heap)) problem = nv_message();
    return problem;
}

static int likelier_first(const void *one, const void *other) {
    double a = ((const bayes_verdict *)one)->probability, b = ((const bayes_verdict *)other)->probability;
    return (a < b) - (a > b);
}

unsigned bayes_classify(const bayes_memory *memory, const char *mail, size_t size, bayes_verdict verdicts[BAYES_CATEGORIES]) {
    static word words[MAIL_WORDS_MAX];
    const struct bayes *bayes = memory->bayes;
    unsigned count = bayes->categories_count < BAYES_CATEGORIES ? bayes->categories_count : BAYES_CATEGORIES;
    double scores[BAYES_CATEGORIES], all = 0;
    for (unsigned at = 0; at < count; at++) all += bayes->categories[at].mails;
    for (unsigned at = 0; at < count; at++) scores[at] = log((bayes->categories[at].mails + 1.0) / (all + count));
    size_t words_count = words_of(mail, size, words);
    for (size_t at = 0; at < words_count; at++) {
        const struct bayes_word *found = find(memory, &words[at]);
        if (!found) continue;
        for (unsigned category = 0; category < count; category++)
            scores[category] += log((found->mails[category] + 1.0) / (bayes->categories[category].words + (double)bayes->words));
    }
    double best = -INFINITY, sum = 0;
    for (unsigned at = 0; at < count; at++) best = fmax(best, scores[at]);
    for (unsigned at = 0; at < count; at++) sum += exp(scores[at] - best);
    for (unsigned at = 0; at < count; at++) verdicts[at] = (bayes_verdict){at, exp(scores[at] - best) / sum};
    qsort(verdicts, count, sizeof *verdicts, likelier_first);
    return count;
}

/* A word or a category with its numbers, from `text` on; how many bytes these are. */
static size_t line_of(char *text, const char *name, size_t name_size, const uint32_t *numbers, unsigned count) {
    const char *end = memchr(name, 0, name_size);
    size_t length = end ? (size_t)(end - name) : name_size;
    memcpy(text, name, length);
    for (unsigned at = 0; at < count; at++) length += (size_t)sprintf(text + length, "\t%u", (unsigned)numbers[at]);
    text[length++] = '\n';
    return length;
}

int bayes_save(const bayes_memory *memory, int (*write)(void *context, const char *text, size_t size), void *context) {
    static char part[64 * 1024];
    const struct bayes *bayes = memory->bayes;
    size_t used = 0;
    for (uint32_t at = 0; at < bayes->categories_count; at++) {
        const struct bayes_category *category = &bayes->categories[at];
        const uint32_t numbers[] = {category->mails, category->words};
        used += line_of(part + used, category->name, BAYES_NAME_SIZE, numbers, 2);
    }
    part[used++] = '\n';
    struct bayes_bucket *buckets = nv_at(memory->base, bayes->buckets);
    for (uint32_t bucket = 0; bucket < bayes->buckets_count; bucket++) {
        for (const struct bayes_word *word = nv_at(memory->base, buckets[bucket].first); word;
             word = nv_at(memory->base, word->next)) {
            if (used + 256 > sizeof part) {
                int status = write(context, part, used);
                if (status) return status;
                used = 0;
            }
            used += line_of(part + used, word->text, BAYES_WORD_SIZE, word->mails, bayes->categories_count);
        }
    }
    return write(context, part, used);
}

/* Reads a line of such numbers behind a name; 0 where it is none. */
static int parse(const char *line, const char *end, char *name, size_t name_size, uint32_t *numbers, unsigned count) {
    const char *at = line;
    memset(name, 0, name_size);
    while (at < end && *at != '\t') at++;
    if (at == line || (size_t)(at - line) > name_size) return 0;
    memcpy(name, line, (size_t)(at - line));
    for (unsigned number = 0; number < count; number++) {
        if (at == end || *at++ != '\t' || at == end || !isdigit((unsigned char)*at)) return 0;
        uint64_t value = 0;
        while (at < end && isdigit((unsigned char)*at) && value <= UINT32_MAX) value = value * 10 + (uint64_t)(*at++ - '0');
        if (value > UINT32_MAX) return 0;
        numbers[number] = (uint32_t)value;
    }
    return at == end;
}

const char *bayes_load(bayes_memory *memory, const char *text, size_t size) {
    static const char damaged[] = "the text is not what save wrote";
    struct bayes *bayes = memory->bayes;
    const char *end = text + size;
    int is_word = 0;
    if (bayes->words || bayes->categories_count) return "there are counts already";
    for (const char *line = text, *next; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) return damaged;
        next = stop + 1;
        uint32_t numbers[BAYES_CATEGORIES] = {0};
        if (line == stop && !is_word) {
            is_word = 1;
        } else if (is_word) {
            word word;
            if (!parse(line, stop, word.text, sizeof word.text, numbers, bayes->categories_count)) return damaged;
            word.hash = hash_of(word.text);
            struct bayes_word *taken = take(memory, &word);
            if (!taken) return no_room(memory);
            memcpy(taken->mails, numbers, sizeof taken->mails);
        } else {
            char name[BAYES_NAME_SIZE - 1];
            if (!parse(line, stop, name, sizeof name, numbers, 2)) return damaged;
            int place = category_of(bayes, name, sizeof name);
            if (place < 0) return damaged;
            bayes->categories[place].mails = numbers[0];
            bayes->categories[place].words = numbers[1];
        }
    }
    return is_word ? NULL : damaged;
}

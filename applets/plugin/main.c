/*
 * A plug-in in C, with the three patterns that most plug-ins are made of: state that the host keeps by key, requests
 * to servers that the host allows, and a log that the host writes. README.md has the host's functions. Exports:
 *
 *     count_vowels   counts the vowels of a text; the total over all calls is in the host's store, under "count-vowels"
 *     title          fetches a page from a URL and returns the text of its <title>
 */
#include <holdfast_applet.h>

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char TOTAL_KEY[] = "count-vowels";
static const char VOWELS[] = "aeiouAEIOU";

/* The host's own code of a failure: there is no such key. */
enum { NOT_FOUND = 404 };

/* A function of the host, found at its first use. */
struct host_function {
    const char *name;
    int number;
};

static struct host_function kv_get = {"kv_get", 0}, kv_set = {"kv_set", 0}, http_get = {"http_get", 0},
                            host_log = {"log", 0};

/* 0, or the nv_error; with NV_HOST_FUNCTION the result has code and words. */
static int ask(struct host_function *function, const void *bytes, size_t size, holdfast_result *result) {
    int number = function->number ? function->number - 1 : holdfast_import(function->name);
    if (number < 0) return -number;
    function->number = number + 1;
    return holdfast_call_host(number, bytes, size, result);
}

/* A line for the host's log, by a letter of "diwe". A host that grants no log gets none. */
static void note(char level, const char *format, ...) {
    char line[256] = {level, ' '};
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line + 2, sizeof line - 2, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    size_t size = 2 + ((size_t)length < sizeof line - 2 ? (size_t)length : sizeof line - 3);
    holdfast_result result = {0};
    ask(&host_log, line, size, &result);
    holdfast_result_free(&result);
}

/* Makes a failure of the host the call's. */
static int fail(holdfast_call *call, const holdfast_result *result) {
    char words[512];
    if (result->code) {
        snprintf(words, sizeof words, "%.*s", (int)(result->size < 500 ? result->size : 500), (const char *)result->bytes);
        holdfast_fail(call, words);
        return result->code;
    }
    return holdfast_fail(call, nv_message());
}

static int count_vowels(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *text = holdfast_input(call, &size);
    uint32_t count = 0, total = 0;
    for (size_t at = 0; at < size; at++) count += text[at] && strchr(VOWELS, text[at]);

    holdfast_result result = {0};
    int error = ask(&kv_get, TOTAL_KEY, sizeof TOTAL_KEY - 1, &result);
    if (!error && result.size == sizeof total) memcpy(&total, result.bytes, sizeof total);
    else if (!error) note('w', "the total has %zu bytes and not 4; it begins again", result.size);
    else if (error != NV_HOST_FUNCTION || result.code != NOT_FOUND) goto failed;
    total += count;

    char pair[sizeof TOTAL_KEY + sizeof total];
    memcpy(pair, TOTAL_KEY, sizeof TOTAL_KEY);
    memcpy(pair + sizeof TOTAL_KEY, &total, sizeof total);
    error = ask(&kv_set, pair, sizeof pair, &result);
    if (error) goto failed;
    note('i', "%u vowels in %zu bytes", count, size);
    holdfast_result_free(&result);

    char reply[128];
    int length = snprintf(reply, sizeof reply, "{\"count\":%u,\"total\":%u,\"vowels\":\"%s\"}", count, total, VOWELS);
    return holdfast_reply(call, reply, (size_t)length) ? holdfast_fail(call, nv_message()) : 0;

failed:
    error = fail(call, &result);
    holdfast_result_free(&result);
    return error;
}

/* Where a tag begins, without regard to case; NULL if it is not there. */
static const char *find_tag(const char *text, const char *end, const char *tag) {
    size_t length = strlen(tag);
    for (; (size_t)(end - text) >= length; text++) {
        size_t at = 0;
        while (at < length && tolower((unsigned char)text[at]) == tag[at]) at++;
        if (at == length) return text;
    }
    return NULL;
}

static int title(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *url = holdfast_input(call, &size);
    holdfast_result result = {0};
    int status = ask(&http_get, url, size, &result);
    if (status) {
        note('e', "no page: %s", nv_message());
        status = fail(call, &result);
        goto done;
    }
    /* Three digits and a line feed stand before the body. */
    const char *bytes = result.bytes, *end = bytes + result.size;
    if (result.size < 4 || memcmp(bytes, "200\n", 4)) {
        note('w', "the server answered %.*s", (int)(result.size < 3 ? result.size : 3), bytes ? bytes : "");
        status = holdfast_fail(call, "the server has no such page");
        goto done;
    }
    note('d', "%zu bytes", result.size - 4);
    const char *open = find_tag(bytes + 4, end, "<title"), *from = open ? memchr(open, '>', (size_t)(end - open)) : NULL;
    const char *to = from ? find_tag(from + 1, end, "</title") : NULL;
    if (!to) {
        status = holdfast_fail(call, "the page has no title");
        goto done;
    }
    for (from++; from < to && isspace((unsigned char)*from);) from++;
    while (to > from && isspace((unsigned char)to[-1])) to--;
    status = holdfast_reply(call, from, (size_t)(to - from)) ? holdfast_fail(call, nv_message()) : 0;
done:
    holdfast_result_free(&result);
    return status;
}

int main(void) {
    holdfast_export("count_vowels", count_vowels, NULL);
    holdfast_export("title", title, NULL);
    int status = holdfast_serve();
    if (status) fprintf(stderr, "plugin: %s\n", nv_strerror(status));
    return status;
}

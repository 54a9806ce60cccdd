/* Documents through holdfast_document.h: `documents COMMAND`. What differs from what must be is printed. */
#define _GNU_SOURCE
#include <holdfast_document.h>

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

static const char page[] =
    "<!DOCTYPE html><!--c--><title>A &amp; B</title><body class='a b' id=x><p>one<b>two</b>\xc3\xbc<br>"
    "<svg xlink:href='#y'></svg><template><i>in</i></template><a href=/1>first</a><a href=/2>second</a>";

/* `size` is read after the call that is the first argument. */
#define is(text, size, expected) is_text(text, &(size), expected)

static int is_text(const char *text, const size_t *size, const char *expected) {
    return text && *size == strlen(expected) && !memcmp(text, expected, *size);
}

/* What a buffer of this size holds afterwards. */
static const char *cut(nv_document document, nv_node node, size_t room) {
    static char buffer[100];
    size_t length = 0;
    memset(buffer, '#', sizeof buffer);
    MUST(nv_doc_text(document, node, buffer, room, &length) == 0 && length == 8 && buffer[room] == '#');
    return buffer;
}

static nv_document parsed(void) {
    MUST(nv_doc_parse("page", page, sizeof page - 1, NULL) == 0);
    nv_document document = nv_doc_open("page");
    MUST(document);
    return document;
}

static void look(nv_document document) {
    size_t size = 0, count = 0;
    MUST(nv_doc_check(document) == 0 && nv_doc_kind(document, NV_DOC_ROOT) == NV_NODE_DOCUMENT);
    nv_node type = nv_doc_first_child(document, NV_DOC_ROOT), comment = nv_doc_next_sibling(document, type);
    MUST(nv_doc_kind(document, type) == NV_NODE_DOCTYPE && nv_doc_kind(document, comment) == NV_NODE_COMMENT);
    MUST(is(nv_doc_data(document, comment, &size), size, "c"));
    MUST(nv_doc_previous_sibling(document, comment) == type && nv_doc_parent(document, type) == NV_DOC_ROOT);
    MUST(!nv_doc_previous_sibling(document, type) && nv_errno() == NV_NOTHING);
    MUST(!nv_doc_parent(document, NV_DOC_ROOT) && nv_errno() == NV_NOTHING);
    nv_node html = nv_doc_last_child(document, NV_DOC_ROOT);
    MUST(is(nv_doc_name(document, html, &size), size, "html") && nv_doc_namespace(document, html) == NV_NS_HTML);
    MUST(!nv_doc_name(document, comment, &size) && nv_errno() == NV_NOTHING);

    nv_node body = nv_doc_select(document, NV_DOC_ROOT, "body.b");
    MUST(is(nv_doc_attribute(document, body, "class", &size), size, "a b"));
    MUST(!nv_doc_attribute(document, body, "none", &size) && nv_errno() == NV_NOTHING);
    MUST(nv_doc_attribute_count(document, body, &count) == 0 && count == 2);
    nv_doc_attribute_place place;
    MUST(nv_doc_attribute_at(document, body, 1, &place) == 0 && is(place.name, place.name_size, "id"));
    MUST(is(place.value, place.value_size, "x") && !place.prefix && place.name_space == NV_NS_NONE);
    MUST(nv_doc_attribute_at(document, body, 2, &place) == NV_NOTHING);
    nv_node svg = nv_doc_select(document, body, "svg");
    MUST(nv_doc_namespace(document, svg) == NV_NS_SVG && nv_doc_attribute_at(document, svg, 0, &place) == 0);
    MUST(place.name_space == NV_NS_XLINK && is(place.prefix, place.prefix_size, "xlink"));
    MUST(is(place.name, place.name_size, "href") && is(place.value, place.value_size, "#y"));
    nv_node template = nv_doc_select(document, body, "template");
    nv_node contents = nv_doc_template_contents(document, template);
    MUST(nv_doc_kind(document, contents) == NV_NODE_FRAGMENT && !nv_doc_first_child(document, template));
    MUST(!nv_doc_select(document, body, "i") && nv_errno() == NV_NOTHING && nv_doc_select(document, contents, "i"));

    nv_node *links = NULL;
    MUST(nv_doc_select_all(document, NV_DOC_ROOT, "a[href]", &links, &count) == 0 && count == 2);
    MUST(is(nv_doc_attribute(document, links[1], "href", &size), size, "/2"));
    MUST(nv_doc_closest(document, links[1], "p") == nv_doc_select(document, body, "p"));
    MUST(nv_doc_closest(document, links[1], "a") == links[1] && !nv_doc_closest(document, links[1], "ul"));
    nv_doc_free(links);
    MUST(nv_doc_select_all(document, NV_DOC_ROOT, "ul", &links, &count) == 0 && !links && !count);
    nv_doc_free(links);

    /* A cut never leaves half a character. */
    nv_node title = nv_doc_select(document, NV_DOC_ROOT, "title"), paragraph = nv_doc_select(document, body, "p");
    MUST(nv_doc_text(document, title, NULL, 0, &size) == 0 && size == 5);
    nv_node first = nv_doc_select(document, body, "a");
    nv_node second = nv_doc_next_sibling(document, first);
    MUST(nv_doc_text(document, paragraph, NULL, 0, &size) == 0 && size == strlen("onetwo\xc3\xbc" "firstsecond"));
    MUST(nv_tx_begin() == 0 && nv_doc_detach(document, first) == 0 && nv_doc_detach(document, second) == 0);
    MUST(!strcmp(cut(document, paragraph, 9), "onetwo\xc3\xbc") && !strcmp(cut(document, paragraph, 8), "onetwo"));
    MUST(!strcmp(cut(document, paragraph, 4), "one") && !strcmp(cut(document, paragraph, 1), ""));
    MUST(cut(document, paragraph, 0)[0] == '#' && nv_tx_abort() == 0);
    char html_of[100];
    MUST(nv_doc_html(document, title, html_of, sizeof html_of, &size) == 0);
    MUST(!strcmp(html_of, "<title>A &amp; B</title>") && size == strlen(html_of));
    MUST(nv_doc_inner_html(document, title, html_of, sizeof html_of, NULL) == 0 && !strcmp(html_of, "A &amp; B"));
}

static void all(void) {
    look(parsed());
    MUST(nv_close() == 0 && nv_open("heap", 0) == 0);
    nv_document document = nv_doc_open("page");
    look(document);
    MUST(nv_doc_parse("an older", "x", 1, NULL) == 0 && nvmalloc("no document", 8));
    char names[100];
    size_t length, count;
    MUST(nv_doc_names(names, sizeof names, &length, &count) == 0 && count == 2 && length == 13);
    MUST(!memcmp(names, "an older\0page", 14));
    MUST(nv_doc_close(document) == 0 && nv_doc_close(document) == NV_STALE && nv_doc_check(document) == NV_STALE);
}

static void changes(void) {
    nv_document document = parsed();
    size_t size;
    nv_node body = nv_doc_select(document, NV_DOC_ROOT, "body");
    /* All of a transaction counts, or nothing; what is refused is no reason to undo the rest. */
    for (int commits = 0; commits < 2; commits++) {
        MUST(nv_tx_begin() == 0);
        nv_node item = nv_doc_create_element(document, NV_NS_HTML, "LI"), text = nv_doc_create_text(document, "new", 3);
        MUST(item && text && nv_doc_append(document, item, text) == 0 && nv_doc_append(document, body, item) == 0);
        MUST(nv_doc_set_attribute(document, item, "Title", "\xc3\xa4", 2) == 0);
        MUST(nv_doc_append(document, item, body) == NV_BAD_CHANGE && strstr(nv_message(), "holds"));
        MUST(nv_doc_set_attribute(document, item, "a b", "", 0) == NV_BAD_CHANGE);
        MUST(nv_doc_set_attribute(document, text, "a", "", 0) == NV_BAD_CHANGE);
        MUST(nv_doc_append(document, 99999, item) == NV_NOTHING);
        MUST((commits ? nv_tx_commit() : nv_tx_abort()) == 0);
        MUST(!nv_doc_select(document, body, "li[title='\xc3\xa4']") == !commits);
    }
    nv_node item = nv_doc_select(document, body, "li"), paragraph = nv_doc_select(document, body, "p");
    MUST(nv_doc_insert_before(document, paragraph, item) == 0 && nv_doc_next_sibling(document, item) == paragraph);
    MUST(nv_doc_set_text(document, item, "other", 5) == 0);
    MUST(is(nv_doc_data(document, nv_doc_first_child(document, item), &size), size, "other"));
    MUST(nv_doc_remove_attribute(document, item, "title") == 0);
    MUST(nv_doc_remove_attribute(document, item, "title") == NV_NOTHING);
    nv_node comment = nv_doc_create_comment(document, "here", 4);
    MUST(nv_doc_append(document, item, comment) == 0 && nv_doc_kind(document, comment) == NV_NODE_COMMENT);
    MUST(nv_doc_check(document) == 0);
    /* Room of what was removed comes back, and nodes have other numbers then. */
    MUST(nv_doc_detach(document, paragraph) == 0 && nv_doc_compact("page") == 0);
    MUST(nv_doc_check(document) == NV_STALE && nv_doc_check(nv_doc_open("page")) == 0);
}

static void *parse_often(void *argument) {
    for (int at = 0; at < 50; at++) MUST(nv_doc_parse(argument, page, sizeof page - 1, NULL) == 0);
    return NULL;
}

static void stale(void) {
    nv_document document = parsed(), again = nv_doc_open("page");
    MUST(again != document && nv_doc_check(again) == 0);
    /* In a transaction no page takes the place of another: its end could bring the old one back. */
    MUST(nv_tx_begin() == 0 && nv_doc_parse("page", "x", 1, NULL) == NV_IN_TRANSACTION);
    MUST(nv_doc_remove("page") == NV_IN_TRANSACTION && nv_doc_compact("page") == NV_IN_TRANSACTION);
    MUST(nv_doc_parse("new", "x", 1, NULL) == 0 && nv_tx_abort() == 0);
    MUST(!nv_doc_open("new") && nv_errno() == NV_NO_SUCH_ROOT && nv_doc_check(document) == 0);
    MUST(nv_doc_parse("page", "x", 1, NULL) == 0);
    MUST(nv_doc_check(document) == NV_STALE && !nv_doc_first_child(again, NV_DOC_ROOT) && nv_errno() == NV_STALE);
    document = nv_doc_open("page");
    MUST(document && nv_doc_remove("page") == 0 && nv_doc_check(document) == NV_STALE);
    document = parsed();
    MUST(nvremove("page") == 0 && nv_doc_check(document) == NV_STALE);
    document = parsed();
    MUST(nv_close() == 0 && nv_doc_check(document) == NV_STALE && nv_open_atomic("heap", 0) == 0);
    MUST(nv_doc_check(document) == NV_STALE && nv_doc_set_text(document, NV_DOC_ROOT, "", 0) == NV_STALE);
    document = parsed();
    MUST(nv_rollback() == 0 && nv_doc_check(document) == NV_STALE && nv_doc_check(0) == NV_STALE);
    /* A child of fork gets to none. */
    document = parsed();
    pid_t child = fork();
    if (!child) _exit(nv_doc_check(document) == NV_FORKED && !nv_doc_open("page") ? 0 : 1);
    int status;
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* Several threads parse and read. */
    pthread_t threads[2];
    MUST(!pthread_create(&threads[0], NULL, parse_often, "one") && !pthread_create(&threads[1], NULL, parse_often, "two"));
    for (int at = 0; at < 500; at++) MUST(nv_doc_select(document, NV_DOC_ROOT, "a + a"));
    MUST(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL));
    look(nv_doc_open("two"));
}

static void *change_in_compartment(void *name) {
    MUST(nv_compartment_enter(name) == 0);
    nv_document own = parsed();
    MUST(nv_doc_parse("page", "x", 1, NULL) == 0 && nv_doc_check(own) == NV_STALE);
    MUST(nv_doc_compact("page") == 0 && nv_doc_remove("page") == 0 && nv_compartment_leave() == 0);
    return NULL;
}

static void change_on_a_thread(void) {
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, change_in_compartment, "one") && !pthread_join(thread, NULL));
}

/* What happens to a page in one heap is nothing to the page of that name in another. */
static void compartments(void) {
    nv_document shared = parsed();
    change_on_a_thread();
    MUST(nv_doc_check(shared) == 0);
    MUST(nv_compartment_enter("two") == 0 && nv_doc_check(shared) == NV_STALE);
    nv_document own = parsed();
    change_on_a_thread();
    MUST(nv_doc_check(own) == 0 && nv_compartment_leave() == 0);
    MUST(nv_doc_check(own) == NV_STALE && nv_doc_check(shared) == 0);
    MUST(nv_doc_parse("page", "x", 1, NULL) == 0 && nv_doc_check(shared) == NV_STALE);
}

static void errors(const char *file) {
    nv_document document = parsed();
    nv_node *nodes;
    size_t count;
    MUST(!nv_doc_select(document, NV_DOC_ROOT, "a >> b") && nv_errno() == NV_BAD_SELECTOR);
    MUST(strstr(nv_message(), "a >> b") && strstr(nv_message(), "character 7"));
    MUST(nv_doc_select_all(document, NV_DOC_ROOT, "", &nodes, &count) == NV_BAD_SELECTOR);
    MUST(nv_doc_select_all(document, 99999, "a", &nodes, &count) == NV_NOTHING && strstr(nv_message(), "99999"));
    MUST(!nv_doc_select(document, NV_DOC_ROOT, NULL) && nv_errno() == NV_BAD_NAME);
    MUST(nv_doc_kind(document, 0) == 0 && nv_errno() == NV_NOTHING);
    MUST(!nv_doc_open("other") && nv_errno() == NV_NO_SUCH_ROOT && !nv_doc_open(NULL) && nv_errno() == NV_BAD_NAME);
    MUST(nvmalloc("table", 8) && !nv_doc_open("table") && nv_errno() == NV_LAYOUT);
    MUST(nv_doc_parse("table", "x", 1, NULL) == NV_LAYOUT && nv_doc_parse("", "x", 1, NULL) == NV_BAD_NAME);
    MUST(nv_doc_parse_file("page", "/none/there", NULL) == NV_NO_FILE && strstr(nv_message(), "/none/there"));
    MUST(nv_doc_parse_file("file", file, NULL) == 0 && nv_doc_select(nv_doc_open("file"), NV_DOC_ROOT, "em"));

    /* What is no text takes the place of nothing. */
    nv_node link = nv_doc_select(document, NV_DOC_ROOT, "a");
    MUST(link && nv_doc_parse("page", NULL, 5, NULL) == NV_BAD_NAME && nv_doc_parse("page", "x", SIZE_MAX, NULL) == NV_BAD_NAME);
    MUST(nv_doc_set_text(document, link, NULL, 5) == NV_BAD_NAME && nv_doc_set_text(document, link, "x", SIZE_MAX) == NV_BAD_NAME);
    MUST(nv_doc_set_attribute(document, link, "href", NULL, 5) == NV_BAD_NAME && !nv_doc_create_text(document, NULL, 5));
    look(document);
    MUST(nv_doc_parse("empty", NULL, 0, NULL) == 0 && nv_doc_check(nv_doc_open("empty")) == 0);

    /* A page that is too deep or too long; the old one stays, and larger limits take it. */
    enum { DEEP = 3000 };
    static char deep[5 * DEEP + 1];
    for (int at = 0; at < DEEP; at++) memcpy(deep + 5 * at, "<div>", 5);
    MUST(nv_doc_parse("page", deep, sizeof deep - 1, NULL) == NV_DOC_LIMIT && strstr(nv_message(), "2048 levels"));
    look(document);
    nv_doc_limits limits = {.depth = 4000};
    MUST(nv_doc_parse("deep", deep, sizeof deep - 1, &limits) == 0);
    limits = (nv_doc_limits){.source_bytes = 10};
    MUST(nv_doc_parse("page", deep, 11, &limits) == NV_DOC_LIMIT && nv_doc_parse("short", deep, 10, &limits) == 0);
    limits = (nv_doc_limits){.all_attributes = 1};
    MUST(nv_doc_parse("page", "<p a><p b>", 10, &limits) == NV_DOC_LIMIT && nv_doc_parse("short", "<p a><p>", 8, &limits) == 0);
    limits = (nv_doc_limits){.names = 8};
    MUST(nv_doc_parse("page", "<a><b><i><p><q><s><u>", 21, &limits) == NV_DOC_LIMIT && nv_doc_parse("short", "<i><b>", 6, &limits) == 0);
    static char wide[200000] = "<p";
    memset(wide + 2, ' ', sizeof wide - 2);
    MUST(nv_doc_parse("page", wide, sizeof wide, NULL) == NV_DOC_LIMIT);
    limits = (nv_doc_limits){.token_parts = 1000000};
    MUST(nv_doc_parse("wide", wide, sizeof wide, &limits) == 0);

    /* A damaged one: a header that says something else, then links that lead nowhere. */
    unsigned char *bytes = nvread("deep", &count);
    document = nv_doc_open("deep");
    bytes[20] ^= 1;
    MUST(nv_doc_kind(document, NV_DOC_ROOT) == 0 && nv_errno() == NV_DOC_DAMAGED);
    MUST(!nv_doc_open("deep") && nv_errno() == NV_DOC_DAMAGED && strstr(nv_message(), "parse the page again"));
    bytes[20] ^= 1;
    MUST(nv_doc_check(document) == 0);
    memset(bytes + count / 2, 0xff, 64);
    MUST(nv_doc_check(document) == NV_DOC_DAMAGED);
    MUST(nv_doc_select_all(document, NV_DOC_ROOT, "div", &nodes, &count) == NV_DOC_DAMAGED);
    MUST(nv_doc_text(document, NV_DOC_ROOT, NULL, 0, NULL) == NV_DOC_DAMAGED);
    nv_node down = nv_doc_last_child(document, nv_doc_last_child(document, NV_DOC_ROOT));
    while (down) down = nv_doc_first_child(document, down);
    MUST(nv_errno() == NV_DOC_DAMAGED);
    MUST(nv_doc_parse("deep", "x", 1, NULL) == 0 && nv_doc_check(nv_doc_open("deep")) == 0);
}

/* Changes two places in one transaction, for ever; prints that it has begun. */
static void kill_me(void) {
    nv_document document = nv_doc_open("page");
    if (!document) document = parsed();
    nv_node links[2] = {nv_doc_select(document, NV_DOC_ROOT, "a"), nv_doc_select(document, NV_DOC_ROOT, "a + a")};
    char text[32];
    for (long round = 0;; round++) {
        int size = snprintf(text, sizeof text, "%ld", round);
        MUST(nv_tx_begin() == 0);
        for (int at = 0; at < 2; at++) {
            MUST(nv_doc_set_attribute(document, links[at], "round", text, (size_t)size) == 0);
            MUST(nv_doc_set_text(document, links[at], text, (size_t)size) == 0);
        }
        MUST(nv_tx_commit() == 0);
        if (round == 20) puts("changing"), fflush(stdout);
    }
}

static void after_the_kill(void) {
    nv_document document = nv_doc_open("page");
    nv_node links[2] = {nv_doc_select(document, NV_DOC_ROOT, "a"), nv_doc_select(document, NV_DOC_ROOT, "a + a")};
    MUST(nv_doc_check(document) == 0);
    size_t size, first_size;
    const char *first = nv_doc_attribute(document, links[0], "round", &first_size);
    MUST(first);
    for (int at = 0; at < 2; at++) {
        const char *value = nv_doc_attribute(document, links[at], "round", &size);
        MUST(size == first_size && !memcmp(value, first, size));
        value = nv_doc_data(document, nv_doc_first_child(document, links[at]), &size);
        MUST(size == first_size && !memcmp(value, first, size));
    }
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    if (!strcmp(command, "all")) all();
    else if (!strcmp(command, "changes")) changes();
    else if (!strcmp(command, "stale")) stale();
    else if (!strcmp(command, "compartments")) compartments();
    else if (!strcmp(command, "errors")) errors(getenv("PAGE"));
    else if (!strcmp(command, "kill-me")) kill_me();
    else if (!strcmp(command, "after-the-kill")) after_the_kill();
    else return 2;
    return 0;
}

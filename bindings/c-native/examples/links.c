/*
 * Keeps a page and prints where its links lead: parsed the first time, and from then on read where it lies.
 *
 *     holdfast.pc says how to build it: cc links.c -o links $(pkg-config --cflags --libs holdfast)
 *     ./links index.html
 *     ./links index.html visited         marks the links as visited, all of them or none
 */
#include <holdfast_document.h>

#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, nv_message());
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "links FILE [visited]\n"), 2;
    if (nv_open("pages", 1 << 30)) return failed("the heap");
    nv_document page = nv_doc_open(argv[1]);
    if (!page && nv_errno() == NV_NO_SUCH_ROOT) {
        if (nv_doc_parse_file(argv[1], argv[1], NULL)) return failed(argv[1]);
        printf("parsed\n");
        page = nv_doc_open(argv[1]);
    }
    if (!page) return failed(argv[1]);

    nv_node *links;
    size_t count, size, length;
    if (nv_doc_select_all(page, NV_DOC_ROOT, "a[href]", &links, &count)) return failed("the links");
    if (nv_tx_begin()) return failed("a transaction");
    for (size_t at = 0; at < count; at++) {
        char text[60];
        if (nv_doc_text(page, links[at], text, sizeof text, &length)) return failed("the text of a link");
        const char *target = nv_doc_attribute(page, links[at], "href", &size);
        printf("%s%s -> %.*s\n", text, length < sizeof text ? "" : "...", (int)size, target);
        if (argc > 2 && nv_doc_set_attribute(page, links[at], "class", "visited", strlen("visited")))
            return failed("the mark");
    }
    if (nv_tx_commit()) return failed("the commit");
    nv_doc_free(links);
    nv_node visited = nv_doc_select(page, NV_DOC_ROOT, "a.visited");
    printf("%zu links, %s\n", count, visited ? "visited" : "not visited");
    return nv_close() ? failed("closing") : 0;
}

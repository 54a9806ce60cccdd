/*
 * holdfast_document.h: HTML documents in the heap of holdfast.h, for native programs in C and C++.
 *
 * A page is parsed once, as the specification of HTML says. From then on it is used where it lies: opened in microseconds
 * whatever its size, walked, searched by CSS selectors, written as HTML again, and changed in transactions.
 *
 *     nv_open("pages", 1 << 30);
 *     nv_document page = nv_doc_open("start");
 *     if (!page && !nv_doc_parse_file("start", "index.html", NULL)) page = nv_doc_open("start");
 *     nv_node *links;
 *     size_t count, size;
 *     if (nv_doc_select_all(page, NV_DOC_ROOT, "a[href]", &links, &count)) return complain(nv_message());
 *     for (size_t at = 0; at < count; at++) {
 *         const char *target = nv_doc_attribute(page, links[at], "href", &size);
 *         printf("%.*s\n", (int)size, target);
 *     }
 *     nv_doc_free(links);
 *
 * Documents hold no pointers: a heap that holdfast page or Python has made for them is a portable one, which a program opens
 * after nv_portable(1).
 *
 * A document is a root of the heap, of the name that it was parsed under, beside whatever else the heap holds. What
 * holdfast.h says of heaps, errors, threads, forks and transactions holds here: these functions open the heap at their first use,
 * may be called from any thread, and fail with a code that nv_errno and a text that nv_message tells. (Applets have no
 * documents of their own; a host gives them what they need.)
 *
 * Errors: functions that return int return 0 or a nonzero nv_error. Those that return a node, a number or a pointer return 0 or
 * NULL when they fail, and also when there is nothing, such as a parent of the document or an attribute that an element does
 * not have: then nv_errno is NV_NOTHING. A damaged document makes nobody crash, hang or read elsewhere: an answer that may not be the
 * whole one is NV_DOC_DAMAGED. (A loop of the program's own, from sibling to sibling, may go round in one:
 * call nv_doc_check first if others can write to the heap.)
 *
 * Texts: what a function returns as pointer and size lies in the heap, is UTF-8, and does not end with NUL. It stays until the
 * document is changed, parsed again, compacted or removed, or the heap is closed: copy what is needed longer. What a function is
 * given as name or selector ends with NUL, and text has a size; NULL with a size other than 0 is NV_BAD_NAME. What goes
 * into a buffer of the caller's ends with NUL, is cut at a character when there is no room for all, and *length receives the
 * length of all without that NUL: a call with the size 0 asks for it, and is no error.
 *
 * Nodes are numbers, which stay as long as the document is not parsed again or compacted, from run to run.
 */
#ifndef HOLDFAST_DOCUMENT_H
#define HOLDFAST_DOCUMENT_H

#include <holdfast.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open document: a number, never 0. One that was closed, or that is of no use any more because the page was parsed again,
 * compacted or removed, or the heap was closed or rolled back, is NV_STALE wherever it is used. */
typedef uint64_t nv_document;

/* A node of a document: a number; 0 is none. */
typedef uint32_t nv_node;

/* The node that holds all others: the same number in every document. */
#define NV_DOC_ROOT ((nv_node)1)

/* What a node is. */
enum nv_node_kind {
    NV_NODE_DOCUMENT = 1,
    NV_NODE_DOCTYPE = 2,
    NV_NODE_ELEMENT = 3,
    NV_NODE_TEXT = 4,
    NV_NODE_COMMENT = 5,
    NV_NODE_INSTRUCTION = 6,
    NV_NODE_FRAGMENT = 7 /* what a template holds */
};

/* Namespaces of elements and attributes. */
enum nv_namespace {
    NV_NS_NONE = 0, /* most attributes */
    NV_NS_HTML = 1,
    NV_NS_MATHML = 2,
    NV_NS_SVG = 3,
    NV_NS_XLINK = 4,
    NV_NS_XML = 5,
    NV_NS_XMLNS = 6
};

/* How much of a page is taken; 0 in a field is what it says. More is NV_DOC_LIMIT, and what was there stays. */
typedef struct nv_doc_limits {
    uint64_t source_bytes; /* 64 MiB; at most 1 GiB */
    uint64_t nodes;        /* 4 million */
    uint64_t depth;        /* 2048 nodes below each other */
    uint64_t attributes;   /* 1023 of one element, which is the most */
    uint64_t text_bytes;   /* 128 MiB of text and values; at most 2 GiB */
    uint64_t all_attributes; /* 4 million of all elements and tags together */
    uint64_t names;          /* 16384 different names of elements and attributes; at most 50000 */
    uint64_t token_parts;    /* 100000 spaces, slashes and quotes within one tag or comment */
} nv_doc_limits;

/* An attribute, where it lies. */
typedef struct nv_doc_attribute_place {
    int name_space;      /* one of enum nv_namespace */
    const char *prefix;  /* NULL if there is none */
    size_t prefix_size;
    const char *name;    /* without prefix */
    size_t name_size;
    const char *value;
    size_t value_size;
} nv_doc_attribute_place;

/* Parses a page (UTF-8; what is none becomes U+FFFD) and keeps it under a name, in the place of the document that had it, when
 * it is complete: a kill meanwhile leaves what was there. Other threads may use the heap while a page is parsed. NULL for the
 * limits is those above. The name of something else is NV_LAYOUT; in a transaction a document is not replaced
 * (NV_IN_TRANSACTION), but a new one may be made. A file that cannot be read is NV_NO_FILE. */
int nv_doc_parse(const char *name, const void *html, size_t size, const nv_doc_limits *limits);
int nv_doc_parse_file(const char *name, const char *path, const nv_doc_limits *limits);

/* The names of the documents in the heap, sorted, each ended by NUL, and how many there are; into a buffer (see above). */
int nv_doc_names(char *buffer, size_t room, size_t *length, size_t *count);

/* Opens a document; costs the same whatever its size. 0 with NV_NO_SUCH_ROOT if there is none, NV_LAYOUT if the name is that of
 * something else, NV_DOC_DAMAGED, NV_BAD_FILE if a newer version wrote it. */
nv_document nv_doc_open(const char *name);

/* Forgets an open document; what is in the heap stays. */
int nv_doc_close(nv_document document);

/* Looks at every byte of a document that means something. */
int nv_doc_check(nv_document document);

/* Gives back what changes have left unused. Nodes get other numbers. Not in a transaction. */
int nv_doc_compact(const char *name);

/* Removes a document. Not in a transaction. */
int nv_doc_remove(const char *name);

/* The kind of a node. */
int nv_doc_kind(nv_document document, nv_node node);

/* From node to node. What a template holds is not its children but those of its contents. */
nv_node nv_doc_parent(nv_document document, nv_node node);
nv_node nv_doc_first_child(nv_document document, nv_node node);
nv_node nv_doc_last_child(nv_document document, nv_node node);
nv_node nv_doc_next_sibling(nv_document document, nv_node node);
nv_node nv_doc_previous_sibling(nv_document document, nv_node node);
nv_node nv_doc_template_contents(nv_document document, nv_node node);

/* An element's local name, in lower case if it is of HTML, and its namespace (enum nv_namespace). */
const char *nv_doc_name(nv_document document, nv_node node, size_t *size);
int nv_doc_namespace(nv_document document, nv_node node);

/* The value of an element's first attribute of this name, with its prefix if it has one: "xlink:href". */
const char *nv_doc_attribute(nv_document document, nv_node node, const char *name, size_t *size);

/* How many attributes a node has, and one of them, from 0, in the order of the source. */
int nv_doc_attribute_count(nv_document document, nv_node node, size_t *count);
int nv_doc_attribute_at(nv_document document, nv_node node, size_t index, nv_doc_attribute_place *place);

/* The text of a text, comment or processing instruction. */
const char *nv_doc_data(nv_document document, nv_node node, size_t *size);

/* Into a buffer (see above): all text in a node, without what templates hold; the node as HTML; what is in it as HTML. */
int nv_doc_text(nv_document document, nv_node node, char *buffer, size_t room, size_t *length);
int nv_doc_html(nv_document document, nv_node node, char *buffer, size_t room, size_t *length);
int nv_doc_inner_html(nv_document document, nv_node node, char *buffer, size_t room, size_t *length);

/* The first element below a node that matches a selector, in document order; the node itself or the nearest above it that
 * does. What is no selector is NV_BAD_SELECTOR: nv_message says why, and at which character. */
nv_node nv_doc_select(nv_document document, nv_node scope, const char *selector);
nv_node nv_doc_closest(nv_document document, nv_node node, const char *selector);

/* All elements below a node that match: an array that nv_doc_free frees, NULL if there are none, and how many there are. */
int nv_doc_select_all(nv_document document, nv_node scope, const char *selector, nv_node **nodes, size_t *count);
void nv_doc_free(nv_node *nodes);

/* Changes. Each is a transaction of its own, or belongs to the one that is open (nv_tx_begin): then all of them count at its
 * commit, or none. What no tree can be is NV_BAD_CHANGE, changes nothing, and the transaction goes on. What is removed takes room until
 * nv_doc_compact. A node that was made is nowhere until it is put somewhere. */
int nv_doc_set_attribute(nv_document document, nv_node node, const char *name, const char *value, size_t size);
int nv_doc_remove_attribute(nv_document document, nv_node node, const char *name); /* NV_NOTHING: it had none */

/* Gives a text or comment other text, or puts a text in the place of all that an element holds. */
int nv_doc_set_text(nv_document document, nv_node node, const char *text, size_t size);

nv_node nv_doc_create_element(nv_document document, int name_space, const char *name);
nv_node nv_doc_create_text(nv_document document, const char *text, size_t size);
nv_node nv_doc_create_comment(nv_document document, const char *text, size_t size);

/* Puts a node, with what is in it, behind all children of another, or before a sibling; takes it from where it was. */
int nv_doc_append(nv_document document, nv_node parent, nv_node child);
int nv_doc_insert_before(nv_document document, nv_node sibling, nv_node child);

/* Takes a node, with what is in it, out of the tree. It can be put elsewhere. */
int nv_doc_detach(nv_document document, nv_node node);

#ifdef __cplusplus
}
#endif

#endif

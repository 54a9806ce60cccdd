/*
 * A list of plain pointers, whose types are described, in two heaps with one address: ARGV says what to do. Prints what went
 * wrong and ends with its nv_error, or with 97.
 */
#include <holdfast_types.h>

#include <stdio.h>
#include <string.h>

struct node {
    struct node *next, *prev;
    char *text;
    uint64_t key;
};
struct list {
    struct node *first, *last;
    struct node *spare; /* several in a row */
    uint64_t spares;
};
NV_TYPE(node, (link, next, node), (link, prev, node), (bytes, text));
NV_TYPE(list, (link, first, node), (link, last, node), (run, spare, node));

#define NODES 1000

static int failed(void) {
    printf("%s\n", nv_message());
    return nv_errno();
}

static int build(nv_heap *heap) {
    struct list *list = nv_malloc_typed_in(heap, "list", sizeof *list, nv_type_layout(list));
    if (!list) return failed();
    for (uint64_t key = 0; key < NODES; key++) {
        struct node *node = nv_malloc_in(heap, NULL, sizeof *node);
        if (!node || !(node->text = nv_malloc_in(heap, NULL, 16))) return failed();
        snprintf(node->text, 16, "%llu", (unsigned long long)key);
        node->key = key;
        node->prev = list->last;
        if (list->last) list->last->next = node;
        else list->first = node;
        list->last = node;
    }
    list->spare = nv_malloc_in(heap, NULL, 3 * sizeof *list->spare);
    if (!list->spare) return failed();
    list->spares = 3;
    list->spare[2].next = list->last;
    return 0;
}

/* Whether a pointer is one into the heap that begins at base. */
static int is_in(const void *base, const void *pointer) {
    return (uintptr_t)pointer - (uintptr_t)base < 64u << 20;
}

static int verify(nv_heap *heap) {
    const void *base = nv_base_in(heap);
    struct list *list = nv_read_typed_in(heap, "list", nv_type_layout(list), NULL);
    if (!list) return failed();
    uint64_t key = 0;
    const struct node *before = NULL;
    for (const struct node *node = list->first; node; before = node, node = node->next, key++) {
        char text[16];
        snprintf(text, sizeof text, "%llu", (unsigned long long)key);
        if (!is_in(base, node) || !is_in(base, node->text) || node->prev != before || strcmp(text, node->text)) {
            printf("node %llu is not what it was\n", (unsigned long long)key);
            return 97;
        }
    }
    if (key != NODES || list->last != before || !is_in(base, list->spare) || list->spare[2].next != list->last) {
        printf("the list is not what it was\n");
        return 97;
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "unregistered") && nv_register_type(NV_TYPE_OF(list))) return failed();
    nv_heap *first = nv_heap_open("first");
    if (!first) return failed();
    if (!strcmp(command, "build")) return build(first);
    if (!strcmp(command, "untyped")) return nv_malloc_in(first, "untyped", 8) ? 0 : failed();
    /* A copy of the first one, so of the same address. */
    nv_heap *second = nv_heap_open("second");
    if (!second) return failed();
    if (nv_base_in(first) == nv_base_in(second)) return 97;
    return verify(first) ? 97 : verify(second);
}

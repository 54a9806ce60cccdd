/*
 * holdfast_types.h: where the pointers of types are, in C11 (GCC or Clang), so that a heap of a native program can be moved
 * when its address is taken, such as by a copy of it in the same process.
 *
 *     struct node { struct node *next, *prev; char *text; uint64_t key; };
 *     NV_TYPE(node, (link, next, node), (link, prev, node), (bytes, text));
 *
 *     nv_register_type(NV_TYPE_OF(node));      // before the heap is opened
 *     struct node *first = nvmalloc_typed("first", sizeof *first, nv_type_layout(node));
 *
 * A heap moves if each of its roots carries the layout of a registered type, and if each object is reached by the pointers
 * of these; otherwise opening it is NV_MEMORY_SHAPE or NV_NOT_A_HEAP, as ever, and nv_message says what stands in the way.
 * Portable heaps (holdfast_portable.h) need none of this. In an applet it does nothing: its heap lies at one place.
 */
#ifndef HOLDFAST_TYPES_H
#define HOLDFAST_TYPES_H

#include <holdfast_portable.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What NV_TYPE says of a type. */
struct nv_type_;
struct nv_link_ {
    const char *name;
    const struct nv_type_ *to;
    uint64_t offset;
    uint32_t kind, size; /* of the pointer */
};
struct nv_type_ {
    const char *name;
    const struct nv_link_ *links;
    uint64_t size, align, count;
};

/* Makes a type known, and those that its pointers lead to, for the heaps that are opened from now on. NV_LAYOUT for what
 * NV_TYPE did not make. */
int nv_register_type(const struct nv_type_ *type);

#ifdef __cplusplus
}
#else

/* Describes `struct name`: every pointer in it, as
 *     (link, FIELD, TARGET)     to one struct TARGET, or NULL
 *     (run, FIELD, TARGET)      to several that follow each other; behind the pointer lies how many, as a uint64_t
 *     (bytes, FIELD)            to an object that holds no pointers, such as a text
 * TARGET is described by NV_TYPE, too, and announced by NV_TYPE_LATER(TARGET) where that comes further down. A pointer that is
 * not named stays as it was when a heap moves. NV_PLAIN_TYPE(name) describes one without pointers. At most 32 pointers. */
#define NV_TYPE_LATER(name) static const struct nv_type_ nv_type_of_##name
#define NV_TYPE(name, ...)                                                                                             \
    NV_TYPE_LATER(name);                                                                                               \
    static const struct nv_link_ nv_links_of_##name[] = {NV_EACH_(NV_LINK_, name, __VA_ARGS__)};                       \
    static const struct nv_type_ nv_type_of_##name = {                                                                 \
        #name, nv_links_of_##name, sizeof(struct name), _Alignof(struct name),                                         \
        sizeof nv_links_of_##name / sizeof nv_links_of_##name[0]}
#define NV_PLAIN_TYPE(name)                                                                                            \
    static const struct nv_type_ nv_type_of_##name = {#name, NULL, sizeof(struct name), _Alignof(struct name), 0}

/* The type for nv_register_type, and its number for roots (nvmalloc_typed, nvread_typed). */
#define NV_TYPE_OF(name) (&nv_type_of_##name)
#define nv_type_layout(name) nv_type_hash_(&nv_type_of_##name, 3)

#define NV_LINK_(name, tuple) NV_WITH_(NV_LINK_X_, name, NV_BARE_ tuple)
#define NV_LINK_X_(name, kind, field, ...) {#field, NV_LINK_##kind##_(name, field, __VA_ARGS__)},
#define NV_LINK_link_(name, field, target, ...)                                                                        \
    NV_TARGET_(NV_FIELD_OF_(name, field), target), offsetof(struct name, field), 0, sizeof NV_FIELD_OF_(name, field)
#define NV_LINK_run_(name, field, target, ...)                                                                         \
    NV_TARGET_(NV_FIELD_OF_(name, field), target), offsetof(struct name, field), 1, sizeof NV_FIELD_OF_(name, field)
#define NV_LINK_bytes_(name, field, ...)                                                                               \
    NULL, offsetof(struct name, field), 2,                                                                             \
        sizeof NV_FIELD_OF_(name, field) + 0 * sizeof(char[NV_IS_POINTER_(NV_FIELD_OF_(name, field)) ? 1 : -1])
/* An array becomes another type where it is used. Class 5 are pointers. */
#define NV_IS_POINTER_(field)                                                                                          \
    (__builtin_classify_type(field) == 5 &&                                                                            \
     __builtin_types_compatible_p(__typeof__(field), __typeof__(1 ? (field) : (field))))
#define NV_TARGET_(field, target) _Generic((field), struct target *: &nv_type_of_##target)

/* nv_register_type computes the same. */
static inline uint64_t nv_type_hash_(const struct nv_type_ *type, unsigned depth) {
    uint64_t hash = nv_hash_start_("c", type->size, type->align);
    hash = nv_hash_field_(hash, type->name, type->count, 0);
    for (uint64_t at = 0; at < type->count; at++) {
        const struct nv_link_ *link = &type->links[at];
        uint64_t target = link->to && depth > 0 ? nv_type_hash_(link->to, depth - 1) : 0;
        hash = nv_hash_field_(hash, link->name, link->offset * 4 + link->kind, target);
    }
    return hash ? hash : 1;
}

#endif
#endif

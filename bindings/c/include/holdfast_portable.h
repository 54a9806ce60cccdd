/*
 * holdfast_portable.h: data that programs of every kind share, in C11 (GCC or Clang; C++ has its own in holdfast.hpp).
 *
 * A portable heap (nv_portable of holdfast.h) holds references in the place of pointers, and types that lie in memory the
 * same way in a native program and in WebAssembly:
 *
 *     struct node;
 *     typedef NV_REF(struct node) node_ref;        // 4 bytes
 *     struct node {
 *         node_ref next;
 *         uint32_t flags;
 *         uint64_t key;
 *     };
 *     NV_PORTABLE(node, 1, (ref, next, node), (value, flags), (value, key));
 *
 *     nv_portable(1);                              // before the heap is opened
 *     struct node *first = nvread_typed("first", nv_layout(node), NULL);
 *     if (!first) first = nvmalloc_typed("first", sizeof *first, nv_layout(node));
 *     void *base = nv_base();
 *     for (struct node *n = first; n; n = nv_at(base, n->next)) sum += n->key;
 *
 * NV_PORTABLE describes every field, in order, and does not compile if one is missing, if it is a pointer or another type
 * that has no explicit width (a long compiles where it is int64_t, and not for WebAssembly), or if there are bytes between the
 * fields or behind them that have no name. The
 * number nv_layout is the same in Rust (portable!), C++ (HOLDFAST_PORTABLE) and Python (holdfast.Portable) for the same
 * version and fields; a root of another number is NV_LAYOUT.
 */
#ifndef HOLDFAST_PORTABLE_H
#define HOLDFAST_PORTABLE_H

#include <holdfast.h>

#ifndef __cplusplus

/* A reference to a value of this type, or to the first of several, or to nothing. Each use of the macro is a type of its
 * own, so name it by a typedef. All zeroes is the reference to nothing. */
#define NV_REF(type)                                                                                                   \
    union __attribute__((packed, aligned(4))) {                                                                        \
        uint32_t units;                                                                                                \
        __extension__ type *to_[0];                                                                                    \
    }

/* Where a reference leads in the heap that begins at base, as a pointer of its type; NULL where it leads nowhere. A
 * reference is as good as the bytes that it was read from. */
#define nv_at(base, ref) ((__typeof__((ref).to_[0]))nv_pointer_at_((base), (ref).units))

/* Stores a reference to what pointer leads to (NULL: to nothing), which has the reference's type, or is a void *. The pointer
 * must lead into that heap. One that is not aligned to 8, as every object is, or lies further than references reach stops the
 * program; one into another heap that lies within 32 GiB behind this one is not noticed. Announce the place of the reference
 * with nv_tx_add before, as that of any change. */
#define nv_refer(base, ref, pointer)                                                                                   \
    ((void)sizeof(char[NV_LEADS_TO_(pointer, (ref).to_[0]) ? 1 : -1]),                                                 \
     (void)((ref).units = nv_units_of_((base), (pointer))))
#define NV_LEADS_TO_(pointer, target)                                                                                  \
    (__builtin_types_compatible_p(__typeof__(pointer), __typeof__(target)) ||                                          \
     __builtin_types_compatible_p(__typeof__(pointer), const __typeof__(*(target)) *) ||                               \
     __builtin_types_compatible_p(__typeof__(pointer), void *))

static inline void *nv_pointer_at_(void *base, uint32_t units) {
    return units ? (char *)base + (size_t)units * 8 : NULL;
}

static inline uint32_t nv_units_of_(const void *base, const void *pointer) {
    if (!pointer) return 0;
    uint64_t offset = (uint64_t)((uintptr_t)pointer - (uintptr_t)base);
    if (offset % 8 != 0 || offset >> 35 != 0 || offset == 0) __builtin_trap();
    return (uint32_t)(offset / 8);
}

/* What NV_PORTABLE says of a type. */
struct nv_layout_;
struct nv_field_ {
    const char *name;
    const char *kind;             /* of a value */
    const struct nv_layout_ *of;  /* of a struct, or of what a reference leads to */
    uint32_t offset, size, align; /* size of one element */
    uint32_t length;              /* of an array; 0: none */
};
struct nv_layout_ {
    uint32_t size, align, version, count;
    const struct nv_field_ *fields;
};

/* The number of a type that was described. */
#define nv_layout(name) nv_shape_(&nv_layout_of_##name, 3)

/* Describes `struct name`: its version, to be raised when its meaning changes, and its fields in their order. A field is
 *     (value, FIELD)             an integer of explicit width, a float or a double      (values, FIELD)    an array of them
 *     (ref, FIELD, TARGET)       a reference to a struct TARGET                         (refs, FIELD, TARGET)
 *     (object, FIELD, INNER)     a struct INNER                                         (objects, FIELD, INNER)
 * TARGET and INNER are described by NV_PORTABLE, too; a TARGET that is described further down is announced by
 * NV_PORTABLE_LATER(TARGET); the type itself need not be. At most 32 fields. */
#define NV_PORTABLE_LATER(name) static const struct nv_layout_ nv_layout_of_##name
#define NV_PORTABLE(name, version, ...)                                                                                \
    NV_PORTABLE_LATER(name);                                                                                           \
    struct nv_bytes_of_##name {                                                                                        \
        NV_EACH_(NV_MEMBER_, name, __VA_ARGS__)                                                                        \
    };                                                                                                                 \
    _Static_assert(sizeof(struct nv_bytes_of_##name) == sizeof(struct name),                                           \
                   "struct " #name ": describe every field, and give the bytes between and behind them a name");       \
    NV_EACH_(NV_IN_PLACE_, name, __VA_ARGS__)                                                                          \
    static const struct nv_field_ nv_fields_of_##name[] = {NV_EACH_(NV_ENTRY_, name, __VA_ARGS__)};                    \
    static const struct nv_layout_ nv_layout_of_##name = {                                                             \
        sizeof(struct name), _Alignof(struct name), version,                                                           \
        sizeof nv_fields_of_##name / sizeof nv_fields_of_##name[0], nv_fields_of_##name}

_Static_assert(_Alignof(uint64_t) == 8 && _Alignof(double) == 8 && _Alignof(uint32_t) == 4,
               "portable types need a target that aligns integers to their size");

/* Only these types are values: a pointer, a bool or a long long has no entry here and does not compile. */
#define NV_KIND_(value)                                                                                                \
    _Generic((value), char: "u8", uint8_t: "u8", int8_t: "i8", uint16_t: "u16", int16_t: "i16", uint32_t: "u32",       \
             int32_t: "i32", uint64_t: "u64", int64_t: "i64", float: "f32", double: "f64")

#define NV_FIELD_OF_(name, field) (((struct name *)0)->field)
#define NV_MEMBER_(name, tuple) NV_WITH_(NV_MEMBER_X_, name, NV_BARE_ tuple)
#define NV_MEMBER_X_(name, kind, field, ...) unsigned char field[sizeof NV_FIELD_OF_(name, field)];
#define NV_IN_PLACE_(name, tuple) NV_WITH_(NV_IN_PLACE_X_, name, NV_BARE_ tuple)
#define NV_IN_PLACE_X_(name, kind, field, ...)                                                                         \
    _Static_assert(offsetof(struct nv_bytes_of_##name, field) == offsetof(struct name, field),                         \
                   "struct " #name ": describe the fields in their order, up to " #field);
#define NV_ENTRY_(name, tuple) NV_WITH_(NV_ENTRY_X_, name, NV_BARE_ tuple)
#define NV_ENTRY_X_(name, kind, field, ...) {#field, NV_ENTRY_##kind##_(name, field, __VA_ARGS__)},
#define NV_ENTRY_value_(name, field, ...)                                                                              \
    NV_KIND_(NV_FIELD_OF_(name, field)), NULL, NV_PLACE_(name, field, NV_FIELD_OF_(name, field)), 0
#define NV_ENTRY_values_(name, field, ...)                                                                             \
    NV_KIND_(NV_FIELD_OF_(name, field)[0]), NULL, NV_PLACE_(name, field, NV_FIELD_OF_(name, field)[0]),                \
        NV_LENGTH_(name, field)
#define NV_ENTRY_ref_(name, field, target, ...)                                                                        \
    NV_REF_KIND_(NV_FIELD_OF_(name, field), target), &nv_layout_of_##target,                                           \
        NV_PLACE_(name, field, NV_FIELD_OF_(name, field)), 0
#define NV_ENTRY_refs_(name, field, target, ...)                                                                       \
    NV_REF_KIND_(NV_FIELD_OF_(name, field)[0], target), &nv_layout_of_##target,                                        \
        NV_PLACE_(name, field, NV_FIELD_OF_(name, field)[0]), NV_LENGTH_(name, field)
#define NV_ENTRY_object_(name, field, inner, ...)                                                                      \
    NULL, NV_INNER_(NV_FIELD_OF_(name, field), inner), NV_PLACE_(name, field, NV_FIELD_OF_(name, field)), 0
#define NV_ENTRY_objects_(name, field, inner, ...)                                                                     \
    NULL, NV_INNER_(NV_FIELD_OF_(name, field)[0], inner), NV_PLACE_(name, field, NV_FIELD_OF_(name, field)[0]),        \
        NV_LENGTH_(name, field)
/* A struct itself: a pointer to one, or an array of them, does not compile. */
#define NV_INNER_(element, inner) _Generic(&(element), struct inner *: &nv_layout_of_##inner)
#define NV_REF_KIND_(ref, target) _Generic((ref).to_[0], struct target *: "ref")
#define NV_PLACE_(name, field, element)                                                                                \
    offsetof(struct name, field), sizeof(element), _Alignof(__typeof__(element))
/* A pointer is no array, though it has elements, too. */
#define NV_LENGTH_(name, field)                                                                                        \
    (sizeof NV_FIELD_OF_(name, field) / sizeof NV_FIELD_OF_(name, field)[0] +                                          \
     0 * sizeof(char[1 - 2 * __builtin_types_compatible_p(__typeof__(NV_FIELD_OF_(name, field)),                       \
                                                          __typeof__(&NV_FIELD_OF_(name, field)[0]))]))

#define NV_BARE_(...) __VA_ARGS__
#define NV_WITH_(macro, name, ...) macro(name, __VA_ARGS__, 0)
#define NV_EACH_(macro, name, ...)                                                                                     \
    NV_CHOOSE_(__VA_ARGS__, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11,    \
               10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)                                                                       \
    (macro, name, __VA_ARGS__)
#define NV_CHOOSE_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae,   \
                   af, count, ...)                                                                                     \
    NV_EACH_##count##_
#define NV_EACH_1_(macro, name, tuple) macro(name, tuple)
#define NV_EACH_2_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_1_(macro, name, __VA_ARGS__)
#define NV_EACH_3_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_2_(macro, name, __VA_ARGS__)
#define NV_EACH_4_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_3_(macro, name, __VA_ARGS__)
#define NV_EACH_5_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_4_(macro, name, __VA_ARGS__)
#define NV_EACH_6_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_5_(macro, name, __VA_ARGS__)
#define NV_EACH_7_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_6_(macro, name, __VA_ARGS__)
#define NV_EACH_8_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_7_(macro, name, __VA_ARGS__)
#define NV_EACH_9_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_8_(macro, name, __VA_ARGS__)
#define NV_EACH_10_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_9_(macro, name, __VA_ARGS__)
#define NV_EACH_11_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_10_(macro, name, __VA_ARGS__)
#define NV_EACH_12_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_11_(macro, name, __VA_ARGS__)
#define NV_EACH_13_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_12_(macro, name, __VA_ARGS__)
#define NV_EACH_14_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_13_(macro, name, __VA_ARGS__)
#define NV_EACH_15_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_14_(macro, name, __VA_ARGS__)
#define NV_EACH_16_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_15_(macro, name, __VA_ARGS__)
#define NV_EACH_17_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_16_(macro, name, __VA_ARGS__)
#define NV_EACH_18_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_17_(macro, name, __VA_ARGS__)
#define NV_EACH_19_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_18_(macro, name, __VA_ARGS__)
#define NV_EACH_20_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_19_(macro, name, __VA_ARGS__)
#define NV_EACH_21_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_20_(macro, name, __VA_ARGS__)
#define NV_EACH_22_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_21_(macro, name, __VA_ARGS__)
#define NV_EACH_23_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_22_(macro, name, __VA_ARGS__)
#define NV_EACH_24_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_23_(macro, name, __VA_ARGS__)
#define NV_EACH_25_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_24_(macro, name, __VA_ARGS__)
#define NV_EACH_26_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_25_(macro, name, __VA_ARGS__)
#define NV_EACH_27_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_26_(macro, name, __VA_ARGS__)
#define NV_EACH_28_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_27_(macro, name, __VA_ARGS__)
#define NV_EACH_29_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_28_(macro, name, __VA_ARGS__)
#define NV_EACH_30_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_29_(macro, name, __VA_ARGS__)
#define NV_EACH_31_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_30_(macro, name, __VA_ARGS__)
#define NV_EACH_32_(macro, name, tuple, ...) macro(name, tuple) NV_EACH_31_(macro, name, __VA_ARGS__)

/* FNV-1a, 64 bits, over what docs/format.md says. */
static inline uint64_t nv_hash_text_(uint64_t hash, const char *text) {
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    return hash;
}

static inline uint64_t nv_hash_word_(uint64_t hash, uint64_t word) {
    for (int byte = 0; byte < 8; byte++) hash = (hash ^ (word >> (8 * byte) & 0xff)) * 0x100000001b3;
    return hash;
}

static inline uint64_t nv_hash_start_(const char *kind, uint64_t size, uint64_t align) {
    return nv_hash_word_(nv_hash_word_(nv_hash_text_(0xcbf29ce484222325, kind), size), align);
}

static inline uint64_t nv_hash_field_(uint64_t hash, const char *name, uint64_t offset, uint64_t layout) {
    uint64_t length = 0;
    while (name[length]) length++;
    hash = nv_hash_word_(nv_hash_text_(hash, name), length);
    return nv_hash_word_(nv_hash_word_(hash, offset), layout);
}

/* The number of a type with what references lead to, so many of them deep. */
static inline uint64_t nv_shape_(const struct nv_layout_ *type, unsigned depth) {
    uint64_t hash = nv_hash_word_(nv_hash_start_("portable", type->size, type->align), type->version);
    for (uint32_t at = 0; at < type->count; at++) {
        const struct nv_field_ *field = &type->fields[at];
        uint64_t layout = field->kind ? nv_hash_start_(field->kind, field->size, field->align) : nv_shape_(field->of, depth);
        if (field->kind && field->of && depth > 0)
            layout = nv_hash_field_(layout, "to", 0, nv_shape_(field->of, depth - 1));
        if (field->length)
            layout = nv_hash_field_(nv_hash_start_("array", (uint64_t)field->size * field->length, field->align), "",
                                    field->length, layout);
        hash = nv_hash_field_(hash, field->name, field->offset, layout);
    }
    return hash;
}

#endif
#endif

/*
 * holdfast.hpp: standard containers in persistent memory (C++17). It needs holdfast.h and nothing else.
 *
 *     template <class T> using vector = std::vector<T, holdfast::allocator<T>>;
 *
 *     auto &scores = holdfast::root<vector<int>>("scores");    // made at the first run, found at every other
 *     scores.push_back(7);
 *
 * A native heap lies at the same address in every run, so containers with plain pointers just work. What must not
 * be kept in a heap: virtual functions, function pointers, pointers to anything outside of the heap (the program's
 * code and statics lie elsewhere in every run), std::string and other containers with the standard allocator.
 * The program that opens the heap must have been compiled with the same standard library ABI and the same types:
 * the size of a root is checked, and with typed_root its layout; its meaning cannot be.
 *
 * What a crash leaves, honestly: a standard container knows nothing of transactions. A program that is killed
 * *between* two operations on a container finds everything as it was. One that is killed *inside* an operation
 * (a push_back that moves, a rehash, the rebalancing of a map) can find that container torn, and the allocator
 * cannot help it; a transaction around the operation rolls back what was allocated and freed, but not what the
 * container stored to memory that was there before, unless transaction::add announced it. For such programs there is
 * the mode `atomic` (open_atomic): nothing counts before commit(), and then all of it together, so a kill at any
 * instruction leaves every container as of the last commit, and rollback() goes back to it at will. It costs a copy of
 * each page that is stored to. In the mode `direct`, keep what must never tear in structures of your own, under
 * transactions.
 *
 * Containers may be used from several threads as usual (not the same one at once), and so may root. A transaction is
 * the process's (see holdfast.h): what other threads allocate and free while it is open belongs to it, and is undone
 * with it. A program whose threads use the heap needs a lock of its own around each.
 */
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include <holdfast.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace holdfast {

/* A call of holdfast.h that failed: its code, and the whole story in what(). */
class error : public std::runtime_error {
public:
    error() : std::runtime_error(nv_message()), code_(nv_errno()) {}
    error(int code, const char *what) : std::runtime_error(what), code_(code) {}
    int code() const noexcept { return code_; }

private:
    int code_;
};

inline void check(int status) {
    if (status != NV_OK) throw error();
}

/* Opens the heap of this name; see nv_open. */
inline void open(const char *name, std::uint64_t limit_bytes = 0) { check(nv_open(name, limit_bytes)); }

/* The same in the mode `atomic`; see nv_open_atomic. */
inline void open_atomic(const char *name, std::uint64_t limit_bytes = 0) {
    check(nv_open_atomic(name, limit_bytes));
}

/* Makes everything stored so far durable at a level and, in the mode `atomic`, count; see nv_commit. */
inline void commit(int level = NV_PROCESS) { check(nv_commit(level)); }

/* Brings a value of the heap, or several in a row, from the processor's caches to memory that survives a reset; see
 * nv_persist. */
template <class T>
inline void persist(const T *first, std::size_t count = 1) {
    static_assert(!std::is_void_v<T>, "the size of what is persisted must be known");
    check(nv_persist(first, count * sizeof(T)));
}

/* In the mode `atomic`: everything is as of the last commit; see nv_rollback. References to roots that were made
 * since, iterators, and pointers to elements that came since, are invalid. */
inline void rollback() { check(nv_rollback()); }

/* See nv_close. */
inline void close() { check(nv_close()); }

/* A compartment that the calling thread enters, and leaves at the end of the scope; see nv_compartment_enter. What this
 * thread allocates without a handle meanwhile, by allocator<T>, root and transaction too, is in the compartment: a
 * container belongs into the one where it was made. */
class compartment {
public:
    /* The one of this name; without a name the first that no thread has. Throws error. */
    explicit compartment(const char *name = nullptr) { check(nv_compartment_enter(name)); }
    compartment(const compartment &) = delete;
    compartment &operator=(const compartment &) = delete;
    ~compartment() { nv_compartment_leave(); }
};

/* Names a heap as a type, for allocator: a handle would be of no use in the next run, and a container keeps nothing else.
 *     inline constexpr char notes_name[] = "notes";
 *     using notes = holdfast::named_heap<notes_name>;
 *     using names = std::vector<int, holdfast::allocator<int, notes>>; */
template <const char *Name> class named_heap {
public:
    /* The handle of nv_heap_open, which opens the heap where it is not open. It is kept, and asked for again by name in each
     * session (nv_session): a heap that is closed with nv_close and opened with nv_open has another handle then. Between the
     * two it stays closed, and what is asked of it fails with NV_NOT_GRANTED. In a session of another heap it is opened beside
     * that one, and nv_open refuses it until nv_heap_close. One that nv_heap_close has closed is to stay so.
     * Throws error when it was never opened and cannot be. */
    static nv_heap *handle() {
        /* A thread that has not asked begins with what another one got, so that it opens nothing after nv_close. */
        static std::atomic<nv_heap *> latest{nullptr};
        /* Each thread's own: the two belong together, and a thread in a compartment has a session of its own. */
        thread_local nv_heap *heap = nullptr;
        thread_local std::uint64_t asked_in = 0;
        const std::uint64_t session = nv_session();
        if (!heap) heap = latest.load(std::memory_order_relaxed);
        if (!heap || (session != 0 && session != asked_in)) {
            nv_heap *found = nv_heap_open(Name);
            asked_in = session;
            if (found) {
                heap = found;
                latest.store(found, std::memory_order_relaxed);
            } else if (!heap) {
                throw error();
            }
        }
        return heap;
    }
};

/* Allocates from the open heap, or from the one that Heap names (named_heap). Stateless: all are equal, and a container's
 * size does not change by it. A container, and what it holds, belongs into the heap that its allocator names. */
template <class T, class Heap = void> struct allocator {
    static_assert(alignof(T) <= 2 << 20, "objects in the heap are aligned to 2 MiB at most");

    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    allocator() noexcept = default;
    template <class U> allocator(const allocator<U, Heap> &) noexcept {}
    template <class U> struct rebind { using other = allocator<U, Heap>; };

    [[nodiscard]] T *allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
        void *object = allocate_bytes(count * sizeof(T));
        if (!object) throw std::bad_alloc();
        return static_cast<T *>(object);
    }

    /* Inside a transaction the memory is free when that commits. */
    void deallocate(T *object, std::size_t) noexcept {
        if constexpr (std::is_void_v<Heap>) {
            nvfree(object);
        } else {
            nv_free_in(Heap::handle(), object);
        }
    }

    template <class U> bool operator==(const allocator<U, Heap> &) const noexcept { return true; }
    template <class U> bool operator!=(const allocator<U, Heap> &) const noexcept { return false; }

private:
    static void *allocate_bytes(std::size_t size) {
        if constexpr (std::is_void_v<Heap>) {
            return alignof(T) <= 16 ? nvmalloc(nullptr, size) : nvaligned_alloc(alignof(T), size);
        } else {
            nv_heap *heap = Heap::handle();
            return alignof(T) <= 16 ? nv_malloc_in(heap, nullptr, size) : nv_aligned_alloc_in(heap, alignof(T), size);
        }
    }
};

/* A string whose characters are in the heap, and its hash for unordered containers. */
using string = std::basic_string<char, std::char_traits<char>, allocator<char>>;

struct string_hash {
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
};

/* A transaction, rolled back at the end of its scope unless it was committed. It belongs to the heap that was open when
 * it began, or to that of the handle: when that is closed, it is over, and the object leaves every other heap alone.
 * While it is open, this thread is refused one in another heap (error with the code NV_OTHER_HEAP). */
class transaction {
public:
    transaction() {
        check(nv_tx_begin());
        session_ = nv_session();
    }
    explicit transaction(nv_heap *heap) : heap_(heap) { check(nv_tx_begin_in(heap)); }
    transaction(const transaction &) = delete;
    transaction &operator=(const transaction &) = delete;
    ~transaction() {
        if (!open_) return;
        if (heap_) {
            nv_tx_abort_in(heap_);
        } else if (nv_session() == session_) {
            nv_tx_abort();
        }
    }

    /* Announces bytes that are about to change. */
    void add(const void *start, std::size_t size) {
        check_session();
        check(heap_ ? nv_tx_add_in(heap_, start, size) : nv_tx_add(start, size));
    }
    template <class T> void add(const T &object) { add(&object, sizeof(T)); }

    /* Everything since the beginning counts. */
    void commit() {
        open_ = false;
        check_session();
        check(heap_ ? nv_tx_commit_in(heap_) : nv_tx_commit());
    }

private:
    void check_session() const {
        if (!heap_ && nv_session() != session_)
            throw error(NV_NO_TRANSACTION, "the heap of this transaction was closed, which rolled it back; begin another");
    }

    bool open_ = true;
    nv_heap *heap_ = nullptr;
    std::uint64_t session_ = 0;
};

namespace detail {

/* An object that nobody can find yet; freed unless it was published. */
class unpublished {
public:
    unpublished(nv_heap *heap, std::size_t align, std::size_t size)
        : heap_(heap), object_(heap ? nv_aligned_alloc_in(heap, align, size) : nvaligned_alloc(align, size)) {
        if (!object_) throw error();
    }
    unpublished(const unpublished &) = delete;
    unpublished &operator=(const unpublished &) = delete;
    ~unpublished() {
        if (object_ && heap_) {
            nv_free_in(heap_, object_);
        } else if (object_) {
            nvfree(object_);
        }
    }
    void *get() const noexcept { return object_; }
    void published() noexcept { object_ = nullptr; }

private:
    nv_heap *heap_;
    void *object_;
};

template <class T> T *found(nv_heap *heap, const char *name, std::uint64_t layout) {
    std::size_t size = 0;
    void *root = heap ? nv_read_typed_in(heap, name, layout, &size) : nvread_typed(name, layout, &size);
    if (!root && nv_errno() != NV_NO_SUCH_ROOT) throw error();
    if (root && size != sizeof(T)) throw error(NV_TOO_SMALL, "the root of that name has another size, so another type");
    return static_cast<T *>(root);
}

template <class T, class... Arguments>
T &root(nv_heap *heap, const char *name, std::uint64_t layout, Arguments &&...arguments) {
    static_assert(alignof(T) <= 2 << 20, "objects in the heap are aligned to 2 MiB at most");
    static_assert(!std::is_polymorphic_v<T>, "a virtual function lies elsewhere in every run");
    if (T *there = found<T>(heap, name, layout)) return *there;
    unpublished making(heap, alignof(T), sizeof(T));
    T *object = ::new (making.get()) T(std::forward<Arguments>(arguments)...);
    int named = heap ? nv_name_in(heap, name, object, sizeof(T), layout) : nvname(name, object, sizeof(T), layout);
    if (named != NV_OK) {
        error failed;
        if constexpr (std::is_destructible_v<T>) object->~T();
        if (failed.code() == NV_NAME_TAKEN)
            if (T *there = found<T>(heap, name, layout)) return *there;
        throw failed;
    }
    making.published();
    return *object;
}

/* FNV-1a, 64 bits. */
constexpr std::uint64_t hash_text(std::uint64_t hash, std::string_view text) {
    for (char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    return hash;
}

/* What HOLDFAST_PORTABLE says of a type. */
template <class T> struct shape;

template <class T> constexpr std::string_view spelling() {
#if defined(__GNUC__)
    return __PRETTY_FUNCTION__;
#else
    return __FUNCSIG__;
#endif
}

/* That of a portable type; else one of what the compiler knows. */
template <class T> constexpr std::uint64_t layout_of(decltype(shape<T>::at(0)) *) {
    return shape<T>::at(3);
}
template <class T> constexpr std::uint64_t layout_of(...) {
    std::uint64_t hash = hash_text((0xcbf29ce484222325 ^ sizeof(T)) * 0x100000001b3 ^ alignof(T), spelling<T>());
    return hash ? hash : 1;
}

} // namespace detail

/* The hash of a description of a type: FNV-1a, 64 bits, never 0. */
constexpr std::uint64_t layout_hash(std::string_view description, std::uint64_t hash = 0xcbf29ce484222325) {
    hash = detail::hash_text(hash, description);
    return hash ? hash : 1;
}

/* The layout of a type for typed_root. Unless it is given, it is computed from the type's name as the compiler spells
 * it, its size and its alignment: it changes with any of them (and with the compiler), but not when a field becomes
 * another one of the same size. To give it, specialise this, with a text that changes with the fields:
 *     template <> struct holdfast::layout<state> {
 *         static constexpr std::uint64_t value = holdfast::layout_hash("state 1: long count, string name");
 *     }; */
template <class T> struct layout {
    static constexpr std::uint64_t value = detail::layout_of<T>(nullptr);
};

/* The root of this name. If there is none, it is constructed from the arguments and gets its name when it is ready,
 * in one step and without a transaction: an exception leaves nothing, a kill on the way no root (at most memory that
 * nobody reaches; `holdfast heap leaks` shows it). Of several threads that make it at once, one wins, and the others
 * get what that one made. Its destructor never runs; nvremove ends its life. */
template <class T, class... Arguments> T &root(const char *name, Arguments &&...arguments) {
    return detail::root<T>(nullptr, name, 0, std::forward<Arguments>(arguments)...);
}

/* The same in the heap of a handle. */
template <class T, class... Arguments> T &root_in(nv_heap *heap, const char *name, Arguments &&...arguments) {
    if (!heap) throw error(NV_NOT_GRANTED, "the handle is of no heap; see what nv_heap_open returned");
    return detail::root<T>(heap, name, 0, std::forward<Arguments>(arguments)...);
}

/* The same for a root that carries its type's layout: one that was made with another layout, or with none, is an
 * error with the code NV_LAYOUT, and its bytes are never taken for a T. */
template <class T, class... Arguments> T &typed_root(const char *name, Arguments &&...arguments) {
    return detail::root<T>(nullptr, name, layout<T>::value, std::forward<Arguments>(arguments)...);
}

template <class T, class... Arguments> T &typed_root_in(nv_heap *heap, const char *name, Arguments &&...arguments) {
    if (!heap) throw error(NV_NOT_GRANTED, "the handle is of no heap; see what nv_heap_open returned");
    return detail::root<T>(heap, name, layout<T>::value, std::forward<Arguments>(arguments)...);
}

/* Portable heaps, which native programs, applets and other languages share: see nv_portable in holdfast.h. The program says
 * so before it opens its heap, keeps ref in the place of pointers, and describes its types:
 *     struct node { holdfast::ref<node> next; std::uint32_t flags; std::uint64_t key; };
 *     HOLDFAST_PORTABLE(node, 1, next, flags, key)
 *     holdfast::portable();
 *     auto &first = holdfast::typed_root<node>("first");
 *     for (node *n = &first; n; n = n->next.at(holdfast::base())) sum += n->key;
 * Containers hold pointers, and are none for such a heap. */
inline void portable(bool is_portable = true) { nv_portable(is_portable); }

/* The first byte of the open heap, from which references count: see nv_base. */
inline void *base() {
    void *first = nv_base();
    if (!first) throw error();
    return first;
}
inline void *base(nv_heap *heap) {
    void *first = nv_base_in(heap);
    if (!first) throw error();
    return first;
}

/* A reference to a T, or to the first of several, or (all zeroes) to nothing. 4 bytes on every target. */
template <class T> struct ref {
    std::uint32_t units;

    /* Where it leads in the heap that begins at base: as good as the bytes that it was read from. */
    T *at(void *base) const noexcept {
        return units ? reinterpret_cast<T *>(static_cast<char *>(base) + std::size_t(units) * 8) : nullptr;
    }
    /* The reference to what target leads to (null: to nothing), which must lie in that heap. Throws error for what is not
     * aligned to 8, as every object is, or lies further than references reach; an object of another heap within 32 GiB behind
     * this one is not noticed. */
    static ref to(void *base, const T *target) {
        if (!target) return ref{0};
        std::uint64_t offset = reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(base);
        if (offset % 8 != 0 || offset >> 35 != 0 || offset == 0)
            throw error(NV_BAD_RANGE, "a reference leads to an object of its own heap; pass one of it");
        return ref{static_cast<std::uint32_t>(offset / 8)};
    }
    explicit operator bool() const noexcept { return units != 0; }
    bool operator==(const ref &other) const noexcept { return units == other.units; }
    bool operator!=(const ref &other) const noexcept { return units != other.units; }
};

namespace detail {

constexpr std::uint64_t hash_word(std::uint64_t hash, std::uint64_t word) {
    for (int byte = 0; byte < 8; byte++) hash = (hash ^ (word >> (8 * byte) & 0xff)) * 0x100000001b3;
    return hash;
}
constexpr std::uint64_t hash_start(std::string_view kind, std::uint64_t size, std::uint64_t align) {
    return hash_word(hash_word(hash_text(0xcbf29ce484222325, kind), size), align);
}
constexpr std::uint64_t hash_field(std::uint64_t hash, std::string_view name, std::uint64_t offset, std::uint64_t layout) {
    return hash_word(hash_word(hash_word(hash_text(hash, name), name.size()), offset), layout);
}

/* The number of a type with what references lead to, so many of them deep. Only portable types have one. */
template <> struct shape<char> {
    static constexpr std::uint64_t at(unsigned) { return hash_start("u8", 1, 1); }
};
#define HOLDFAST_VALUE_(type, kind)                                                                                    \
    template <> struct shape<type> {                                                                                   \
        static_assert(alignof(type) == sizeof(type), "portable types need a target that aligns integers to their size");\
        static constexpr std::uint64_t at(unsigned) { return hash_start(kind, sizeof(type), alignof(type)); }          \
    };
HOLDFAST_VALUE_(std::uint8_t, "u8")
HOLDFAST_VALUE_(std::int8_t, "i8")
HOLDFAST_VALUE_(std::uint16_t, "u16")
HOLDFAST_VALUE_(std::int16_t, "i16")
HOLDFAST_VALUE_(std::uint32_t, "u32")
HOLDFAST_VALUE_(std::int32_t, "i32")
HOLDFAST_VALUE_(std::uint64_t, "u64")
HOLDFAST_VALUE_(std::int64_t, "i64")
HOLDFAST_VALUE_(float, "f32")
HOLDFAST_VALUE_(double, "f64")
#undef HOLDFAST_VALUE_
template <class T> struct shape<ref<T>> {
    static constexpr std::uint64_t at(unsigned depth) {
        std::uint64_t hash = hash_start("ref", 4, 4);
        return depth == 0 ? hash : hash_field(hash, "to", 0, shape<T>::at(depth - 1));
    }
};
template <class T, std::size_t Length> struct shape<T[Length]> {
    static constexpr std::uint64_t at(unsigned depth) {
        return hash_field(hash_start("array", sizeof(T) * Length, alignof(T)), "", Length, shape<T>::at(depth));
    }
};

/* The hash of a struct, field by field. `Later`: computed where it is asked for, when the targets of references are described. */
template <class Later> class struct_shape {
public:
    constexpr struct_shape(std::uint64_t size, std::uint64_t align, std::uint32_t version, unsigned depth)
        : hash_(hash_word(hash_start("portable", size, align), version)), depth_(depth) {}
    template <class Field> constexpr struct_shape field(std::string_view name, std::uint64_t offset) const {
        struct_shape next = *this;
        next.hash_ = hash_field(hash_, name, offset, shape<Field>::at(depth_));
        return next;
    }
    constexpr std::uint64_t hash() const { return hash_; }

private:
    std::uint64_t hash_;
    unsigned depth_;
};

template <class T, class = void> struct has_shape : std::false_type {};
template <class T> struct has_shape<T, std::void_t<decltype(sizeof(shape<T>))>> : std::true_type {};

/* Whether each field follows the one before it without a gap. */
class struct_fields {
public:
    template <class Field> constexpr struct_fields field(std::string_view, std::uint64_t offset) const {
        static_assert(has_shape<std::remove_all_extents_t<Field>>::value,
                      "a field is an integer of explicit width, a float, a double, a holdfast::ref, a struct that was "
                      "described before, or an array of these");
        struct_fields next;
        next.is_whole_ = is_whole_ && offset == end_;
        next.end_ = end_ + sizeof(Field);
        return next;
    }
    constexpr bool fill(std::uint64_t size) const { return is_whole_ && end_ == size; }

private:
    std::uint64_t end_ = 0;
    bool is_whole_ = true;
};

} // namespace detail

} // namespace holdfast

/* Describes a struct at the top level: its version, to be raised when its meaning changes, and its fields in their order,
 * at most 32: integers of explicit width, float, double, ref, arrays of these, and structs that are described before. It
 * gives holdfast::layout its value, the number that C, Rust and Python compute as well. It does not compile where a field is
 * missing or differs between targets, or where bytes have no name. */
#define HOLDFAST_PORTABLE(type, version, ...)                                                                          \
    static_assert(std::is_standard_layout_v<type> && std::is_trivially_copyable_v<type>,                               \
                  "a portable struct is plain data");                                                                  \
    static_assert((holdfast::detail::struct_fields() HOLDFAST_EACH_(type, __VA_ARGS__)).fill(sizeof(type)),            \
                  "describe every field in its order, and give the bytes between and behind them a name");             \
    template <> struct holdfast::detail::shape<type> {                                                                 \
        template <class Later = void> static constexpr std::uint64_t at(unsigned depth) {                              \
            return (struct_shape<Later>(sizeof(type), alignof(type), version, depth) HOLDFAST_EACH_(type, __VA_ARGS__)).hash();\
        }                                                                                                              \
    };
#define HOLDFAST_FIELD_(type, name) .template field<decltype(type::name)>(#name, offsetof(type, name))
#define HOLDFAST_EACH_(type, ...)                                                                                      \
    HOLDFAST_CHOOSE_(__VA_ARGS__, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12,  \
                     11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)                                                             \
    (type, __VA_ARGS__)
#define HOLDFAST_CHOOSE_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, \
                         ae, af, count, ...)                                                                           \
    HOLDFAST_EACH_##count##_
#define HOLDFAST_EACH_1_(type, name) HOLDFAST_FIELD_(type, name)
#define HOLDFAST_EACH_2_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_1_(type, __VA_ARGS__)
#define HOLDFAST_EACH_3_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_2_(type, __VA_ARGS__)
#define HOLDFAST_EACH_4_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_3_(type, __VA_ARGS__)
#define HOLDFAST_EACH_5_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_4_(type, __VA_ARGS__)
#define HOLDFAST_EACH_6_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_5_(type, __VA_ARGS__)
#define HOLDFAST_EACH_7_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_6_(type, __VA_ARGS__)
#define HOLDFAST_EACH_8_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_7_(type, __VA_ARGS__)
#define HOLDFAST_EACH_9_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_8_(type, __VA_ARGS__)
#define HOLDFAST_EACH_10_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_9_(type, __VA_ARGS__)
#define HOLDFAST_EACH_11_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_10_(type, __VA_ARGS__)
#define HOLDFAST_EACH_12_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_11_(type, __VA_ARGS__)
#define HOLDFAST_EACH_13_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_12_(type, __VA_ARGS__)
#define HOLDFAST_EACH_14_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_13_(type, __VA_ARGS__)
#define HOLDFAST_EACH_15_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_14_(type, __VA_ARGS__)
#define HOLDFAST_EACH_16_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_15_(type, __VA_ARGS__)
#define HOLDFAST_EACH_17_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_16_(type, __VA_ARGS__)
#define HOLDFAST_EACH_18_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_17_(type, __VA_ARGS__)
#define HOLDFAST_EACH_19_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_18_(type, __VA_ARGS__)
#define HOLDFAST_EACH_20_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_19_(type, __VA_ARGS__)
#define HOLDFAST_EACH_21_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_20_(type, __VA_ARGS__)
#define HOLDFAST_EACH_22_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_21_(type, __VA_ARGS__)
#define HOLDFAST_EACH_23_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_22_(type, __VA_ARGS__)
#define HOLDFAST_EACH_24_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_23_(type, __VA_ARGS__)
#define HOLDFAST_EACH_25_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_24_(type, __VA_ARGS__)
#define HOLDFAST_EACH_26_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_25_(type, __VA_ARGS__)
#define HOLDFAST_EACH_27_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_26_(type, __VA_ARGS__)
#define HOLDFAST_EACH_28_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_27_(type, __VA_ARGS__)
#define HOLDFAST_EACH_29_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_28_(type, __VA_ARGS__)
#define HOLDFAST_EACH_30_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_29_(type, __VA_ARGS__)
#define HOLDFAST_EACH_31_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_30_(type, __VA_ARGS__)
#define HOLDFAST_EACH_32_(type, name, ...) HOLDFAST_FIELD_(type, name) HOLDFAST_EACH_31_(type, __VA_ARGS__)

#endif

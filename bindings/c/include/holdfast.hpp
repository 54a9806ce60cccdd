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
    /* The handle of nv_heap_open: opened when it is first asked for, and to be kept open. Throws error. */
    static nv_heap *handle() {
        static nv_heap *const heap = opened();
        return heap;
    }

private:
    static nv_heap *opened() {
        nv_heap *heap = nv_heap_open(Name);
        if (!heap) throw error();
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

template <class T> constexpr std::string_view spelling() {
#if defined(__GNUC__)
    return __PRETTY_FUNCTION__;
#else
    return __FUNCSIG__;
#endif
}

} // namespace detail

/* The hash of a description of a type: FNV-1a, 64 bits, never 0. */
constexpr std::uint64_t layout_hash(std::string_view description, std::uint64_t hash = 0xcbf29ce484222325) {
    for (char byte : description) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    return hash ? hash : 1;
}

/* The layout of a type for typed_root. Unless it is given, it is computed from the type's name as the compiler spells
 * it, its size and its alignment: it changes with any of them (and with the compiler), but not when a field becomes
 * another one of the same size. To give it, specialise this, with a text that changes with the fields:
 *     template <> struct holdfast::layout<state> {
 *         static constexpr std::uint64_t value = holdfast::layout_hash("state 1: long count, string name");
 *     }; */
template <class T> struct layout {
    static constexpr std::uint64_t value = layout_hash(
        detail::spelling<T>(), (0xcbf29ce484222325 ^ sizeof(T)) * 0x100000001b3 ^ alignof(T));
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

} // namespace holdfast

#endif

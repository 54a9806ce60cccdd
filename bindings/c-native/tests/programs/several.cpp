// Containers in two heaps at once. Each run adds one entry to both, and prints how many there are.
#include <holdfast.hpp>

#include <cstdio>
#include <map>
#include <new>
#include <vector>

inline constexpr char words_name[] = "words";
inline constexpr char notes_name[] = "notes";
using words = holdfast::named_heap<words_name>;
using notes = holdfast::named_heap<notes_name>;
template <class T> using word_vector = std::vector<T, holdfast::allocator<T, words>>;
template <class K, class V> using note_map = std::map<K, V, std::less<K>, holdfast::allocator<std::pair<const K, V>, notes>>;

/* A heap that is closed and opened again has another handle, which its allocator asks for. */
static void reopen() {
    for (std::size_t round = 1; round <= 3; round++) {
        holdfast::open(words_name);
        nv_heap *handle = words::handle();
        auto &list = holdfast::root_in<word_vector<long>>(handle, "list");
        list.push_back(static_cast<long>(round));
        if (list.size() != round || words::handle() != handle) std::printf("round %zu: %zu\n", round, list.size());
        holdfast::close();
        /* Nothing opens it meanwhile but nv_open. */
        try {
            if (holdfast::allocator<long, words>().allocate(1)) std::puts("allocated in a closed heap");
        } catch (const std::bad_alloc &) {
            if (nv_errno() != NV_NOT_GRANTED) std::puts(nv_message());
        }
    }
}

int main(int argc, char **) {
    if (argc > 1) {
        reopen();
        return 0;
    }
    auto &list = holdfast::root_in<word_vector<long>>(words::handle(), "list");
    auto &map = holdfast::typed_root_in<note_map<long, long>>(notes::handle(), "map");
    {
        holdfast::transaction transaction(words::handle());
        try {
            holdfast::transaction other(notes::handle());
            std::puts("two transactions at once");
        } catch (const holdfast::error &error) {
            if (error.code() != NV_OTHER_HEAP) std::puts(error.what());
        }
    }
    try {
        holdfast::root_in<long>(nullptr, "none");
        std::puts("a root without a heap");
    } catch (const holdfast::error &error) {
        if (error.code() != NV_NOT_GRANTED) std::puts(error.what());
    }
    list.push_back(static_cast<long>(list.size()));
    map.emplace(static_cast<long>(map.size()), 1);
    std::printf("%zu %zu\n", list.size(), map.size());
}

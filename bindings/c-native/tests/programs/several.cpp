// Containers in two heaps at once. Each run adds one entry to both, and prints how many there are.
#include <holdfast.hpp>

#include <cstdio>
#include <map>
#include <vector>

inline constexpr char words_name[] = "words";
inline constexpr char notes_name[] = "notes";
using words = holdfast::named_heap<words_name>;
using notes = holdfast::named_heap<notes_name>;
template <class T> using word_vector = std::vector<T, holdfast::allocator<T, words>>;
template <class K, class V> using note_map = std::map<K, V, std::less<K>, holdfast::allocator<std::pair<const K, V>, notes>>;

int main() {
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

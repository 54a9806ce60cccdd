/*
 * Counts words in a std::map that lives in the persistent heap: an applet in C++. Its functions:
 *
 *     add     counts the words of a text; returns how many there were
 *     count   how often a word was seen
 *     words   streams every word with its count, in order, one chunk each
 *
 * Numbers are decimal text. The map is the standard library's, which knows nothing of transactions: a host that runs this
 * in the mode `atomic` gets each call altogether or not at all, whatever ends the applet.
 */
#include <holdfast_applet.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace {

using text = holdfast::string;
using counts = std::map<text, std::uint64_t, std::less<>, holdfast::allocator<std::pair<const text, std::uint64_t>>>;

counts &seen() { return holdfast::root<counts>("words"); }

bool is_letter(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '\'';
}

/* Takes the next word off the text; empty at its end. */
std::string_view next_word(std::string_view &rest) {
    while (!rest.empty() && !is_letter(rest.front())) rest.remove_prefix(1);
    std::size_t length = 0;
    while (length < rest.size() && is_letter(rest[length])) length++;
    std::string_view word = rest.substr(0, length);
    rest.remove_prefix(length);
    return word;
}

void add(holdfast::call &call) {
    std::string_view rest = call.input();
    counts &words = seen();
    std::uint64_t found = 0;
    for (auto word = next_word(rest); !word.empty(); word = next_word(rest), found++) {
        auto entry = words.find(word);
        if (entry == words.end()) entry = words.emplace(text(word), 0).first;
        entry->second++;
    }
    call.reply(std::to_string(found));
}

void count(holdfast::call &call) {
    if (call.input().empty()) throw holdfast::failure(2, "count takes a word");
    auto entry = seen().find(call.input());
    call.reply(std::to_string(entry == seen().end() ? 0 : entry->second));
}

void words(holdfast::call &call) {
    for (const auto &[word, times] : seen()) {
        if (call.cancelled()) throw holdfast::failure(3, "cancelled");
        call.send(std::string(word) + " " + std::to_string(times));
    }
}

} // namespace

int main() {
    holdfast::export_function("add", add);
    holdfast::export_function("count", count);
    holdfast::export_function("words", words);
    int status = holdfast::serve();
    if (status) std::fprintf(stderr, "wordcount: %s\n", nv_strerror(status));
    return status;
}

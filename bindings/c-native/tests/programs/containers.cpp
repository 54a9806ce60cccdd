// Standard containers that live in a heap: `containers COMMAND`.
#include <holdfast.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <unistd.h>
#include <unordered_map>
#include <vector>

#define MUST(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::printf("line %d: not so: %s\n", __LINE__, #condition);        \
            std::exit(1);                                                      \
        }                                                                      \
    } while (0)

template <class T> using vector = std::vector<T, holdfast::allocator<T>>;
template <class K, class V>
using map = std::map<K, V, std::less<>, holdfast::allocator<std::pair<const K, V>>>;
template <class K, class V, class H = std::hash<K>>
using unordered_map = std::unordered_map<K, V, H, std::equal_to<>, holdfast::allocator<std::pair<const K, V>>>;

struct library {
    map<holdfast::string, vector<int>> by_name;
    vector<holdfast::string> in_order;
    unordered_map<int, holdfast::string> by_number;
    unordered_map<holdfast::string, int, holdfast::string_hash> numbers;
    long rounds = 0;
};

// Short ones lie in the string object itself, which then points into itself; long ones are objects of their own.
static holdfast::string name_of(int number) {
    holdfast::string name = number % 2 ? "n" : "a name that is longer than any string object has room for ";
    return name + std::to_string(number).c_str();
}

static const int PER_ROUND = 500;

static void check(library &all) {
    int count = static_cast<int>(all.rounds) * PER_ROUND;
    MUST(all.in_order.size() == static_cast<std::size_t>(count));
    MUST(all.by_name.size() == all.in_order.size() && all.by_number.size() == all.in_order.size());
    for (int number = 0; number < count; number++) {
        holdfast::string name = name_of(number);
        MUST(all.in_order[number] == name);
        MUST(all.by_number.at(number) == name);
        MUST(all.numbers.at(name) == number);
        vector<int> &digits = all.by_name.at(name);
        MUST(digits.size() == static_cast<std::size_t>(number % 7) && (digits.empty() || digits[0] == number));
    }
    // In the order of the names, all of them reached by their links.
    std::size_t seen = 0;
    const holdfast::string *before = nullptr;
    for (auto &entry : all.by_name) {
        MUST(!before || *before < entry.first);
        before = &entry.first;
        seen++;
    }
    MUST(seen == all.in_order.size());
}

static void add_round(library &all) {
    for (int i = 0; i < PER_ROUND; i++) {
        int number = static_cast<int>(all.rounds) * PER_ROUND + i;
        all.in_order.push_back(name_of(number));
        all.by_number.emplace(number, name_of(number));
        all.numbers[name_of(number)] = number;
        all.by_name[name_of(number)].assign(number % 7, number);
    }
    all.rounds++;
}

struct refuses {
    refuses() { throw std::runtime_error("no"); }
};

static void details() {
    // A constructor that fails leaves no root, and what it allocated is free again.
    try {
        holdfast::root<refuses>("refuses");
        MUST(false);
    } catch (const std::runtime_error &error) {
        MUST(!std::strcmp(error.what(), "no"));
    }
    MUST(!nvread("refuses", nullptr));
    auto &numbers = holdfast::root<vector<long>>("numbers", 3, 42L);
    MUST(numbers.size() == 3 && numbers[2] == 42);
    MUST(&holdfast::root<vector<long>>("numbers") == &numbers);
    try {
        holdfast::root<library>("numbers");
        MUST(false);
    } catch (const holdfast::error &error) {
        MUST(error.code() == NV_TOO_SMALL);
    }
    {
        holdfast::transaction left_open;
        left_open.add(numbers[0]);
        numbers[0] = 7;
    }
    MUST(numbers[0] == 42);
    {
        holdfast::transaction change;
        change.add(numbers[0]);
        numbers[0] = 7;
        change.commit();
    }
    MUST(numbers[0] == 7);
    try {
        numbers.reserve(std::size_t(1) << 40);
        MUST(false);
    } catch (const std::bad_alloc &) {
    }
    MUST(numbers.size() == 3);
}

int main(int argc, char **argv) {
    alarm(60);
    std::string command = argc == 2 ? argv[1] : "";
    try {
        if (command == "details") {
            details();
            return 0;
        }
        auto &all = holdfast::root<library>("library");
        check(all);
        if (command == "add") {
            add_round(all);
            check(all);
        } else if (command == "add-and-wait") {
            // Killed between two operations, in the middle of all of them.
            add_round(all);
            std::printf("waiting\n");
            std::fflush(stdout);
            std::getchar();
        } else if (command != "check") {
            return 2;
        }
        std::printf("%ld rounds at %p\n", all.rounds, static_cast<void *>(&all));
        return 0;
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}

// Containers in compartments: each thread's allocator works where the thread is. Prints the sizes that it finds.
#include <holdfast.hpp>

#include <cstdio>
#include <thread>
#include <vector>

using numbers = std::vector<int, holdfast::allocator<int>>;

static void add(const char *name, int count) {
    holdfast::compartment own(name);
    auto &kept = holdfast::root<numbers>("numbers");
    for (int i = 0; i < count; i++) kept.push_back(i);
    try {
        holdfast::compartment second("another");
        std::printf("a thread was in two at once\n");
    } catch (const holdfast::error &refused) {
        if (refused.code() != NV_IS_OPEN) std::printf("%s\n", refused.what());
    }
    holdfast::transaction lost;
    (void)holdfast::root<numbers>("made in vain");
}

static std::size_t size(const char *name) {
    holdfast::compartment own(name);
    return holdfast::root<numbers>("numbers").size();
}

int main() {
    holdfast::open("jobs");
    std::thread one(add, "one", 1000), two(add, "two", 2000);
    one.join();
    two.join();
    bool is_alone = holdfast::root<numbers>("numbers").empty();
    std::printf("%zu %zu %d\n", size("one"), size("two"), is_alone);
}

// What is easily got wrong at the edges of holdfast.hpp: `edges COMMAND`.
#include <holdfast.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

#define MUST(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::printf("line %d: not so: %s (%s)\n", __LINE__, #condition, nv_message()); \
            std::exit(1);                                                      \
        }                                                                      \
    } while (0)

template <class T> using vector = std::vector<T, holdfast::allocator<T>>;

enum class step { none, constructing, used, over };
static std::atomic<step> now{step::none};

static void wait_for(step wanted) {
    while (now != wanted) std::this_thread::yield();
}

// Allocates, waits for the other thread to do so, too, and fails.
struct refused {
    vector<int> own;
    refused() : own(1000) {
        now = step::constructing;
        wait_for(step::used);
        throw std::runtime_error("bad configuration");
    }
};

static void throw_beside_a_thread() {
    auto &numbers = holdfast::root<vector<int>>("numbers");
    std::thread making([] {
        try {
            holdfast::root<refused>("refused");
            MUST(false);
        } catch (const std::runtime_error &error) {
            MUST(!std::strcmp(error.what(), "bad configuration"));
        }
        now = step::over;
    });
    wait_for(step::constructing);
    for (int i = 0; i < 100; i++) numbers.push_back(i);
    now = step::used;
    wait_for(step::over);
    making.join();
    MUST(!nvread("refused", nullptr));
    // What this thread allocated is still its own: it is not given to others, and can be freed.
    for (int i = 0; i < 100; i++) MUST(nvmalloc(nullptr, numbers.capacity() * sizeof(int)) != numbers.data());
    for (int i = 0; i < 100; i++) MUST(numbers[i] == i);
    MUST(nvfree(numbers.data()) == NV_OK && nvremove("numbers") == NV_OK);
}

static void make_at_once() {
    static std::atomic<int> ready;
    for (int round = 0; round < 200; round++) {
        ready = 0;
        vector<long> *made[3] = {};
        std::vector<std::thread> threads;
        for (auto &mine : made)
            threads.emplace_back([&mine] {
                ready++;
                while (ready != 3) std::this_thread::yield();
                mine = &holdfast::root<vector<long>>("at once", 10, 7L);
            });
        for (auto &thread : threads) thread.join();
        MUST(made[0] == made[1] && made[1] == made[2] && made[0]->size() == 10 && (*made[0])[9] == 7);
        made[0]->~vector();
        MUST(nvremove("at once") == NV_OK);
    }
}

static void outlive_a_heap() {
    {
        holdfast::transaction of_the_first;
        MUST(nvmalloc("x", 8));
        std::uint64_t first = nv_session();
        holdfast::close();
        MUST(nv_session() == 0);
        holdfast::open("other");
        MUST(nv_session() != 0 && nv_session() != first);
        MUST(nv_tx_begin() == NV_OK && nvmalloc("y", 8));
        try {
            of_the_first.add(&first, 8);
            MUST(false);
        } catch (const holdfast::error &error) {
            MUST(error.code() == NV_NO_TRANSACTION && std::strstr(error.what(), "closed"));
        }
    }
    MUST(nv_tx_commit() == NV_OK && nvread("y", nullptr));
    holdfast::transaction committed_too_late;
    holdfast::close();
    holdfast::open("heap");
    MUST(!nvread("x", nullptr) && nv_tx_begin() == NV_OK && nvmalloc("z", 8));
    try {
        committed_too_late.commit();
        MUST(false);
    } catch (const holdfast::error &error) {
        MUST(error.code() == NV_NO_TRANSACTION);
    }
    MUST(nv_tx_commit() == NV_OK && nvread("z", nullptr));
    // Closed on purpose: what the environment names is not opened behind the program's back.
    holdfast::close();
    MUST(!nvread("z", nullptr) && nv_errno() == NV_NOT_GRANTED && std::strstr(nv_message(), "nv_open"));
    MUST(nv_close() == NV_OK && nv_session() == 0);
    MUST(nv_open(nullptr, 0) == NV_OK && nvread("z", nullptr));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)();
    } commands[] = {
        {"throw-beside-a-thread", throw_beside_a_thread},
        {"make-at-once", make_at_once},
        {"outlive-a-heap", outlive_a_heap},
    };
    alarm(60); // nothing here takes a second
    for (auto &command : commands) {
        if (argc == 2 && !std::strcmp(argv[1], command.name)) {
            command.run();
            return 0;
        }
    }
    return 2;
}

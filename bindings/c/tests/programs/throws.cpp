// An applet in C++ whose functions throw: as exported functions may, and past the library, where none may get.
#include <holdfast_applet.hpp>

#include <cstdio>
#include <stdexcept>
#include <vector>

static int past_the_library(holdfast_call *, void *) { throw std::runtime_error("it got out"); }

int main() {
    int calls = 0;
    holdfast::export_function("failure", [calls](holdfast::call &call) mutable {
        throw holdfast::failure(7, "failed " + std::to_string(++calls) + " times on " + std::string(call.input()));
    });
    holdfast::export_function("error", [](holdfast::call &) { std::vector<int>().at(1); });
    holdfast::export_function("other", [](holdfast::call &) { throw 5; });
    holdfast::export_function("twice", [](holdfast::call &call) {
        call.reply("one");
        call.reply("two");
    });
    holdfast::export_function("no heap", [](holdfast::call &) { holdfast::root<int>("none"); });
    try {
        holdfast::export_function("other", [](holdfast::call &) {});
        return 8;
    } catch (const holdfast::error &error) {
        if (error.code() != NV_BAD_EXPORT) return 9;
    }
    holdfast_export("past the library", past_the_library, nullptr);
    try {
        return holdfast_serve();
    } catch (...) {
        std::puts("an exception went through the library");
        return 10;
    }
}

/*
 * holdfast_applet.hpp: what an applet in C++17 offers to its host. (Its persistent memory is holdfast.hpp.)
 *
 *     int main() {
 *         holdfast::export_function("shout", [](holdfast::call &call) {
 *             std::string text(call.input());
 *             for (char &letter : text) letter = std::toupper(letter);
 *             call.reply(text);
 *         });
 *         return holdfast::serve();
 *     }
 *
 * A function that returns has succeeded. One that throws has failed: holdfast::failure with a code and a text of its
 * own, every other std::exception with the code 1 and its what(). No exception gets as far as the library.
 */
#ifndef HOLDFAST_APPLET_HPP
#define HOLDFAST_APPLET_HPP

#include <holdfast.hpp>
#include <holdfast_applet.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace holdfast {

/* Why a function has no result: a code above 0, and a text for the host. */
class failure : public std::runtime_error {
public:
    failure(int code, const std::string &text) : std::runtime_error(text), code_(code) {}
    int code() const noexcept { return code_; }

private:
    int code_;
};

/* Memory that the host and the applet see at once; the host can store to it at any time. */
struct shared_buffer {
    unsigned char *data;
    std::size_t size;
};

/* One call by the host, until the function returns. */
class call {
public:
    explicit call(holdfast_call *of) noexcept : call_(of) {}
    call(const call &) = delete;
    call &operator=(const call &) = delete;

    /* What the host has sent along. */
    std::string_view input() const noexcept {
        std::size_t size = 0;
        const void *bytes = holdfast_input(call_, &size);
        return {static_cast<const char *>(bytes), size};
    }

    /* Sets the result; at most once. */
    void reply(std::string_view bytes) { must(holdfast_reply(call_, bytes.data(), bytes.size())); }

    /* Sends a chunk of a result that comes in parts, now. */
    void send(std::string_view bytes) { must(holdfast_send(call_, bytes.data(), bytes.size())); }

    /* The buffer that the host shares for this call; its data is null if there is none. */
    shared_buffer buffer() const noexcept {
        std::size_t size = 0;
        void *bytes = holdfast_buffer(call_, &size);
        return {static_cast<unsigned char *>(bytes), size};
    }

    /* Whether the host no longer wants the result. */
    bool cancelled() const noexcept { return holdfast_cancelled(call_) != 0; }

private:
    static void must(int status) {
        if (status != NV_OK) throw error(status, nv_strerror(status));
    }

    holdfast_call *call_;
};

namespace detail {

template <class F> int run(holdfast_call *of, void *context) noexcept {
    try {
        call here(of);
        (*static_cast<F *>(context))(here);
        return 0;
    } catch (const failure &failed) {
        holdfast_fail(of, failed.what());
        return failed.code() > 0 ? failed.code() : 1;
    } catch (const std::exception &failed) {
        return holdfast_fail(of, failed.what());
    } catch (...) {
        return holdfast_fail(of, "the function threw what is no std::exception");
    }
}

} // namespace detail

/* Offers a function, such as a lambda, that takes a call& under a name; see holdfast_export. It is kept until the
 * program ends. */
template <class F> void export_function(const char *name, F &&function) {
    using stored = std::decay_t<F>;
    static_assert(std::is_invocable_v<stored &, call &>, "an exported function takes a holdfast::call&");
    auto *kept = new stored(std::forward<F>(function));
    int status = holdfast_export(name, detail::run<stored>, kept);
    if (status != NV_OK) {
        delete kept;
        throw error(status, nv_strerror(status));
    }
}

/* Serves until the host says that there are no more calls; 0, or an nv_error. For `return holdfast::serve();`. */
inline int serve() noexcept { return holdfast_serve(); }

} // namespace holdfast

#endif

// The header of documents in C++, with the transactions and errors of holdfast.hpp.
#include <holdfast.hpp>
#include <holdfast_document.h>

#include <cstdio>
#include <string>
#include <string_view>

static std::string text_of(nv_document document, nv_node node) {
    std::size_t length = 0;
    holdfast::check(nv_doc_text(document, node, nullptr, 0, &length));
    std::string text(length, '\0');
    holdfast::check(nv_doc_text(document, node, text.data(), length + 1, &length));
    return text;
}

int main() {
    constexpr std::string_view page = "<ul><li>one<li>two</ul>";
    holdfast::check(nv_doc_parse("page", page.data(), page.size(), nullptr));
    nv_document document = nv_doc_open("page");
    nv_node second = nv_doc_select(document, NV_DOC_ROOT, "li:nth-child(2)");
    try {
        holdfast::transaction transaction;
        holdfast::check(nv_doc_set_text(document, second, "2", 1));
        if (text_of(document, second) != "2") std::puts("not changed");
        holdfast::check(nv_doc_append(document, second, second));
        std::puts("no error");
    } catch (const holdfast::error &error) {
        if (error.code() != NV_BAD_CHANGE) std::puts(error.what());
    }
    if (text_of(document, second) != "two") std::puts("not rolled back");
    holdfast::transaction transaction;
    holdfast::check(nv_doc_set_text(document, second, "2", 1));
    transaction.commit();
    if (text_of(document, NV_DOC_ROOT) != "one2") std::puts("not committed");
    return 0;
}

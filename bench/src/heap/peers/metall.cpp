// What the suite calls of Metall: a store, allocation and free. Compiled by metall.rs when METALL_INCLUDE says where
// Metall's headers are.

#include <cstddef>
#include <exception>
#include <metall/metall.hpp>

using Manager = metall::manager;

extern "C" void *bench_metall_create(const char *directory) noexcept {
    try {
        return new Manager(metall::create_only, directory);
    } catch (const std::exception &) {
        return nullptr;
    }
}

extern "C" void *bench_metall_alloc(void *manager, std::size_t bytes) noexcept {
    try {
        return static_cast<Manager *>(manager)->allocate(bytes);
    } catch (const std::exception &) {
        return nullptr;
    }
}

extern "C" void bench_metall_free(void *manager, void *object) noexcept {
    static_cast<Manager *>(manager)->deallocate(object);
}

extern "C" void bench_metall_close(void *manager) noexcept {
    delete static_cast<Manager *>(manager);
}

// A std::pmr::memory_resource on an arena, and containers on it.
#include "check.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>
#include <vector>

// Owns an arena. Whole frames are its smallest unit, so small objects go through a pool above it.
class arena_resource final : public std::pmr::memory_resource {
public:
    explicit arena_resource(std::size_t bytes)
    {
        freehold_options options{};
        options.size = sizeof options;
        options.bytes = bytes;
        if (freehold_arena_new(&options, &arena_) != FREEHOLD_OK)
            throw std::bad_alloc();
    }
    ~arena_resource() override { freehold_arena_destroy(arena_); }
    arena_resource(const arena_resource &) = delete;
    arena_resource &operator=(const arena_resource &) = delete;

    const freehold_arena *get() const { return arena_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        void *block = nullptr;
        // A block lies at a multiple of a frame at least.
        freehold_error error = alignment <= freehold_frame_bytes(arena_)
            ? freehold_alloc_bytes(arena_, bytes == 0 ? 1 : bytes, &block)
            : freehold_alloc_range(arena_, bytes == 0 ? 1 : bytes, alignment, nullptr, &block);
        if (error != FREEHOLD_OK)
            throw std::bad_alloc();
        return block;
    }

    void do_deallocate(void *block, std::size_t bytes, std::size_t) override
    {
        // The size is known: a wrong one is a defect of the program.
        OK(freehold_free_sized(arena_, block, bytes == 0 ? 1 : bytes));
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other;
    }

    freehold_arena *arena_ = nullptr;
};

static std::uint64_t allocated(const arena_resource &resource)
{
    freehold_census census{};
    census.size = sizeof census;
    OK(freehold_validate(resource.get(), &census));
    return census.allocated;
}

int main()
{
    arena_resource resource(std::size_t{64} << 20);
    {
        // Large: straight from the arena.
        std::pmr::vector<int> numbers(&resource);
        for (int number = 0; number < 2000000; number++)
            numbers.push_back(number);
        CHECK(numbers[1999999] == 1999999);
        CHECK(freehold_contains(resource.get(), numbers.data()));
        std::pmr::vector<int> moved(std::move(numbers));
        CHECK(moved.size() == 2000000);

        // Small: through a pool, which takes whole chunks.
        std::pmr::synchronized_pool_resource pool(&resource);
        std::pmr::map<int, std::pmr::string> names(&pool);
        for (int number = 0; number < 10000; number++)
            names.emplace(number, "a name too long to be kept in the string itself");
        CHECK(freehold_contains(resource.get(), names[5000].data()));
        for (int number = 0; number < 10000; number += 2)
            names.erase(number);
        CHECK(names.size() == 5000 && allocated(resource) > 0);
    }
    CHECK(allocated(resource) == 0);

    // Alignments, odd sizes.
    for (std::size_t alignment = 1; alignment <= std::size_t{1} << 21; alignment *= 2) {
        for (std::size_t bytes : {std::size_t{0}, std::size_t{4097}, std::size_t{3000000}}) {
            void *block = resource.allocate(bytes, alignment);
            CHECK(reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
            std::memset(block, 1, bytes);
            resource.deallocate(block, bytes, alignment);
        }
    }
    try {
        (void)resource.allocate(std::size_t{1} << 40);
        CHECK(!"there is not so much");
    } catch (const std::bad_alloc &) {
    }
    CHECK(allocated(resource) == 0);
    std::puts("containers on an arena: fine");
    return 0;
}

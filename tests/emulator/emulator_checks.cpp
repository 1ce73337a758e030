/* The checks of compute-sanitizer, for the emulated GPU. Kernels are compiled with
 * -fsanitize=thread and -fsanitize=alignment; the compiler then calls the functions of this file
 * instead of the sanitizer libraries'.
 *
 *   memcheck   each access is inside one allocation of the GPU (or of pinned memory), or in shared
 *              memory
 *   alignment  a pack is loaded and stored at a multiple of its alignment
 *   racecheck  two accesses of a launch to the same bytes, one of them a write, are ordered: made
 *              by one thread, or separated by a barrier of the block or a __syncwarp of their warp
 *              (a shuffle does not order memory). Blocks are not ordered. Atomics do not race with
 *              atomics.
 *   initcheck  shared memory is read only after the block wrote it
 *
 * Time is counted in barriers. Blocks run one after another, so the time of an access identifies
 * its launch, its block and the accesses before it. For each two bytes, the last write and the
 * reads since then are stored. If two threads each write one byte of a pair, this is not reported
 * as a race, but the first write is forgotten.
 */
#include "emulator_checks.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <link.h>
#include <map>
#include <unordered_map>

#include "emulator_kernel.h"

namespace
{

constexpr uintptr_t PAGE = 4096, GRANULE = 2;
constexpr int MOST_LOOKS = 2;
constexpr uintptr_t RECENT = 4096; /* pages found without a search */
#ifdef EMULATOR_CHECKS
constexpr bool HAS_HOOKS = true;
#else
constexpr bool HAS_HOOKS =
    false; /* accesses of kernels are not reported here: a sanitizer checks them */
#endif

/* clock << 20 | thread << 10 | flags; 0: never. */
using mark = uint64_t;
enum : unsigned { BYTES = 3, ATOMIC = 4, MANY_THREADS = 8, MANY_WARPS = 16, MANY_BLOCKS = 32 };

struct cell {
    mark writer, reader;
};

enum page_kind { GLOBAL, SHARED, CONSTANT };

struct page {
    page_kind kind;
    uintptr_t first, end; /* the allocation that may be accessed */
    cell cells[PAGE / GRANULE];
};

std::unordered_map<uintptr_t, page *> pages;
struct {
    uintptr_t number;
    page *is;
} recent[RECENT];

struct {
    const char *kernel;
    bool is_looking;
    uintptr_t args, args_bytes, stack, stack_bytes;
    int thread;
} now;

uint64_t clock_now = 1, launch_at, block_at, barrier_at, warp_at[32];

enum access { READ, WRITE, ATOMIC_UPDATE };

const char *name_of(access what)
{
    return what == READ ? "reads" : what == WRITE ? "writes" : "updates";
}

/* The segment of a loaded module that contains p; GLOBAL means none. */
struct segment {
    uintptr_t p, first, end;
    page_kind kind;
};

int look_at_module(dl_phdr_info *module, size_t, void *arg)
{
    auto *s = (segment *)arg;
    for (int i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) &h = module->dlpi_phdr[i];
        const uintptr_t first = module->dlpi_addr + h.p_vaddr;
        if (h.p_type != PT_LOAD || s->p < first || s->p >= first + h.p_memsz)
            continue;
        const uintptr_t own = (uintptr_t)&emulator::emulator_thread; /* threadIdx is read from it */
        const bool is_shared = h.p_flags & PF_W && (own < first || own >= first + h.p_memsz);
        *s = {s->p, first, first + h.p_memsz, is_shared ? SHARED : CONSTANT};
        return 1;
    }
    return 0;
}

page *make_page(uintptr_t number)
{
    const void *first = nullptr;
    size_t bytes = 0;
    segment s = {number * PAGE, 0, 0, GLOBAL};
    if (emulator_allocation((const void *)(number * PAGE), &first, &bytes)) {
        s.first = (uintptr_t)first;
        s.end = s.first + bytes;
    } else {
        for (s.p = number * PAGE; s.kind == GLOBAL && s.p < (number + 1) * PAGE; s.p += 64)
            (void)dl_iterate_phdr(look_at_module, &s);
        if (s.kind == GLOBAL)
            return nullptr;
    }
    page *out = (page *)calloc(1, sizeof *out);
    if (out == nullptr)
        abort();
    out->kind = s.kind;
    out->first = s.first;
    out->end = s.end;
    return pages[number] = out;
}

page *find_page(uintptr_t number)
{
    const auto found = pages.find(number);
    page *const out = found != pages.end() ? found->second : make_page(number);
    if (out != nullptr)
        recent[number % RECENT] = {number, out};
    return out;
}

inline page *page_of(uintptr_t at)
{
    const uintptr_t number = at / PAGE;
    const auto &slot = recent[number % RECENT];
    return slot.is != nullptr && slot.number == number ? slot.is : find_page(number);
}

/* Whether the access `before` and this thread's current access are unordered. */
bool races(mark before, unsigned bytes, bool is_atomic)
{
    const uint64_t at = before >> 20;
    const int thread = (int)(before >> 10 & 1023);
    if (at < launch_at || !(before & bytes) || (is_atomic && before & ATOMIC))
        return false;
    if (before & MANY_BLOCKS || at < block_at)
        return true;
    if (at < barrier_at)
        return false;
    if (!(before & (MANY_THREADS | MANY_WARPS)) && thread == now.thread)
        return false;
    return before & MANY_WARPS || thread / 32 != now.thread / 32 || at >= warp_at[thread / 32];
}

mark mark_of(unsigned flags)
{
    return clock_now << 20 | (uint64_t)now.thread << 10 | flags;
}

/* Whether several warps have read all of the bytes since the barrier: a further read changes
 * nothing. */
inline bool is_read_by_warps(mark before, unsigned bytes)
{
    return before & MANY_WARPS && before >> 20 >= barrier_at && (before & bytes) == bytes;
}

/* The reads since the last write, including this one. */
mark with_reader(mark before, unsigned bytes)
{
    const uint64_t at = before >> 20;
    const int thread = (int)(before >> 10 & 1023);
    unsigned flags = bytes;
    if (at >= launch_at && (at < block_at || before & MANY_BLOCKS))
        flags |= MANY_BLOCKS;
    if (at >= barrier_at && before & bytes) {
        flags |= (unsigned)before & (BYTES | MANY_WARPS);
        if (thread / 32 != now.thread / 32)
            flags |= MANY_WARPS;
        else if (at >= warp_at[thread / 32] && (before & MANY_THREADS || thread != now.thread))
            flags |= MANY_THREADS;
    }
    return mark_of(flags);
}

[[noreturn]] void refuse_race(access what, mark before, const char *did, uintptr_t at)
{
    const uint64_t t = before >> 20;
    emulator_refuse("%s %s memory %#lx that %s %d of %s %s, and nothing orders the two",
                    name_of(what), page_of(at)->kind == SHARED ? "shared" : "global",
                    (unsigned long)at, before & MANY_THREADS ? "a thread near" : "thread",
                    (int)(before >> 10 & 1023),
                    t < block_at || before & MANY_BLOCKS ? "another block" : "the block", did);
}

#define INLINED inline __attribute__((always_inline))

/* The checks of one cell; `mark_now` is the mark of this access without flags of earlier ones. */
INLINED void look_at_cell(page *p, uintptr_t at, unsigned bytes, access what, mark mark_now)
{
    cell *const c = &p->cells[at % PAGE / GRANULE];
    const bool is_atomic = what == ATOMIC_UPDATE;
    if (p->kind == SHARED && c->writer >> 20 < block_at) { /* another block used this address */
        if (what != WRITE)
            emulator_refuse("%s shared memory %#lx that the block did not write", name_of(what),
                            (unsigned long)at);
        *c = {};
    }
    if (c->writer >> 20 >= launch_at && races(c->writer, bytes, is_atomic))
        refuse_race(what, c->writer, "wrote", at);
    if (what != READ) {
        if (c->reader >> 20 >= launch_at && races(c->reader, bytes, is_atomic))
            refuse_race(what, c->reader, "read", at);
        c->writer = mark_now;
    } else if (c->reader >> 20 < launch_at) { /* the first read of this launch */
        c->reader = mark_now;
    } else if (c->reader != mark_now && !is_read_by_warps(c->reader, bytes)) {
        c->reader = with_reader(c->reader, bytes);
    }
}

[[noreturn]] void refuse_place(const page *p, const void *address, size_t bytes, access what)
{
    emulator_refuse("%s %zu bytes at %p: %s", name_of(what), bytes, address,
                    p == nullptr        ? "no memory of the GPU"
                    : p->kind == GLOBAL ? "the allocation ends within them"
                                        : "not one variable");
}

/* Compiled once for each kind of access and each number of bytes (0: `n_bytes`, known at run time).
 */
template <access what, size_t fixed>
__attribute__((noinline)) void look_closely(const void *address, size_t n_bytes)
{
    const size_t bytes = fixed > 0 ? fixed : n_bytes;
    const uintptr_t first = (uintptr_t)address, end = first + bytes;
    const unsigned atomic = what == ATOMIC_UPDATE ? (unsigned)ATOMIC : 0u;
    uintptr_t at = first;
    while (at < end) { /* page by page */
        page *const p = page_of(at);
        if (p == nullptr || first < p->first || end > p->end)
            refuse_place(p, address, bytes, what);
        if (p->kind == CONSTANT && what == READ)
            return;
        const uintptr_t page_end = (at / PAGE + 1) * PAGE, stop = end < page_end ? end : page_end;
        if (at % GRANULE != 0) {
            look_at_cell(p, at, 2u, what, mark_of(2u | atomic));
            at++;
        }
        for (const mark whole = mark_of(BYTES | atomic); at + GRANULE <= stop; at += GRANULE)
            look_at_cell(p, at, BYTES, what, whole);
        if (at < stop) {
            look_at_cell(p, at, 1u, what, mark_of(1u | atomic));
            at++;
        }
    }
}

/* Most accesses of a kernel are to its own stack, or are not looked at. */
template <access what, size_t fixed> INLINED void look(const void *address, size_t bytes)
{
    const uintptr_t first = (uintptr_t)address;
    if (now.is_looking && first - now.stack >= now.stack_bytes &&
        (what != READ || first - now.args >= now.args_bytes))
        look_closely<what, fixed>(address, bytes);
}

} // namespace

void emulator_refuse(const char *format, ...)
{
    va_list arguments;
    const auto block = emulator::emulator_block, thread = emulator::emulator_thread;
    fprintf(stderr, "emulator: %s: ", now.kernel != nullptr ? now.kernel : "a kernel");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, " (block %u, thread %u)\n", block.x, thread.x);
    abort();
}

/* Later launches of a kernel with the same grid are not checked: they would find little more, and a
 * checked launch is many times slower. */
void emulator_checks_begin(const char *name, void (*kernel)(const void *), int64_t blocks,
                           const void *args, size_t args_bytes)
{
    static std::map<std::pair<void (*)(const void *), int64_t>, int> launches;
    const bool looks = HAS_HOOKS && launches[{kernel, blocks}]++ < MOST_LOOKS;
    now = {name, looks, (uintptr_t)args, args_bytes, 0, 0, 0};
    launch_at = ++clock_now;
}

void emulator_checks_end(void)
{
    now.is_looking = false;
    now.kernel = nullptr;
}

void emulator_checks_block(void)
{
    block_at = barrier_at = ++clock_now;
    for (uint64_t &at : warp_at)
        at = clock_now;
}

void emulator_checks_barrier(void)
{
    barrier_at = ++clock_now;
    for (uint64_t &at : warp_at)
        at = clock_now;
}

void emulator_checks_warp(int warp)
{
    warp_at[warp] = ++clock_now;
}

void emulator_checks_thread(int thread, const void *stack, size_t stack_bytes)
{
    now.thread = thread;
    now.stack = (uintptr_t)stack;
    now.stack_bytes = stack_bytes;
}

void emulator_checks_forget(const void *memory, size_t bytes)
{
    const uintptr_t first = (uintptr_t)memory / PAGE, last = ((uintptr_t)memory + bytes) / PAGE;
    for (uintptr_t number = first; number <= last; number++) {
        const auto found = pages.find(number);
        if (found == pages.end())
            continue;
        if (recent[number % RECENT].is == found->second)
            recent[number % RECENT].is = nullptr;
        free(found->second);
        pages.erase(found);
    }
}

void emulator::emulator_atomic(const void *at, size_t bytes)
{
    look<ATOMIC_UPDATE, 0>(at, bytes);
}

/* ---- called by compiled kernels; in a build with a sanitizer, its functions are called instead
 * ---- */

#ifdef EMULATOR_CHECKS
extern "C" {

#define ACCESSES(n)                                                                                \
    void __tsan_read##n(void *p)                                                                   \
    {                                                                                              \
        look<READ, n>(p, n);                                                                       \
    }                                                                                              \
    void __tsan_write##n(void *p)                                                                  \
    {                                                                                              \
        look<WRITE, n>(p, n);                                                                      \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p)                                                         \
    {                                                                                              \
        look<READ, n>(p, n);                                                                       \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p)                                                        \
    {                                                                                              \
        look<WRITE, n>(p, n);                                                                      \
    }

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
#undef ACCESSES

void __tsan_read_range(void *p, unsigned long bytes)
{
    look<READ, 0>(p, bytes);
}

void __tsan_write_range(void *p, unsigned long bytes)
{
    look<WRITE, 0>(p, bytes);
}

void __tsan_init(void)
{
}

void __tsan_func_entry(void *)
{
}

void __tsan_func_exit(void)
{
}

/* Argument of -fsanitize=alignment; its first member is the place in the source. */
struct mismatch {
    const char *file;
    uint32_t line, column;
    const void *type;
    unsigned char log_alignment, kind;
};

void __ubsan_handle_type_mismatch_v1_abort(const mismatch *m, const void *p)
{
    emulator_refuse("%s:%u: %p is no multiple of %u", m->file, m->line, p, 1u << m->log_alignment);
}

} // extern "C"
#endif

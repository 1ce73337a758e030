/* The loops of products with activations of 8 bits, with and without dot products of bytes: each
 * sum is that of whole numbers. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/rng.h"
#include "support/build_folder.h"

/* Sizes of kernels/cpu/products/int8_loops.h, which is for vectors of one width. */
enum { OUTPUTS = 64, MOST_ROWS = 8, MOST_STRIDE = 320 };

typedef struct int8_panel {
    const uint8_t *codes;
    const int8_t *x;
    int64_t stride;
    int32_t *sums;
} int8_panel;

typedef struct int8_lines {
    const uint8_t *codes;
    int64_t n, k;
    const int8_t *x;
    int64_t stride;
    int32_t *sums;
} int8_lines;

typedef struct int8_loops {
    void (*panel)(const int8_panel *p, int64_t rows);
    void (*lines)(const int8_lines *p, int64_t rows);
} int8_loops;

typedef const int8_loops *(*loops_fn)(int dots);

typedef struct build {
    const char *name;
    int64_t tile, rows; /* outputs of a panel; most rows of x */
} build;

static const build builds[] = {{"avx2", 16, 4}, {"avx512", 64, 6}};

static int runs_here(int i)
{
    return i == 0 ? __builtin_cpu_supports("avx2")
                  : __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

static loops_fn loops_of(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tests/int8_loops/%s.so", lathe_test_build(), name);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(so, "%s", dlerror());
    const loops_fn loops = (loops_fn)(uintptr_t)dlsym(so, "cpu_int8_loops");
    cr_assert_not_null(loops);
    return loops;
}

/* Codes of all values, the ends more often than others. */
static int8_t code_at(uint64_t seed, int64_t i)
{
    const uint32_t r = lathe_rng_block(seed, 0, 5, (uint64_t)i).v[0];
    return r % 5 == 0 ? (int8_t)(r & 8 ? 127 : -128) : (int8_t)(r >> 8);
}

static int8_t w[OUTPUTS * MOST_STRIDE], x[MOST_ROWS * MOST_STRIDE];

static int32_t want(int64_t row, int64_t output, int64_t k, int64_t stride)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += (w[output * k + i] + 128) * x[row * stride + i];
    return sum;
}

static void fill(int64_t k, int64_t stride)
{
    for (int64_t i = 0; i < OUTPUTS * k; i++)
        w[i] = code_at(1, i);
    memset(x, 0, sizeof x);
    for (int64_t r = 0; r < MOST_ROWS; r++)
        for (int64_t i = 0; i < k; i++)
            x[r * stride + i] = code_at(2, r * k + i);
}

static void check_panel(const build *b, const int8_loops *loops, int64_t k, int64_t stride)
{
    static uint8_t packed[OUTPUTS * MOST_STRIDE];
    int32_t sums[MOST_ROWS * OUTPUTS];
    memset(packed, 128, sizeof packed);
    for (int64_t o = 0; o < b->tile; o++)
        for (int64_t i = 0; i < k; i++)
            packed[(i / 4 * b->tile + o) * 4 + i % 4] = (uint8_t)(w[o * k + i] + 128);
    for (int64_t rows = 1; rows <= b->rows; rows++) {
        const int8_panel p = {packed, x, stride, sums};
        loops->panel(&p, rows);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t o = 0; o < b->tile; o++)
                cr_assert_eq(sums[r * OUTPUTS + o], want(r, o, k, stride),
                             "%s: panel of %d columns, row %d of %d, output %d", b->name, (int)k,
                             (int)r, (int)rows, (int)o);
    }
}

static void check_lines(const build *b, const int8_loops *loops, int64_t k, int64_t stride)
{
    int32_t sums[MOST_ROWS * OUTPUTS];
    for (int64_t rows = 1; rows <= 4; rows++)
        for (int64_t n = 1; n <= OUTPUTS; n += 9) {
            const int8_lines p = {(const uint8_t *)w, n, k, x, stride, sums};
            loops->lines(&p, rows);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t o = 0; o < n; o++)
                    cr_assert_eq(sums[r * OUTPUTS + o], want(r, o, k, stride),
                                 "%s: %d lines of %d columns, row %d of %d, output %d", b->name,
                                 (int)n, (int)k, (int)r, (int)rows, (int)o);
        }
}

Test(int8_loops, sums_are_those_of_whole_numbers)
{
    static const int64_t columns[] = {1, 31, 32, 33, 63, 64, 65, 100, 128, 257, 320};
    for (int i = 0; i < 2; i++) {
        if (!runs_here(i))
            continue;
        const loops_fn loops = loops_of(builds[i].name);
        for (int dots = 0; dots < 2; dots++)
            for (int c = 0; c < 11; c++) {
                const int64_t k = columns[c], stride = (k + 63) / 64 * 64;
                fill(k, stride);
                check_panel(&builds[i], loops(dots), k, stride);
                check_lines(&builds[i], loops(dots), k, stride);
            }
    }
}

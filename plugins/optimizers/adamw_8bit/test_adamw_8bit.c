/* AdamW in 8 bits: the maps and codes of bitsandbytes, nearest codes, state bytes, and refusals. */
#include "shared/dynamic_codes.h"
#include "support/optimizer_golden.h"

Test(adamw_8bit, maps_are_those_of_bitsandbytes_to_the_bit)
{
    int64_t bytes;
    float *const want = fixture_golden("optimizers/dynamic_maps.f32", &bytes), got[512];
    cr_assert_eq(bytes, (int64_t)sizeof got);
    lathe_dynamic_map(got, 1);
    lathe_dynamic_map(got + 256, 0);
    cr_assert_arr_eq(got, want, sizeof got);
    free(want);
}

/* Compares the codes of both moments. A value within f32's rounding of the midpoint between two
 * codes may get either code; later values of the same element then differ too. */
static int64_t compare_codes(const optimizer_case *c, const lathe_optimizer_v1 *table, void *self,
                             const float *want)
{
    int64_t n = 0, apart = 0;
    (void)table, (void)self;
    for (int s = 0; s < 2; s++)
        for (int32_t k = 0; k < c->n_tensors; k++) {
            const uint8_t *const codes = c->tensors[k].slots[s];
            for (int64_t i = 0; i < c->tensors[k].n; i++, n++) {
                const int difference = abs((int)codes[i] - (int)want[n]);
                cr_assert(difference <= 1, "slot %d tensor %d element %d: code %d, want %d", s, k,
                          (int)i, codes[i], (int)want[n]);
                apart += difference;
            }
        }
    cr_assert(apart <= n / 200, "%d of %d codes differ", (int)apart, (int)n);
    return n;
}

Test(adamw_8bit, follows_bitsandbytes_for_300_steps)
{
    golden_follow(&(golden_run){.file = "adamw_8bit.f32",
                                .settings = "lr=1e-3 beta2=0.95 weight_decay=0.1 min_8bit_size=0",
                                .tolerance = 1e-4,
                                .rest = compare_codes});
}

Test(adamw_8bit, small_tensors_are_adamw)
{
    golden_follow(&(golden_run){.file = "adamw_mixed.f32",
                                .settings = "lr=1e-3 beta2=0.95 weight_decay=0.1",
                                .n_slots = 2});
}

/* Compares a sample of all numbers in -1 .. 1 with a search among the edges. Results that are not
 * in doubt must be right, and few may be in doubt. */
static void check_codes(int is_signed)
{
    lathe_dynamic_book b;
    int64_t n = 0, in_doubt = 0;
    lathe_dynamic_book_init(&b, is_signed);
    for (uint32_t bits = 0; bits <= 0x3f800000u; bits += bits % 64 + 997)
        for (uint32_t sign = 0; sign <= (is_signed ? 0x80000000u : 0u); sign += 0x80000000u, n++) {
            const uint32_t word = bits | sign;
            float y;
            memcpy(&y, &word, sizeof y);
            int32_t want = 0, doubt;
            for (int32_t half = 128; half > 0; half /= 2)
                want += y > b.edge[want + half - 1] ? half : 0;
            const int32_t near = lathe_dynamic_near(&b.lines, y, &doubt);
            in_doubt += doubt;
            cr_assert(doubt ? abs(near - want) <= 1 : near == want, "%.9g: %d, want %d", (double)y,
                      near, want);
            cr_assert_eq(lathe_dynamic_code(&b, y), want, "%.9g", (double)y);
            if (sign != 0)
                break;
        }
    cr_assert(in_doubt < n / 2000, "%d of %d", (int)in_doubt, (int)n);
    for (int32_t k = 0; k < 256; k++)
        cr_assert_eq(lathe_dynamic_code(&b, b.value[k]), k);
}

Test(adamw_8bit, places_by_lines_are_the_nearest_codes)
{
    check_codes(0);
    check_codes(1);
}

/* Encodes and decodes n numbers, compared with one at a time. absmax: as the optimizer gives it, or
 * NaN. */
static void check_row(const lathe_dynamic_codec *c, const float *x, float absmax, int64_t n)
{
    enum { MAX = 4096 };
    static uint8_t codes[MAX + 1];
    static float back[MAX + 1];
    const float max = absmax > 0.0f ? absmax : 1.0f;
    memset(codes, 77, sizeof codes);
    memset(back, 77, sizeof back);
    const float behind = back[n];
    lathe_dynamic_encode(c, x, absmax, codes, n);
    lathe_dynamic_decode(c, codes, back, n);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t want = (uint8_t)lathe_dynamic_code(&c->book, x[i] / max);
        cr_assert_eq(codes[i], want, "%.9g of %.9g: code %d, want %d", (double)x[i], (double)max,
                     codes[i], want);
        cr_assert_eq(memcmp(&back[i], &c->book.value[want], sizeof *back), 0);
    }
    cr_assert_eq(codes[n], 77);
    cr_assert_eq(memcmp(&back[n], &behind, sizeof behind), 0);
}

/* Tests numbers around every edge, each alone in its group of 64, because one doubt affects the
 * whole group; and numbers of every magnitude. */
static void check_rows(int is_signed)
{
    enum { N = 4096, GROUP = 64 };
    static lathe_dynamic_codec c;
    static float x[N];
    lathe_dynamic_codec_init(&c, is_signed);
    for (int k = 0; k < 255; k++)
        for (int away = -48; away < 48; away += GROUP / 2) {
            for (int g = 0; g < GROUP / 2; g++) {
                /* steps of one up to 16, then growing steps, up to 2^-7 of the number */
                const int n = away + g, far = abs(n) <= 16 ? abs(n) : 1 << (abs(n) - 16) / 2;
                int32_t bits;
                memcpy(&bits, &c.book.edge[k], sizeof bits);
                bits += n < 0 ? -far : far;
                for (int i = 0; i < GROUP; i++)
                    memcpy(&x[g * GROUP + i], &bits, sizeof bits);
            }
            check_row(&c, x, 1.0f, GROUP / 2 * GROUP);
        }
    for (uint64_t round = 0; round < 300; round++) {
        const int is_tiny = round % 10 == 9;
        float absmax = 0.0f;
        for (int i = 0; i < N; i++) {
            const float u = case_uniform(71, round, i), v = case_uniform(72, round, i);
            x[i] = ldexpf(1.0f + u * u, (int)(v * 17.0f) - 17 - (is_tiny ? 110 : 0));
            x[i] = is_signed && case_uniform(73, round, i) < 0.0f ? -x[i] : x[i];
            absmax = fmaxf(absmax, fabsf(x[i]));
        }
        check_row(&c, x, absmax, round < 200 ? (int64_t)round + 1 : N);
    }
    memset(x, 0, sizeof x);
    check_row(&c, x, 0.0f, 256);
    x[70] = NAN;
    check_row(&c, x, NAN, 256);
    x[70] = INFINITY;
    check_row(&c, x, INFINITY, 256);
}

Test(adamw_8bit, rows_have_the_codes_of_their_elements)
{
    check_rows(0);
    check_rows(1);
}

Test(adamw_8bit, state_is_two_bytes_and_a_scale_per_block)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    lathe_param_info info = golden_info(0);
    lathe_slot slots[LATHE_MAX_SLOTS];
    int64_t bytes = 0;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "", &self), LATHE_OK);
    info.desc = lathe_desc_2d(LATHE_F32, 64, 256);
    const int32_t n = table->slots(self, &info, slots);
    for (int32_t s = 0; s < n; s++)
        bytes += lathe_desc_bytes(&slots[s].desc);
    cr_assert_eq(bytes, 64 * (2 * 256 + 2 * 4)); /* 2.03125 per parameter */
}

/* The values of all codes, the edges between codes and the ends of the range are encoded
 * exactly. */
Test(adamw_8bit, codes_are_the_nearest)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "lr=0 beta1=0 beta2=0 min_8bit_size=0", &self),
                 LATHE_OK);
    float map[256];
    lathe_dynamic_map(map, 1);
    for (int round = 0; round < 52; round++) {
        /* the last rounds use subnormal numbers, then numbers whose inverses overflow */
        const float unit = round < 50 ? 1.0f : round == 50 ? 0x1p-127f : 0x1p-130f;
        optimizer_case c = {0};
        case_add(&c, 1, 256, 0, 0.0);
        for (int s = 0; s < 4; s++)
            c.tensors[0].slots[s] = calloc(256, sizeof(float));
        for (int i = 0; i < 256; i++) {
            /* round 0: the map; 1: just beside the midpoints; then random numbers */
            const float next = map[i < 255 ? i + 1 : i], middle = (map[i] + next) / 2.0f;
            c.grads[0][i] =
                unit * (round == 0   ? map[i]
                        : round == 1 ? middle * (i % 2 ? 1.00001f : 0.99999f)
                                     : powf(case_uniform(70, (uint64_t)round, i), 3.0f));
        }
        c.grads[0][255] = unit; /* absmax */
        case_scalars(&c, table, self, 1, 0.0, 1.0);
        cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
        const uint8_t *const codes = c.tensors[0].slots[0];
        for (int i = 0; i < 256; i++) {
            const double y = (double)c.grads[0][i] / (double)unit;
            double best = 10.0;
            for (int k = 0; k < 256; k++) {
                const double d = fabs(y - (double)map[k]);
                best = d < best ? d : best;
            }
            const double got = fabs(y - (double)map[codes[i]]);
            cr_assert(got <= best + 1e-8, "round %d: %.9g got code %d, off by %g instead of %g",
                      round, y, codes[i], got, best);
        }
        case_free(&c);
    }
}

Test(adamw_8bit, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1",           "beta1=1",          "beta2=nan", "eps=-1",
                                      "weight_decay=-1", "min_8bit_size=-1", NULL};
    golden_refuses(bad);
}

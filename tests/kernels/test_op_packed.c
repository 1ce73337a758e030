/* Products with a weight in planes, on the CPU. With few rows, and with rows that may not depend on
 * the others, they have the bits of the product with the decoded weight; else sums have another
 * order. In bf16 with VDPBF16PS, formats that describe their codes have bits of their own: those of
 * a row depend neither on the others nor on the workers, and are as near to the exact product. */
#include "kernels/op_harness.h"
#include "lathe/kit/testing.h"
#include "plug/host_table.h"
#include "quant_weights.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
enum { MAX_WEIGHTS = 3 };

typedef struct format {
    const char *name, *settings;
    int64_t rows, cols; /* several parts of rows and of columns, with short last ones */
} format;

/* Row by row, transposed, runs of rows that share bytes, and blocks of rows. */
static const format formats[] = {
    {"nf4", "", 331, 1091},
    {"nf4", "", 331, 1088},
    {"mxfp4", "", 331, 1056},
    {"int8", "", 331, 64},
    {"gptq", "", 344, 1088},
    {"awq", "group_size=64", 344, 704},
    {"hqq", "", 332, 1088},
    {"hqq", "bits=2", 332, 2112},
    {"fp8", "", 331, 1091},
    {"nvfp4", "", 331, 1072}, /* parts of many outputs; an awq whose codes are not turned */
    {"gptq", "", 1096, 640},
    {"awq", "group_size=64", 1288, 576},
    {"awq", "group_size=32", 136, 608},
    {"nf4", "double_quant=false", 331, 192}, /* codes in bf16: every loop, short steps and groups */
    {"nvfp4", "layout=modelopt", 45, 2064},
    {"int8", "", 331, 1091},
    {"eetq", "", 330, 1088},
    {"fp8", "scaling=row", 131, 1091},
    {"hqq", "group_size=32", 332, 1056},
    {"hqq", "bits=1", 336, 1088},
    {"hqq", "bits=2 group_size=32", 332, 1056},
    {"hqq", "bits=8 group_size=16", 45, 1040},
    {"gptq", "bits=2 group_size=32", 336, 1056},
    {"gptq", "bits=8", 344, 640},
    {"awq", "", 2056, 1152},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

typedef struct weight {
    const lathe_plugin *plugin;
    lathe_packed_weight packed;
    int64_t rows, cols;
    planes p;
    const void *in[LATHE_MAX_PLANES];
} weight;

static weight weight_of(const format *f)
{
    char path[4096];
    weight x = {.rows = f->rows, .cols = f->cols};
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/quant/%s.so", lathe_test_build(),
                   f->name);
    x.plugin = lathe_test_open(path);
    cr_assert_eq(lathe_test_create(x.plugin, f->settings, &x.packed.self), LATHE_OK, "%s",
                 lathe_test_message);
    x.packed.table = x.plugin->table;
    x.p = planes_of(x.packed.table, x.packed.self, f->rows, f->cols);
    float *w = golden_weights(10, f->rows * f->cols);
    cr_assert_eq(x.packed.table->encode(x.packed.self, f->rows, f->cols, w, x.p.data), LATHE_OK,
                 "%s", lathe_test_message);
    free(w);
    for (int32_t i = 0; i < x.p.n; i++)
        x.in[i] = x.p.data[i];
    return x;
}

static void weight_free(weight *x)
{
    planes_free(&x->p);
    x->plugin->destroy(x->packed.self);
}

static void *decoded(const weight *x, int32_t dtype)
{
    void *const w = malloc((size_t)(x->rows * x->cols * lathe_dtype_bytes(dtype)));
    cr_assert_eq(
        x->packed.table->decode(x->packed.self, x->rows, x->cols, x->in, w, dtype, NULL, NULL),
        LATHE_OK);
    return w;
}

/* One product, or several of one x, with each weight as it is or decoded. */
typedef struct product {
    int32_t op, dtype, n; /* n: weights */
    int64_t m;
    lathe_op_attrs attrs;
    const weight *weights[MAX_WEIGHTS];
    int32_t is_packed[MAX_WEIGHTS];
    int32_t adds, has_bias, has_z;
    int64_t first;   /* row of the noise that is the first of x */
    int32_t is_tiny; /* x and its products are near the smallest normal numbers, and below */
} product;

static int64_t in_width(const product *p)
{
    const int is_dx = p->op == LATHE_OP_LINEAR_DX || p->op == LATHE_OP_LINEAR_DX_GELU;
    return is_dx ? p->weights[0]->rows : p->weights[0]->cols;
}

static int64_t out_width(const product *p, int32_t i)
{
    const int is_dx = p->op == LATHE_OP_LINEAR_DX || p->op == LATHE_OP_LINEAR_DX_GELU;
    return is_dx ? p->weights[i]->cols : p->weights[i]->rows;
}

static void *noise_from(int64_t first, int64_t n, int32_t dtype, uint64_t seed)
{
    void *const x = aligned_alloc(64, (size_t)((n * 4 + 63) / 64 * 64));
    for (int64_t i = 0; i < n; i++)
        op_store(x, dtype, i, op_noise(seed, first + i));
    return x;
}

static void *noise(int64_t n, int32_t dtype, uint64_t seed)
{
    return noise_from(0, n, dtype, seed);
}

/* The rows of x. */
static void *x_of(const product *p)
{
    const int64_t n = p->m * in_width(p);
    void *const x = noise_from(p->first * in_width(p), n, p->dtype, 1);
    for (int64_t i = 0; p->is_tiny && i < n; i++)
        op_store(x, p->dtype, i, op_load(x, p->dtype, i) * 0x1p-122);
    return x;
}

/* Runs the product; out[i] is new memory. */
static void run(const op_build *b, const product *p, void **out)
{
    lathe_desc in[LATHE_OP_MAX_IN], outs[LATHE_OP_MAX_OUT];
    const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    lathe_packed_weight weights[LATHE_OP_MAX_IN] = {{NULL, NULL}};
    const void *pointers[LATHE_OP_MAX_IN] = {NULL};
    void *memory[LATHE_OP_MAX_IN + 1] = {NULL};
    const int is_joined = p->op == LATHE_OP_LINEARS;
    const int32_t n_in = is_joined ? 7 : p->op == LATHE_OP_LINEAR_DX ? 2 : 3;
    for (int i = 0; i < LATHE_OP_MAX_IN; i++)
        in[i] = absent;
    for (int i = 0; i < LATHE_OP_MAX_OUT; i++)
        outs[i] = absent;
    in[0] = lathe_desc_2d(p->dtype, p->m, in_width(p));
    pointers[0] = memory[0] = x_of(p);
    for (int32_t i = 0; i < p->n; i++) {
        const weight *w = p->weights[i];
        const int32_t k = 1 + 2 * i;
        in[k] = lathe_desc_2d(p->is_packed[i] ? LATHE_PLANES : p->dtype, w->rows, w->cols);
        if (p->is_packed[i])
            weights[k] = w->packed;
        else
            memory[k] = decoded(w, p->dtype);
        pointers[k] = p->is_packed[i] ? (const void *)w->in : memory[k];
        outs[i] = lathe_desc_2d(p->dtype, p->m, out_width(p, i));
        out[i] = noise(p->m * out_width(p, i), p->dtype, 7); /* what is added to */
        if (p->has_bias) {
            in[k + 1] = lathe_desc_1d(LATHE_F32, w->rows);
            pointers[k + 1] = memory[k + 1] = noise(w->rows, LATHE_F32, 9);
        }
    }
    if (p->op == LATHE_OP_LINEAR_DX_GELU) {
        in[2] = outs[0];
        pointers[2] = memory[2] = noise(p->m * out_width(p, 0), p->dtype, 11);
    }
    if (p->has_z) {
        outs[1] = outs[0];
        out[1] = noise(p->m * out_width(p, 0), p->dtype, 13);
    }
    const lathe_kernel_problem problem = {.size = sizeof problem,
                                          .op = p->op,
                                          .attrs = &p->attrs,
                                          .in = in,
                                          .out = outs,
                                          .n_in = n_in,
                                          .n_out = is_joined ? 3 : 1 + p->has_z,
                                          .may_accumulate = (uint32_t)p->adds,
                                          .may_overwrite = 1,
                                          .n_threads = lathe_host_get()->n_threads(),
                                          .weights = weights};
    lathe_kernel *k = NULL;
    int64_t bytes = 0;
    cr_assert_eq(b->device->kernel_create(b->self, &problem, &k, &bytes), LATHE_OK, "op %d",
                 (int)p->op);
    char *const scratch = aligned_alloc(64, (size_t)((bytes + 64) / 64 * 64 + 64));
    memset(scratch, 0x7f, (size_t)bytes + 64);
    const lathe_kernel_args args = {.size = sizeof args,
                                    .accumulate = (uint32_t)p->adds,
                                    .in = pointers,
                                    .out = out,
                                    .scratch = scratch};
    cr_assert_eq(b->device->kernel_run(b->self, k, &args), LATHE_OK);
    for (int i = 0; i < 64; i++)
        cr_assert_eq(scratch[bytes + i], 0x7f, "op %d writes past its scratch", (int)p->op);
    b->device->kernel_destroy(b->self, k);
    free(scratch);
    for (int i = 0; i <= LATHE_OP_MAX_IN; i++)
        free(memory[i]);
}

static void free_all(void **out)
{
    for (int i = 0; i < LATHE_OP_MAX_OUT; i++) {
        free(out[i]);
        out[i] = NULL;
    }
}

static int64_t bytes_of_out(const product *p, int32_t i)
{
    return p->m * out_width(p, i) * lathe_dtype_bytes(p->dtype);
}

/* Whether the device multiplies the codes of weight i and scales the sums. */
static int sums_codes(const op_build *b, const product *p, int32_t i)
{
    const weight *w = p->weights[i];
    const lathe_quant_v1 *table = w->packed.table;
    lathe_weight_codes codes = {0};
    return strcmp(b->plugin->name, "cpu_avx512_bf16") == 0 && p->dtype == LATHE_BF16 &&
           p->is_packed[i] && LATHE_HAS(table, codes) &&
           table->codes(w->packed.self, w->rows, w->cols, w->in, &codes) != 0;
}

/* The root of the mean square of the distances from the product in f64 of x and the weight as it
 * is decoded to f32, each as a share of the sum of magnitudes. */
static double error_of(const product *p, int32_t i, const void *y)
{
    const weight *w = p->weights[i];
    float *const values = decoded(w, LATHE_F32);
    void *const x = x_of(p);
    float *const bias = p->has_bias ? noise(w->rows, LATHE_F32, 9) : NULL;
    double squares = 0.0;
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t o = 0; o < w->rows; o++) {
            double sum = bias != NULL ? (double)bias[o] : 0.0, all = fabs(sum);
            for (int64_t c = 0; c < w->cols; c++) {
                const double one =
                    (double)values[o * w->cols + c] * op_load(x, p->dtype, r * w->cols + c);
                sum += one;
                all += fabs(one);
            }
            const double off = op_load(y, p->dtype, r * w->rows + o) - sum;
            squares += all > 0.0 ? off * off / (all * all) : off * off;
        }
    free(bias);
    free(x);
    free(values);
    return sqrt(squares / (double)(p->m * w->rows));
}

/* got: result i with codes that are summed; want: that with the decoded weight. Rows have the same
 * bits alone, and are as near to the exact product. */
static void expect_sums(const op_build *b, const product *p, int32_t i, const void *got,
                        const void *want, const char *what)
{
    const int64_t width = out_width(p, i) * lathe_dtype_bytes(p->dtype);
    product alone = *p;
    alone.m = 1;
    for (int64_t r = 0; r<p->m; r += p->m> 2 ? p->m / 2 : 1) {
        void *one[LATHE_OP_MAX_OUT] = {NULL};
        alone.first = p->first + r;
        run(b, &alone, one);
        cr_assert_eq(memcmp(one[i], (const char *)got + r * width, (size_t)width), 0,
                     "%s %s: row %d of %d has other bits alone", b->plugin->name, what, (int)r,
                     (int)p->m);
        free_all(one);
    }
    const double off = error_of(p, i, got), before = error_of(p, i, want);
    /* the two differ by chance; of tiny x, VDPBF16PS takes some for zeros */
    const double chance = 3.0 * before / sqrt((double)(p->m * out_width(p, i)));
    cr_assert(off <= before + chance + (p->is_tiny ? 0x1p-4 : 0.0),
              "%s %s, %d rows: error %g, decoded %g", b->plugin->name, what, (int)p->m, off,
              before);
}

/* oneDNN cuts sums of f32, and of bf16 that the processor multiplies, by the sizes of a product; a
 * block of the weight has as many rows as the workers need. */
static int depends_on_workers(const op_build *b, const product *p)
{
    return p->dtype == LATHE_F32 ||
           (p->dtype == LATHE_BF16 && strcmp(b->plugin->name, "cpu_avx512_bf16") == 0);
}

/* How often a result is rounded: each time, two nearly equal sums may get one unit apart. */
static double roundings_of(const product *p)
{
    return p->op == LATHE_OP_LINEAR_GELU || p->op == LATHE_OP_LINEAR_DX_GELU ? 2.0 : 1.0;
}

/* Compares with the product of the decoded weights: bits, or sums in another order. */
static void expect_product(const op_build *b, const product *p, int is_exact, const char *what)
{
    void *got[LATHE_OP_MAX_OUT] = {NULL}, *again[LATHE_OP_MAX_OUT] = {NULL};
    void *want[LATHE_OP_MAX_OUT] = {NULL};
    product plain = *p;
    memset(plain.is_packed, 0, sizeof plain.is_packed);
    lathe_parallel_init(1);
    run(b, p, again);
    lathe_parallel_init(2);
    run(b, p, got);
    run(b, &plain, want);
    for (int32_t i = 0; i < p->n; i++) {
        const int64_t n = p->m * out_width(p, i);
        const double unit = p->dtype == LATHE_F32 ? 0.0 : p->dtype == LATHE_BF16 ? 0x1p-7 : 0x1p-10;
        double largest = 0.0;
        if (is_exact || !depends_on_workers(b, p))
            cr_assert_eq(memcmp(got[i], again[i], (size_t)bytes_of_out(p, i)), 0,
                         "%s %s: op %d, dtype %d, %d rows: result %d depends on the workers",
                         b->plugin->name, what, (int)p->op, (int)p->dtype, (int)p->m, (int)i);
        if (is_exact && sums_codes(b, p, i)) {
            expect_sums(b, p, i, got[i], want[i], what);
            continue;
        }
        if (is_exact) {
            cr_assert_eq(memcmp(got[i], want[i], (size_t)bytes_of_out(p, i)), 0,
                         "%s %s: op %d, dtype %d, %d rows: other bits in result %d",
                         b->plugin->name, what, (int)p->op, (int)p->dtype, (int)p->m, (int)i);
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            largest = fmax(largest, fabs(op_load(want[i], p->dtype, j)));
        for (int64_t j = 0; j < n; j++) {
            const double x = op_load(got[i], p->dtype, j), y = op_load(want[i], p->dtype, j);
            cr_assert(fabs(x - y) <=
                          roundings_of(p) * unit * fabs(y) + 2.0 * slack_of(in_width(p)) * largest,
                      "%s %s: op %d, dtype %d, %d rows: result %d [%d] is %g, expected %g",
                      b->plugin->name, what, (int)p->op, (int)p->dtype, (int)p->m, (int)i, (int)j,
                      x, y);
        }
    }
    free_all(got);
    free_all(again);
    free_all(want);
}

typedef void (*check_fn)(const op_build *b, const weight *w, int32_t dtype, const char *what);

static void on_every_build(check_fn check)
{
    int n_checked = 0;
    for (int k = 0; k < N_FORMATS; k++) {
        weight w = weight_of(&formats[k]);
        for (int i = 0; i < N_ISAS; i++) {
            op_build b = {0};
            if (!op_open(op_isas[i], &b))
                continue;
            cr_assert_eq(b.info.packed_weights, 1);
            for (int d = 0; d < 3; d++, n_checked++)
                check(&b, &w, dtypes[d], formats[k].name);
            op_close(&b);
        }
        weight_free(&w);
    }
    cr_expect_geq(n_checked, 3 * N_FORMATS);
}

/* Rows of decoding; rows of prompts, which may not depend on each other; rows of training. */
static void check_linear(const op_build *b, const weight *w, int32_t dtype, const char *what)
{
    static const int64_t few[] = {1, 2, 3, 5, 8}, invariant[] = {13, 16, 17, 70};
    product p = {.op = LATHE_OP_LINEAR, .dtype = dtype, .n = 1, .weights = {w}, .is_packed = {1}};
    for (int i = 0; i < 5; i++) {
        p.m = few[i];
        p.has_bias = i % 2;
        expect_product(b, &p, 1, what);
    }
    for (p.is_tiny = 1, p.m = 1; p.m <= 8; p.m += 7)
        expect_product(b, &p, 1, what);
    p.is_tiny = 0;
    p.attrs.invariant = 1;
    for (int i = 0; i < 4; i++) {
        p.m = invariant[i];
        expect_product(b, &p, 1, what);
    }
    p.attrs.invariant = 0;
    p.has_bias = 1;
    p.m = 40;
    expect_product(b, &p, 0, what);
    p.op = LATHE_OP_LINEAR_GELU;
    p.has_z = 1;
    expect_product(b, &p, 0, what);
}

Test(packed, linear_is_that_of_the_decoded_weight)
{
    on_every_build(check_linear);
}

static void check_dx(const op_build *b, const weight *w, int32_t dtype, const char *what)
{
    product p = {
        .op = LATHE_OP_LINEAR_DX, .dtype = dtype, .n = 1, .weights = {w}, .is_packed = {1}};
    for (p.adds = 0; p.adds < 2; p.adds++)
        for (p.m = 3; p.m < 80; p.m += 60)
            expect_product(b, &p, 0, what);
    p.adds = 0;
    p.op = LATHE_OP_LINEAR_DX_GELU;
    expect_product(b, &p, 0, what);
}

Test(packed, linear_dx_is_that_of_the_decoded_weight)
{
    on_every_build(check_dx);
}

/* A model may mix formats, and packed weights with plain ones. */
Test(packed, linears_may_mix_weights)
{
    static const format mixed[MAX_WEIGHTS] = {
        {"nf4", "", 77, 576}, {"gptq", "group_size=64", 200, 576}, {"hqq", "", 64, 576}};
    static const int64_t rows[] = {1, 8, 12, 40};
    weight w[MAX_WEIGHTS];
    for (int i = 0; i < MAX_WEIGHTS; i++)
        w[i] = weight_of(&mixed[i]);
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        if (!op_open(op_isas[i], &b))
            continue;
        for (int d = 0; d < 3; d++)
            for (int r = 0; r < 4; r++)
                for (int plain = 0; plain < 4; plain++) {
                    product p = {.op = LATHE_OP_LINEARS,
                                 .dtype = dtypes[d],
                                 .m = rows[r],
                                 .n = 3,
                                 .weights = {&w[0], &w[1], &w[2]},
                                 .is_packed = {plain != 0, plain != 1, plain != 2},
                                 .has_bias = r % 2};
                    p.attrs.invariant = rows[r] == 12;
                    expect_product(&b, &p, rows[r] <= 12, "mixed");
                }
        op_close(&b);
    }
    for (int i = 0; i < MAX_WEIGHTS; i++)
        weight_free(&w[i]);
}

/* ---- refusals ---- */

static lathe_status refusal(const op_build *b, int32_t op, const lathe_packed_weight *w,
                            int32_t fp8)
{
    const lathe_op_attrs attrs = {.fp8 = fp8};
    const lathe_desc in[3] = {lathe_desc_2d(LATHE_BF16, 16, 64),
                              lathe_desc_2d(LATHE_PLANES, 64, 64),
                              {LATHE_ABSENT, 0, {1, 1, 1, 1}}};
    const lathe_desc out = lathe_desc_2d(LATHE_BF16, 16, 64);
    lathe_packed_weight weights[3] = {{NULL, NULL}};
    const lathe_kernel_problem problem = {.size = sizeof problem,
                                          .op = op,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &out,
                                          .n_in = op == LATHE_OP_LINEAR ? 3 : 2,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .weights = w != NULL ? weights : NULL};
    lathe_kernel *k = NULL;
    int64_t bytes = 0;
    if (w != NULL)
        weights[1] = *w;
    const lathe_status status = b->device->kernel_create(b->self, &problem, &k, &bytes);
    if (status == LATHE_OK)
        b->device->kernel_destroy(b->self, k);
    return status;
}

Test(packed, refuses_what_it_cannot_multiply)
{
    static const format f = {"nf4", "", 64, 64};
    weight w = weight_of(&f);
    lathe_quant_v1 old = *w.packed.table;
    old.decode_part = NULL;
    const lathe_packed_weight without = {&old, w.packed.self};
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        if (!op_open(op_isas[i], &b))
            continue;
        cr_expect_eq(refusal(&b, LATHE_OP_LINEAR, &w.packed, 0), LATHE_OK);
        cr_expect_eq(refusal(&b, LATHE_OP_LINEAR, &w.packed, 1), LATHE_E_UNSUPPORTED);
        cr_expect_eq(refusal(&b, LATHE_OP_LINEAR, &without, 0), LATHE_E_UNSUPPORTED);
        cr_expect_eq(refusal(&b, LATHE_OP_LINEAR, NULL, 0), LATHE_E_ARG);
        cr_expect_eq(refusal(&b, LATHE_OP_MATMUL, &w.packed, 0), LATHE_E_UNSUPPORTED);
        op_close(&b);
    }
    op_build gpu = {0};
    (void)op_open_gpu(&gpu);
    cr_expect_eq(gpu.info.packed_weights, 0);
    cr_expect_eq(refusal(&gpu, LATHE_OP_LINEAR, &w.packed, 0), LATHE_E_UNSUPPORTED);
    op_close(&gpu);
    weight_free(&w);
}

/* Checks of devices: memory, copies, and a few kernels against double precision. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/conformance/suite.h"
#include "base/error.h"
#include "base/parallel.h"
#include "lathe/device.h"
#include "lathe/fp8.h"
#include "lathe/op.h"

enum { MAX_TENSORS = 3 };

typedef struct session {
    lathe__subject *s;
    lathe_instance instance;
    const lathe_device_v1 *table;
    lathe_device_info info;
} session;

/* SKIP when this machine cannot run the device. */
static lathe_status session_init(session *d, lathe__subject *s)
{
    char why[256] = "";
    *d = (session){.s = s, .table = s->table, .info = {.size = sizeof d->info}};
    if (d->table->score(why, sizeof why) == LATHE_SCORE_NO)
        return lathe__skip(s, "not on this machine: %s", why);
    LATHE_TRY(lathe__instance(s, &d->instance));
    const lathe_status status = d->table->info(d->instance.self, &d->info);
    if (status != LATHE_OK)
        lathe_instance_fini(&d->instance);
    return status;
}

static lathe_status scores_with_a_reason(lathe__subject *s)
{
    const lathe_device_v1 *table = s->table;
    char why[256] = "", again[256] = "";
    const int32_t score = table->score(why, sizeof why);
    if (score < 0 || score > 1000)
        return lathe_error(LATHE_E_PLUGIN, "score is %d", score);
    if (why[0] == '\0' || strchr(why, '\n') != NULL)
        return lathe_error(LATHE_E_PLUGIN, "score gives no line of reason");
    if (table->score(again, sizeof again) != score || strcmp(why, again) != 0)
        return lathe_error(LATHE_E_PLUGIN, "score answers otherwise the second time");
    char few[8] = "abcdefg";
    (void)table->score(few, 4);
    if (few[4] != 'e')
        return lathe_error(LATHE_E_CORRUPT, "score writes more than its capacity");
    lathe__note(s, "%d: %s", score, why);
    return LATHE_OK;
}

static lathe_status describes_the_machine(lathe__subject *s)
{
    session d;
    LATHE_TRY(session_init(&d, s));
    lathe_status status = LATHE_OK;
    if (d.info.n_workers < 1 || d.info.memory_bytes < 1 || d.info.model[0] == '\0' ||
        d.info.isa[0] == '\0' || !(d.info.compute_dtypes & 1u << LATHE_F32))
        status = lathe_error(LATHE_E_PLUGIN,
                             "info: %d workers, %lld bytes, model '%s', isa '%s', dtypes 0x%x",
                             d.info.n_workers, (long long)d.info.memory_bytes, d.info.model,
                             d.info.isa, d.info.compute_dtypes);
    lathe__note(s, "%s, %s", d.info.model, d.info.isa);
    lathe_instance_fini(&d.instance);
    return status;
}

/* Device memory with n bytes of host memory copied in (NULL: as it comes). */
static lathe_status put(session *d, const void *host, int64_t bytes, void **out)
{
    LATHE_TRY(d->table->alloc(d->instance.self, bytes, LATHE_MEM_DEVICE, out));
    if (host == NULL)
        return LATHE_OK;
    return d->table->copy(d->instance.self, NULL, *out, host, bytes, LATHE_COPY_TO_DEVICE);
}

static lathe_status get(session *d, const void *device, int64_t bytes, void *host)
{
    LATHE_TRY(d->table->copy(d->instance.self, NULL, host, device, bytes, LATHE_COPY_TO_HOST));
    return LATHE_HAS(d->table, sync) ? d->table->sync(d->instance.self, NULL) : LATHE_OK;
}

static lathe_status memory_round_trip(lathe__subject *s)
{
    enum { N = 10007 };
    session d;
    void *a = NULL, *b = NULL;
    LATHE_TRY(session_init(&d, s));
    const float *x = lathe__random(s, N, 1, 1.0);
    unsigned char *back = lathe__memory(s, N * 4);
    lathe_status status = put(&d, NULL, N * 4, &a);
    if (status == LATHE_OK)
        status = get(&d, a, N * 4, back);
    for (int64_t i = 0; i < N * 4 && status == LATHE_OK; i++)
        if (back[i] != 0)
            status = lathe_error(LATHE_E_PLUGIN, "fresh memory is not zero");
    if (status == LATHE_OK && d.info.host_memory && (uintptr_t)a % 64 != 0)
        status = lathe_error(LATHE_E_PLUGIN, "memory is not aligned to 64 bytes");
    if (status == LATHE_OK)
        status = put(&d, x, N * 4, &b);
    if (status == LATHE_OK)
        status = d.table->copy(d.instance.self, NULL, a, b, N * 4, LATHE_COPY_ON_DEVICE);
    if (status == LATHE_OK)
        status = get(&d, a, N * 4, back);
    if (status == LATHE_OK && !lathe__same(back, x, N * 4))
        status = lathe_error(LATHE_E_PLUGIN, "what was copied in does not come back");
    d.table->free(d.instance.self, a);
    d.table->free(d.instance.self, b);
    lathe_instance_fini(&d.instance);
    return status;
}

/* A kernel with its tensors in double; out[0] is compared. */
typedef struct kernel_case {
    const char *name;
    int32_t op, n_in, n_out;
    lathe_op_attrs attrs;
    lathe_desc in[MAX_TENSORS], out[MAX_TENSORS];
    void (*exact)(const struct kernel_case *c, double *const *in, double *out);
    double terms;         /* summed per element */
    const int64_t *whole; /* what an i64 input holds */
} kernel_case;

static void exact_linear(const kernel_case *c, double *const *in, double *out)
{
    const int64_t n = c->in[0].dims[0], k = c->in[0].dims[1], o = c->in[1].dims[0];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < o; j++) {
            double sum = in[2][j];
            for (int64_t e = 0; e < k; e++)
                sum += in[0][i * k + e] * in[1][j * k + e];
            out[i * o + j] = sum;
        }
}

/* The factor of row r of x [rows, cols]. */
static float fp8_factor(const double *x, int64_t rows, int64_t cols, int64_t r, int32_t recipe)
{
    const int64_t first = recipe == LATHE_FP8_ROWWISE ? r * cols : 0;
    const int64_t n = recipe == LATHE_FP8_ROWWISE ? cols : rows * cols;
    double most = 0.0;
    for (int64_t i = first; i < first + n; i++)
        most = fmax(most, fabs(x[i]));
    return lathe_fp8_scale((float)most, LATHE_F8_E4M3, recipe);
}

static double through_fp8(double x, float factor)
{
    return (double)lathe_e4m3_to_f32(lathe_f32_to_e4m3((float)x * factor)) / (double)factor;
}

static void exact_fp8_linear(const kernel_case *c, double *const *in, double *out)
{
    const int64_t n = c->in[0].dims[0], k = c->in[0].dims[1], o = c->in[1].dims[0];
    for (int64_t i = 0; i < n; i++) {
        const float x = fp8_factor(in[0], n, k, i, c->attrs.fp8);
        for (int64_t j = 0; j < o; j++) {
            const float w = fp8_factor(in[1], o, k, j, c->attrs.fp8);
            double sum = in[2][j];
            for (int64_t e = 0; e < k; e++)
                sum += through_fp8(in[0][i * k + e], x) * through_fp8(in[1][j * k + e], w);
            out[i * o + j] = sum;
        }
    }
}

static void exact_add(const kernel_case *c, double *const *in, double *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        out[i] = in[0][i] + in[1][i];
}

static void exact_rmsnorm(const kernel_case *c, double *const *in, double *out)
{
    const int64_t n = c->in[0].dims[0], d = c->in[0].dims[1];
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t e = 0; e < d; e++)
            sum += in[0][i * d + e] * in[0][i * d + e];
        const double rstd = 1 / sqrt(sum / (double)d + (double)c->attrs.eps);
        for (int64_t e = 0; e < d; e++)
            out[i * d + e] = in[0][i * d + e] * rstd * in[1][e];
    }
}

static void exact_swiglu(const kernel_case *c, double *const *in, double *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++)
        out[i] = in[0][i] / (1 + exp(-in[0][i])) * in[1][i];
}

/* Two segments that overlap, an empty one, and all of it. */
static const int64_t segments[8] = {0, 100, 37, 200, 300, 0, 0, 301};

static void exact_sum_squares(const kernel_case *c, double *const *in, double *out)
{
    for (int64_t s = 0; s < c->out[0].dims[0]; s++)
        for (int64_t e = segments[2 * s]; e < segments[2 * s] + segments[2 * s + 1]; e++)
            out[s] += in[0][e] * in[0][e];
}

static void exact_update_squares(const kernel_case *c, double *const *in, double *out)
{
    for (int64_t e = 0; e < lathe_desc_count(&c->in[0]); e++) {
        const double d = in[2][1] * (c->attrs.alpha * in[1][e] + c->attrs.beta * in[0][e]);
        out[e / 16384] += d * d;
    }
}

static void exact_clamp(const kernel_case *c, double *const *in, double *out)
{
    const double limit = fabs(in[1][1]);
    for (int64_t e = 0; e < lathe_desc_count(&c->in[0]); e++)
        out[e] = in[0][e] > limit ? limit : in[0][e] < -limit ? -limit : in[0][e];
}

#define M(dtype, rows, cols)                                                                       \
    {                                                                                              \
        dtype, 2,                                                                                  \
        {                                                                                          \
            rows, cols, 1, 1                                                                       \
        }                                                                                          \
    }
#define VEC(n)                                                                                     \
    {                                                                                              \
        LATHE_F32, 1,                                                                              \
        {                                                                                          \
            n, 1, 1, 1                                                                             \
        }                                                                                          \
    }
#define CASES(dtype)                                                                               \
    {"linear",                                                                                     \
     LATHE_OP_LINEAR,                                                                              \
     3,                                                                                            \
     1,                                                                                            \
     {.alpha = 0},                                                                                 \
     {M(dtype, 13, 72), M(dtype, 37, 72), VEC(37)},                                                \
     {M(dtype, 13, 37)},                                                                           \
     exact_linear,                                                                                 \
     72,                                                                                           \
     NULL},                                                                                        \
        {"add",                                                                                    \
         LATHE_OP_ADD,                                                                             \
         2,                                                                                        \
         1,                                                                                        \
         {.alpha = 0},                                                                             \
         {M(dtype, 7, 33), M(dtype, 7, 33)},                                                       \
         {M(dtype, 7, 33)},                                                                        \
         exact_add,                                                                                \
         1,                                                                                        \
         NULL},                                                                                    \
        {"rmsnorm",                                                                                \
         LATHE_OP_RMSNORM,                                                                         \
         2,                                                                                        \
         2,                                                                                        \
         {.eps = 1e-5f},                                                                           \
         {M(dtype, 9, 48), VEC(48)},                                                               \
         {M(dtype, 9, 48), VEC(9)},                                                                \
         exact_rmsnorm,                                                                            \
         48,                                                                                       \
         NULL},                                                                                    \
    {                                                                                              \
        "swiglu", LATHE_OP_SWIGLU, 2, 1, {.alpha = 0}, {M(dtype, 5, 67), M(dtype, 5, 67)},         \
            {M(dtype, 5, 67)}, exact_swiglu, 2, NULL                                               \
    }

#define ODD 16411 /* elements: more than one sum's */
#define SUMS(n)                                                                                    \
    {                                                                                              \
        LATHE_F64, 1,                                                                              \
        {                                                                                          \
            n, 1, 1, 1                                                                             \
        }                                                                                          \
    }

#define FP8_LINEAR(title, recipe)                                                                  \
    {                                                                                              \
        .name = title, .op = LATHE_OP_LINEAR, .n_in = 3, .n_out = 1, .attrs = {.fp8 = recipe},     \
        .in = {M(LATHE_BF16, 16, 80), M(LATHE_BF16, 48, 80), VEC(48)},                             \
        .out = {M(LATHE_BF16, 16, 48)}, .exact = exact_fp8_linear, .terms = 80                     \
    }

static const kernel_case cases[] = {
    CASES(LATHE_F32),
    CASES(LATHE_BF16),
    CASES(LATHE_F16),
    FP8_LINEAR("linear in fp8, tensorwise", LATHE_FP8_TENSORWISE),
    FP8_LINEAR("linear in fp8, rowwise", LATHE_FP8_ROWWISE),
    {.name = "sum_squares",
     .op = LATHE_OP_SUM_SQUARES,
     .n_in = 2,
     .n_out = 1,
     .in = {VEC(301), {LATHE_I64, 2, {4, 2, 1, 1}}},
     .out = {SUMS(4)},
     .exact = exact_sum_squares,
     .terms = 301,
     .whole = segments},
    {.name = "update_squares",
     .op = LATHE_OP_UPDATE_SQUARES,
     .n_in = 3,
     .n_out = 1,
     .attrs = {.alpha = 0.75, .beta = -1.25, .start = 1},
     .in = {VEC(ODD), M(LATHE_BF16, ODD, 1), VEC(2)},
     .out = {SUMS(2)},
     .exact = exact_update_squares,
     .terms = 16384},
    {.name = "clamp",
     .op = LATHE_OP_CLAMP,
     .n_in = 2,
     .n_out = 1,
     .attrs = {.start = 1},
     .in = {VEC(ODD), VEC(2)},
     .out = {VEC(ODD)},
     .exact = exact_clamp,
     .terms = 0},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* A 16-bit element of a dtype. */
static uint16_t narrowed(float x, int32_t dtype)
{
    return dtype == LATHE_BF16 ? lathe_f32_to_bf16(x) : lathe_f32_to_f16(x);
}

static float widened(uint16_t bits, int32_t dtype)
{
    return dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits);
}

/* One case on the device. */
typedef struct launch {
    void *in[MAX_TENSORS], *out[MAX_TENSORS], *scratch;
    double *exact[MAX_TENSORS], *want;
    lathe_kernel *kernel;
} launch;

static lathe_status launch_init(session *d, const kernel_case *c, launch *l)
{
    *l = (launch){0};
    for (int32_t i = 0; i < c->n_in; i++) {
        const int64_t n = lathe_desc_count(&c->in[i]);
        if (c->in[i].dtype == LATHE_I64) {
            LATHE_TRY(put(d, c->whole, n * (int64_t)sizeof *c->whole, &l->in[i]));
            continue;
        }
        const float *x = lathe__random(d->s, n, 80 + (uint64_t)i, 1.0);
        uint16_t *half = lathe__memory(d->s, n * 2);
        l->exact[i] = lathe__memory(d->s, n * 8);
        for (int64_t e = 0; e < n; e++) {
            half[e] = narrowed(x[e], c->in[i].dtype);
            l->exact[i][e] =
                (double)(c->in[i].dtype == LATHE_F32 ? x[e] : widened(half[e], c->in[i].dtype));
        }
        LATHE_TRY(put(d, c->in[i].dtype == LATHE_F32 ? (const void *)x : half,
                      lathe_desc_bytes(&c->in[i]), &l->in[i]));
    }
    for (int32_t i = 0; i < c->n_out; i++)
        LATHE_TRY(put(d, NULL, lathe_desc_bytes(&c->out[i]), &l->out[i]));
    l->want = lathe__memory(d->s, lathe_desc_count(&c->out[0]) * 8);
    c->exact(c, l->exact, l->want);
    const lathe_kernel_problem problem = {.size = sizeof problem,
                                          .op = c->op,
                                          .attrs = &c->attrs,
                                          .in = c->in,
                                          .out = c->out,
                                          .n_in = c->n_in,
                                          .n_out = c->n_out,
                                          .may_overwrite = (1u << c->n_out) - 1,
                                          .flags = LATHE_FLAG_DETERMINISTIC,
                                          .n_threads = lathe_parallel_threads()};
    int64_t scratch = 0;
    LATHE_TRY(d->table->kernel_create(d->instance.self, &problem, &l->kernel, &scratch));
    return scratch > 0 ? put(d, NULL, scratch, &l->scratch) : LATHE_OK;
}

static void launch_fini(session *d, launch *l)
{
    void *self = d->instance.self;
    if (l->kernel != NULL)
        d->table->kernel_destroy(self, l->kernel);
    for (int i = 0; i < MAX_TENSORS; i++) {
        d->table->free(self, l->in[i]);
        d->table->free(self, l->out[i]);
    }
    d->table->free(self, l->scratch);
}

static lathe_status launch_run(session *d, const kernel_case *c, launch *l, void *host)
{
    const void *in[MAX_TENSORS] = {l->in[0], l->in[1], l->in[2]};
    const lathe_kernel_args args = {
        .size = sizeof args, .in = in, .out = l->out, .scratch = l->scratch};
    LATHE_TRY(d->table->kernel_run(d->instance.self, l->kernel, &args));
    return get(d, l->out[0], lathe_desc_bytes(&c->out[0]), host);
}

/* The error of an element: a rounding of the dtype, and f32 sums of `terms`. */
static lathe_status compare(const kernel_case *c, const launch *l, const void *got)
{
    const int32_t dtype = c->out[0].dtype;
    const int f32 = dtype == LATHE_F32, f64 = dtype == LATHE_F64;
    const double sum_eps = f64 ? 0x1p-52 : 0x1p-23;
    const double eps = f64 || f32 ? sum_eps : dtype == LATHE_BF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t i = 0; i < lathe_desc_count(&c->out[0]); i++) {
        const double x = f64   ? ((const double *)got)[i]
                         : f32 ? (double)((const float *)got)[i]
                               : (double)widened(((const uint16_t *)got)[i], dtype);
        const double bound =
            eps * 2 * fabs(l->want[i]) + sum_eps * c->terms * (1 + fabs(l->want[i]));
        if (!(fabs(x - l->want[i]) <= bound))
            return lathe_error(LATHE_E_NUMERIC, "element %lld is %.8g, expected %.8g within %.1e",
                               (long long)i, x, l->want[i], bound);
    }
    return LATHE_OK;
}

static lathe_status run_case(session *d, const kernel_case *c)
{
    const int64_t bytes = lathe_desc_bytes(&c->out[0]);
    void *first = lathe__memory(d->s, bytes), *second = lathe__memory(d->s, bytes);
    launch l;
    lathe_status status = launch_init(d, c, &l);
    if (status == LATHE_OK)
        status = launch_run(d, c, &l, first);
    if (status == LATHE_OK)
        status = compare(c, &l, first);
    const int64_t before = lathe_conformance_heap();
    if (status == LATHE_OK)
        status = launch_run(d, c, &l, second);
    const int64_t taken = lathe_conformance_heap() - before;
    if (status == LATHE_OK && taken != 0)
        status = lathe_error(LATHE_E_PLUGIN, "a run took %lld heap blocks", (long long)taken);
    if (status == LATHE_OK && !lathe__same(first, second, bytes))
        status = lathe_error(LATHE_E_NUMERIC, "other bits the second time");
    launch_fini(d, &l);
    return status;
}

static lathe_status kernels_agree(lathe__subject *s)
{
    session d;
    LATHE_TRY(session_init(&d, s));
    lathe_status status = LATHE_OK;
    const uint32_t runs =
        d.info.graph_dtypes ? d.info.graph_dtypes : d.info.compute_dtypes | 1u << LATHE_F32;
    int n_run = 0;
    for (int i = 0; i < N_CASES && status == LATHE_OK; i++) {
        const int32_t fp8 = cases[i].attrs.fp8;
        if (!(runs & 1u << cases[i].in[0].dtype) ||
            (fp8 != 0 && !(runs & 1u << LATHE_F8_E4M3 && d.info.fp8_recipes & 1u << fp8)))
            continue;
        n_run++;
        status = run_case(&d, &cases[i]);
        if (status != LATHE_OK)
            status = lathe_error_context(status, "%s, %s", cases[i].name,
                                         lathe_dtype_name(cases[i].in[0].dtype));
    }
    lathe__note(s, "%d kernels", n_run);
    lathe_instance_fini(&d.instance);
    return status;
}

static lathe_status refuses_unknown_ops(lathe__subject *s)
{
    session d;
    LATHE_TRY(session_init(&d, s));
    const lathe_desc desc = {LATHE_I64, 2, {3, 5, 1, 1}};
    const lathe_op_attrs attrs = {0};
    static const int32_t ops[] = {LATHE_N_OPS, -1, LATHE_OP_SWIGLU};
    lathe_status status = LATHE_OK;
    for (int i = 0; i < 3 && status == LATHE_OK; i++) {
        const lathe_desc in[2] = {desc, desc};
        const lathe_kernel_problem problem = {.size = sizeof problem,
                                              .op = ops[i],
                                              .attrs = &attrs,
                                              .in = in,
                                              .out = &desc,
                                              .n_in = 2,
                                              .n_out = 1,
                                              .may_overwrite = 1,
                                              .n_threads = 1};
        lathe_kernel *kernel = NULL;
        int64_t scratch;
        if (d.table->kernel_create(d.instance.self, &problem, &kernel, &scratch) == LATHE_OK) {
            d.table->kernel_destroy(d.instance.self, kernel);
            status = lathe_error(LATHE_E_PLUGIN, "makes a kernel for op %d on i64", ops[i]);
        } else if (lathe_error_message()[0] == '\0') {
            status = lathe_error(LATHE_E_PLUGIN, "refuses op %d without a message", ops[i]);
        }
    }
    lathe_instance_fini(&d.instance);
    return status;
}

const lathe__check *lathe__checks_device(void)
{
    static const lathe__check checks[] = {
        {"scores_with_a_reason", scores_with_a_reason},
        {"describes_the_machine", describes_the_machine},
        {"memory_round_trip", memory_round_trip},
        {"streams_in_order", lathe__streams_in_order},
        {"kernels_agree", kernels_agree},
        {"refuses_unknown_ops", refuses_unknown_ops},
        {"events_tell_time", lathe__events_tell_time},
        {NULL, NULL},
    };
    return checks;
}

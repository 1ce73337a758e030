/* Products in fp8 on processors without fp8 instructions.
 *
 * Each operand is rounded to fp8 and stored as bf16, which represents every number of both fp8
 * formats. The product is f32; it is scaled, added to and rounded once. This is slower than bf16:
 * it exists for tests and as a reference for devices with fp8. The CPU device does not offer fp8 to
 * a run.
 *
 *   scratch: | the product's own | a bf16 | b bf16 | inverse factors of a | of b | c f32 |
 */
#include "products/fp8_gemm.h"

#include "base/element.h"
#include "lathe/fp8.h"

#define COLUMN_GRAIN 64

/* An operand as stored, [rows, cols]. The scale factors are per column if the product transposes
 * it. */
typedef struct operand {
    int64_t rows, cols;
    int32_t by_columns; /* one factor per column, else per row */
    int32_t dtype, recipe;
    int64_t at, inverses_at; /* offsets in scratch */
} operand;

struct cpu_fp8_product {
    matmul_spec spec; /* of the op */
    cpu_product *product;
    operand a, b;
    int64_t c_at;
};

static int64_t place(operand *o, int64_t rows, int64_t cols, int32_t by_columns, int32_t dtype,
                     int32_t recipe, int64_t at)
{
    *o = (operand){
        rows, cols, by_columns, dtype, recipe, at, at + cpu_round_up(rows * cols * 2, 64)};
    return o->inverses_at + cpu_round_up((by_columns ? cols : rows) * 4, 64);
}

lathe_status cpu_fp8_product_create(cpu_device *device, const matmul_spec *spec,
                                    cpu_fp8_product **out, int64_t *out_scratch)
{
    matmul_spec plain = *spec;
    int64_t at = 0;
    cpu_fp8_product *p = device->host->alloc((int64_t)sizeof *p);
    if (p == NULL)
        return lathe_fail(device->host, LATHE_E_NOMEM, "no memory for a product in fp8");
    *out = p;
    p->spec = *spec;
    plain.fp8 = LATHE_FP8_NONE;
    plain.c_dtype = LATHE_F32;
    plain.bias = 0;
    plain.may_overwrite = 1;
    plain.may_accumulate = 0;
    LATHE_TRY(cpu_product_create(device, &plain, &p->product, &at));
    const int32_t ta = spec->trans_a, tb = spec->trans_b;
    at = place(&p->a, ta ? spec->k : spec->m, ta ? spec->m : spec->k, ta, spec->a_fp8, spec->fp8,
               cpu_round_up(at, 64));
    at = place(&p->b, tb ? spec->n : spec->k, tb ? spec->k : spec->n, !tb, spec->b_fp8, spec->fp8,
               at);
    p->c_at = at;
    *out_scratch = at + spec->m * spec->n * 4;
    return LATHE_OK;
}

void cpu_fp8_product_destroy(cpu_device *device, cpu_fp8_product *p)
{
    if (p == NULL)
        return;
    cpu_product_destroy(device, p->product);
    device->host->free(p);
}

/* ---- casting ---- */

typedef struct cast_job {
    const operand *o;
    const uint16_t *from;
    uint16_t *to;
    float *inverse; /* first holds the magnitudes, as the bits of bf16 numbers */
} cast_job;

static void row_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const cast_job *job = arg;
    uint32_t *most = (uint32_t *)(void *)job->inverse;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const uint16_t *x = job->from + r * job->o->cols;
        uint32_t m = 0;
        for (int64_t j = 0; j < job->o->cols; j++)
            m = (x[j] & 0x7fffu) > m ? (x[j] & 0x7fffu) : m;
        most[r] = m;
    }
}

static void column_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const cast_job *job = arg;
    uint32_t *most = (uint32_t *)(void *)job->inverse;
    (void)worker;
    for (int64_t j = begin; j < end; j++)
        most[j] = 0;
    for (int64_t r = 0; r < job->o->rows; r++)
        for (int64_t j = begin; j < end; j++) {
            const uint32_t m = job->from[r * job->o->cols + j] & 0x7fffu;
            most[j] = m > most[j] ? m : most[j];
        }
}

/* Magnitudes are compared as the bits of bf16: they have the order of the numbers, NaN above
 * infinity. */
static void find_magnitudes(const lathe_host *host, cast_job *job)
{
    const operand *o = job->o;
    const int64_t n = o->by_columns ? o->cols : o->rows;
    uint32_t *most = (uint32_t *)(void *)job->inverse, all = 0;
    host->parallel_for(n, o->by_columns ? COLUMN_GRAIN : cpu_row_grain(o->cols),
                       o->by_columns ? column_range : row_range, job);
    if (o->recipe == LATHE_FP8_ROWWISE)
        return;
    for (int64_t i = 0; i < n; i++)
        all = most[i] > all ? most[i] : all;
    for (int64_t i = 0; i < n; i++)
        most[i] = all;
}

static float factor_of(const operand *o, uint32_t most)
{
    return lathe_fp8_scale(lathe_bf16_to_f32((uint16_t)most), o->dtype, o->recipe);
}

static void cast_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const cast_job *job = arg;
    const operand *o = job->o;
    const uint32_t *most = (const uint32_t *)(const void *)job->inverse;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < o->cols; j++) {
            const float x = lathe_bf16_to_f32(job->from[r * o->cols + j]) *
                            factor_of(o, most[o->by_columns ? j : r]);
            const float y = o->dtype == LATHE_F8_E4M3 ? lathe_e4m3_to_f32(lathe_f32_to_e4m3(x))
                                                      : lathe_e5m2_to_f32(lathe_f32_to_e5m2(x));
            job->to[r * o->cols + j] = lathe_f32_to_bf16(y);
        }
}

static void cast(const lathe_host *host, const operand *o, const void *from, char *scratch)
{
    cast_job job = {o, from, (uint16_t *)(void *)(scratch + o->at),
                    (float *)(void *)(scratch + o->inverses_at)};
    const int64_t n = o->by_columns ? o->cols : o->rows;
    find_magnitudes(host, &job);
    host->parallel_for(o->rows, cpu_row_grain(o->cols), cast_range, &job);
    for (int64_t i = 0; i < n; i++) {
        uint32_t most;
        memcpy(&most, &job.inverse[i], sizeof most);
        job.inverse[i] = 1.0f / factor_of(o, most);
    }
}

/* ---- the result ---- */

typedef struct finish_job {
    const float *products, *a, *b, *bias;
    void *c;
    int64_t cols;
    int32_t dtype, accumulate;
} finish_job;

static void finish_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const finish_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < job->cols; j++) {
            const int64_t i = r * job->cols + j;
            const float x = job->products[i] * (job->a[r] * job->b[j]);
            st(job->c, i, job->dtype, job->accumulate, job->bias == NULL ? x : x + job->bias[j]);
        }
}

lathe_status cpu_fp8_product_run(cpu_device *device, cpu_fp8_product *p, const void *a,
                                 const void *b, const float *bias, void *c, void *scratch,
                                 int accumulate)
{
    char *at = scratch;
    cast(device->host, &p->a, a, at);
    cast(device->host, &p->b, b, at);
    LATHE_TRY(cpu_product_run(device, p->product, at + p->a.at, at + p->b.at, NULL, at + p->c_at,
                              scratch, 0));
    finish_job job = {(const float *)(const void *)(at + p->c_at),
                      (const float *)(const void *)(at + p->a.inverses_at),
                      (const float *)(const void *)(at + p->b.inverses_at),
                      bias,
                      c,
                      p->spec.n,
                      p->spec.c_dtype,
                      accumulate};
    device->host->parallel_for(p->spec.m, cpu_row_grain(p->spec.n), finish_range, &job);
    return LATHE_OK;
}

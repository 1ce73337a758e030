/* Checks of a device's kernels: every op of lathe/op.h, on the cases of its file in core/graph/ops,
 * against double precision.
 *
 * Each problem runs in every compute dtype that the device declares. Outputs are filled with NaN
 * and then overwritten. If the op allows it, outputs are also added to, all together and one alone,
 * and written to the memory of an input. Inputs and the memory around each tensor must be
 * unchanged, and a second run must give the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "check/device/device_checks.h"
#include "check/device/device_session.h"
#include "check/device/op_cases.h"
#include "exec/store/memory_kind.h"
#include "graph/ir/op_info.h"
#include "lathe/rng.h"

enum { FENCE = 256, FENCE_BYTE = 0xA5, NAN_BYTE = 0xff };

/* A problem with its exact result, in host memory. */
typedef struct trial {
    const lathe_op_case *row;
    lathe_op_problem p;
    int32_t compute_dtype;
    double *in[LATHE_OP_MAX_IN], *want[LATHE_OP_MAX_OUT];
    double largest[LATHE_OP_MAX_OUT];
} trial;

/* How a problem is run. */
typedef struct mode {
    uint32_t accumulate;
    int32_t in_place; /* the input whose memory is output 0; -1: none */
} mode;

/* Tensors on the device; bytes[i] without their fences. */
typedef struct placed {
    void *memory[LATHE_OP_MAX_IN + LATHE_OP_MAX_OUT + 1];
    int64_t bytes[LATHE_OP_MAX_IN + LATHE_OP_MAX_OUT + 1];
    const void *in[LATHE_OP_MAX_IN];
    void *out[LATHE_OP_MAX_OUT], *scratch;
} placed;

static double *doubles(lathe__subject *s, const lathe_desc *d)
{
    return d->dtype == LATHE_ABSENT ? NULL : lathe__memory(s, 8 * lathe_desc_count(d) + 8);
}

/* Computes o and lse of the forward, which the backward of attention reads. */
static lathe_status fill_saved(lathe__subject *s, trial *t)
{
    lathe_op_problem f = {.op = LATHE_OP_ATTENTION, .attrs = t->p.attrs, .n_in = 8, .n_out = 2};
    double *const in[8] = {t->in[1], t->in[2], t->in[3], t->in[6],
                           NULL,     t->in[7], t->in[8], t->in[9]};
    double *const out[2] = {t->in[4], t->in[5]};
    for (int i = 0; i < 3; i++)
        f.in[i] = t->p.in[i + 1];
    f.in[3] = t->p.in[6];
    f.in[4].dtype = LATHE_ABSENT;
    f.in[5] = t->p.in[7];
    f.in[6] = t->p.in[8];
    f.in[7] = t->p.in[9];
    if (t->p.n_in < 8)
        f.in[5].dtype = LATHE_ABSENT;
    if (t->p.n_in < 9)
        f.in[6].dtype = LATHE_ABSENT;
    if (t->p.n_in < 10)
        f.in[7].dtype = LATHE_ABSENT;
    f.out[0] = t->p.in[4];
    f.out[1] = t->p.in[5];
    memset(out[0], 0, (size_t)(8 * lathe_desc_count(&f.out[0])));
    (void)s;
    return lathe__op_exact(&f, in, out);
}

static lathe_status trial_init(lathe__subject *s, trial *t)
{
    for (int32_t i = 0; i < t->p.n_in; i++) {
        t->in[i] = doubles(s, &t->p.in[i]);
        if (t->in[i] != NULL)
            lathe__op_case_fill(t->row, &t->p, i, t->in[i]);
    }
    if (t->p.op == LATHE_OP_ATTENTION_BWD)
        LATHE_TRY(fill_saved(s, t));
    for (int32_t i = 0; i < t->p.n_out; i++)
        t->want[i] = doubles(s, &t->p.out[i]);
    LATHE_TRY(lathe__op_exact(&t->p, t->in, t->want));
    for (int32_t i = 0; i < t->p.n_out; i++)
        for (int64_t k = 0; t->want[i] != NULL && k < lathe_desc_count(&t->p.out[i]); k++)
            if (isfinite(t->want[i][k]))
                t->largest[i] = fmax(t->largest[i], fabs(t->want[i][k]));
    return LATHE_OK;
}

/* Element i of an output before it is added to. */
static double before(int32_t output, int64_t i, int32_t dtype)
{
    const lathe_u32x4 r = lathe_rng_block(900 + (uint64_t)output, 0, 78, (uint64_t)i);
    return lathe__op_round(2.0 * lathe_uniform_f64(r.v[0], r.v[1]) - 1.0, dtype);
}

/* Takes fenced device memory with the content of `host`, or NaN if that is NULL. *out: the address
 * after the first fence. */
static lathe_status place(lathe__session *d, placed *x, int32_t slot, const void *host,
                          int64_t bytes, void **out)
{
    unsigned char *block = malloc((size_t)(bytes + 2 * FENCE));
    if (block == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a kernel's tensor");
    memset(block, FENCE_BYTE, (size_t)(bytes + 2 * FENCE));
    if (host != NULL)
        memcpy(block + FENCE, host, (size_t)bytes);
    else
        memset(block + FENCE, NAN_BYTE, (size_t)bytes);
    x->bytes[slot] = bytes;
    lathe_status status = lathe__session_put(d, block, bytes + 2 * FENCE, &x->memory[slot]);
    if (status == LATHE_OK && LATHE_HAS(d->table, sync)) /* before the block is freed */
        status = d->table->sync(d->instance.self, NULL);
    free(block);
    *out = x->memory[slot] != NULL ? (char *)x->memory[slot] + FENCE : NULL;
    return status;
}

static lathe_status place_tensor(lathe__session *d, placed *x, int32_t slot, const lathe_desc *desc,
                                 const double *values, int32_t added, void **out)
{
    const int64_t bytes = lathe_desc_bytes(desc), n = lathe_desc_count(desc);
    if (values == NULL && added < 0)
        return place(d, x, slot, NULL, bytes, out);
    char *host = malloc((size_t)bytes + 8);
    if (host == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a kernel's tensor");
    for (int64_t i = 0; i < n; i++)
        lathe__op_store(host, desc->dtype, i,
                        values != NULL ? values[i] : before(added, i, desc->dtype));
    const lathe_status status = place(d, x, slot, host, bytes, out);
    free(host);
    return status;
}

static lathe_status place_all(lathe__session *d, const trial *t, mode m, int64_t scratch_bytes,
                              placed *x)
{
    *x = (placed){0};
    for (int32_t i = 0; i < t->p.n_in; i++) {
        void *at = NULL;
        if (t->in[i] != NULL)
            LATHE_TRY(place_tensor(d, x, i, &t->p.in[i], t->in[i], -1, &at));
        x->in[i] = at;
    }
    for (int32_t i = 0; i < t->p.n_out; i++) {
        const int added = (m.accumulate >> i & 1u) != 0;
        if (i == 0 && m.in_place >= 0)
            x->out[0] = (char *)x->memory[m.in_place] + FENCE;
        else if (t->want[i] != NULL)
            LATHE_TRY(place_tensor(d, x, LATHE_OP_MAX_IN + i, &t->p.out[i], NULL, added ? i : -1,
                                   &x->out[i]));
    }
    if (scratch_bytes > 0)
        return place(d, x, LATHE_OP_MAX_IN + LATHE_OP_MAX_OUT, NULL, scratch_bytes, &x->scratch);
    return LATHE_OK;
}

static void unplace(lathe__session *d, placed *x)
{
    for (int32_t i = 0; i < LATHE_OP_MAX_IN + LATHE_OP_MAX_OUT + 1; i++)
        d->table->free(d->instance.self, x->memory[i]);
}

/* Copies the tensor in `slot` with its fences to host memory, and checks the fences. The caller
 * frees *out. */
static lathe_status fetch(lathe__session *d, const placed *x, int32_t slot, const char *what,
                          int32_t i, unsigned char **out)
{
    const int64_t bytes = x->bytes[slot];
    *out = malloc((size_t)(bytes + 2 * FENCE));
    if (*out == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a kernel's tensor");
    LATHE_TRY(lathe__session_get(d, x->memory[slot], bytes + 2 * FENCE, *out));
    for (int64_t k = 0; k < FENCE; k++) {
        if ((*out)[k] != FENCE_BYTE)
            return lathe_error(LATHE_E_CORRUPT, "wrote before the memory of %s %d", what, i);
        if ((*out)[FENCE + bytes + k] != FENCE_BYTE)
            return lathe_error(LATHE_E_CORRUPT, "wrote past the end of %s %d", what, i);
    }
    return LATHE_OK;
}

static lathe_status check_input(lathe__session *d, const trial *t, const placed *x, int32_t i)
{
    unsigned char *got = NULL;
    char cell[8];
    const int32_t dtype = t->p.in[i].dtype;
    const int64_t width = lathe_dtype_bytes(dtype);
    lathe_status status = fetch(d, x, i, "input", i, &got);
    for (int64_t k = 0; status == LATHE_OK && k < lathe_desc_count(&t->p.in[i]); k++) {
        lathe__op_store(cell, dtype, 0, t->in[i][k]);
        if (memcmp(cell, got + FENCE + k * width, (size_t)width) != 0)
            status = lathe_error(LATHE_E_PLUGIN, "it changed its input %d", i);
    }
    free(got);
    return status;
}

static lathe_status check_output(lathe__session *d, const trial *t, mode m, const placed *x,
                                 int32_t i, unsigned char *keep)
{
    const int32_t dtype = t->p.out[i].dtype;
    const int32_t slot = i == 0 && m.in_place >= 0 ? m.in_place : LATHE_OP_MAX_IN + i;
    unsigned char *got = NULL;
    lathe_status status = fetch(d, x, slot, "output", i, &got);
    for (int64_t k = 0; status == LATHE_OK && k < lathe_desc_count(&t->p.out[i]); k++) {
        const double old = m.accumulate >> i & 1u ? before(i, k, dtype) : 0.0;
        const double want = t->want[i][k] + old, value = lathe__op_load(got + FENCE, dtype, k);
        const double bound = lathe__op_case_bound(t->row, t->compute_dtype, dtype,
                                                  !lathe_memory_kind_of(&d->info)->runs_host_code,
                                                  want, t->largest[i]);
        if (!(fabs(value - want) <= bound) && !(isinf(want) && want == value))
            status = lathe_error(LATHE_E_NUMERIC,
                                 "output %d, element %lld is %.8g, expected %.8g within %.1e", i,
                                 (long long)k, value, want, bound);
    }
    if (status == LATHE_OK && keep != NULL)
        memcpy(keep, got + FENCE, (size_t)lathe_desc_bytes(&t->p.out[i]));
    free(got);
    return status;
}

/* Runs a kernel once on fresh memory. measured: the run must take no heap blocks. keep: gets the
 * bytes of output 0, or NULL. */
static lathe_status run_once(lathe__session *d, lathe_kernel *kernel, int64_t scratch_bytes,
                             const trial *t, mode m, int measured, unsigned char *keep)
{
    placed x;
    lathe_status status = place_all(d, t, m, scratch_bytes, &x);
    const lathe_kernel_args args = {.size = sizeof args,
                                    .accumulate = m.accumulate,
                                    .in = x.in,
                                    .out = x.out,
                                    .scratch = x.scratch};
    const int64_t taken = lathe__heap();
    if (status == LATHE_OK)
        status = d->table->kernel_run(d->instance.self, kernel, &args);
    const int64_t more = lathe__heap() - taken;
    if (status == LATHE_OK && LATHE_HAS(d->table, sync))
        status = d->table->sync(d->instance.self, NULL);
    if (status == LATHE_OK && more != 0 && measured)
        status = lathe_error(LATHE_E_PLUGIN, "a run took %lld heap blocks", (long long)more);
    for (int32_t i = 0; i < t->p.n_out && status == LATHE_OK; i++)
        if (t->want[i] != NULL)
            status = check_output(d, t, m, &x, i, i == 0 ? keep : NULL);
    for (int32_t i = 0; i < t->p.n_in && status == LATHE_OK; i++)
        if (t->in[i] != NULL && i != m.in_place)
            status = check_input(d, t, &x, i);
    if (status == LATHE_OK && x.scratch != NULL) {
        unsigned char *got = NULL;
        status = fetch(d, &x, LATHE_OP_MAX_IN + LATHE_OP_MAX_OUT, "scratch", 0, &got);
        free(got);
    }
    unplace(d, &x);
    return status;
}

static const char *mode_text(mode m, char *text, size_t bytes)
{
    (void)snprintf(text, bytes, "%s%s", m.accumulate ? ", added to" : "",
                   m.in_place >= 0 ? ", in the memory of an input" : "");
    return text;
}

static lathe_status run_modes(lathe__session *d, lathe_kernel *kernel, int64_t scratch_bytes,
                              const trial *t)
{
    const lathe_op_info *info = lathe_op_info_get(t->p.op);
    uint32_t present = 0;
    mode modes[8];
    int n = 0;
    char text[64];
    for (int32_t i = 0; i < t->p.n_out; i++)
        present |= t->want[i] != NULL ? 1u << i : 0u;
    if (!info->inplace_always) {
        modes[n++] = (mode){0, -1};
        modes[n++] = (mode){0, -1}; /* the second run must give the same bits and take no memory */
    }
    for (int32_t i = 0; i < t->p.n_in; i++)
        if (info->inplace >> i & 1u && t->p.in[i].dtype == t->p.out[0].dtype)
            modes[n++] = (mode){0, i};
    if (info->accumulates) {
        modes[n++] = (mode){present, -1};
        if (present & (present - 1)) {
            modes[n++] = (mode){1, -1};
            modes[n++] = (mode){present & ~1u, -1};
        }
    }
    const int64_t bytes = lathe_desc_bytes(&t->p.out[0]);
    unsigned char *keep = lathe__memory(d->s, bytes), *again = lathe__memory(d->s, bytes);
    for (int i = 0; i < n; i++) {
        const int second = i == 1 && !info->inplace_always;
        const lathe_status status = run_once(d, kernel, scratch_bytes, t, modes[i], second,
                                             i == 0   ? keep
                                             : second ? again
                                                      : NULL);
        if (status != LATHE_OK)
            return lathe_error_context(status, "%s%s", lathe_dtype_name(t->compute_dtype),
                                       mode_text(modes[i], text, sizeof text));
        if (second && !lathe__same(keep, again, bytes))
            return lathe_error(LATHE_E_NUMERIC, "%s: other bits the second time",
                               lathe_dtype_name(t->compute_dtype));
    }
    return LATHE_OK;
}

static lathe_kernel_problem problem_of(const lathe_op_problem *p)
{
    const uint32_t all = (1u << p->n_out) - 1u;
    const lathe_op_info *info = lathe_op_info_get(p->op);
    return (lathe_kernel_problem){.size = sizeof(lathe_kernel_problem),
                                  .op = p->op,
                                  .attrs = &p->attrs,
                                  .in = p->in,
                                  .out = p->out,
                                  .n_in = p->n_in,
                                  .n_out = p->n_out,
                                  .may_accumulate = info->accumulates ? all : 0,
                                  .may_overwrite = all,
                                  .flags = LATHE_FLAG_DETERMINISTIC,
                                  .n_threads = lathe_parallel_threads()};
}

/* LATHE__SKIP: the device has no such kernel. */
static lathe_status run_row(lathe__session *d, int32_t op, const lathe_op_case *row, int32_t dtype)
{
    trial t = {.row = row, .compute_dtype = dtype};
    int uses_c;
    LATHE_TRY(lathe__op_case_problem(op, row, dtype, &t.p, &uses_c));
    const lathe_kernel_problem problem = problem_of(&t.p);
    lathe_kernel *kernel = NULL;
    int64_t scratch = 0;
    lathe_error_clear();
    lathe_status status = d->table->kernel_create(d->instance.self, &problem, &kernel, &scratch);
    if (status == LATHE_E_UNSUPPORTED)
        return lathe_error_message()[0] != '\0'
                   ? LATHE__SKIP
                   : lathe_error(LATHE_E_PLUGIN, "refuses without a message");
    LATHE_TRY(status);
    if (scratch < 0 || kernel == NULL)
        status = lathe_error(LATHE_E_PLUGIN, "kernel_create gives %s and %lld bytes of scratch",
                             kernel ? "a kernel" : "no kernel", (long long)scratch);
    if (status == LATHE_OK)
        status = trial_init(d->s, &t);
    if (status == LATHE_OK)
        status = run_modes(d, kernel, scratch, &t);
    d->table->kernel_destroy(d->instance.self, kernel);
    return status;
}

static int fp8_is_declared(const lathe__session *d, int32_t recipe)
{
    return lathe__session_dtypes(d) & 1u << LATHE_F8_E4M3 && d->info.fp8_recipes & 1u << recipe;
}

/* Whether the device declares that it supports a case in a compute dtype. */
static int is_declared(const lathe__session *d, const lathe_op_case *row, int32_t dtype)
{
    return lathe__session_dtypes(d) & 1u << dtype &&
           (row->attrs.fp8 == 0 || fp8_is_declared(d, row->attrs.fp8));
}

/* Runs all cases of one op. If the device has no kernel for the first, the op is skipped. */
static lathe_status run_op(lathe__session *d, int32_t op)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    int32_t n_run = 0;
    for (const lathe_op_case *row = lathe_op_info_get(op)->cases; row->in != NULL; row++)
        for (int k = 0; k < 3; k++) {
            lathe_op_problem p;
            int uses_c;
            LATHE_TRY(lathe__op_case_problem(op, row, dtypes[k], &p, &uses_c));
            if (!is_declared(d, row, dtypes[k]) || (!uses_c && k > 0))
                continue;
            const lathe_status status = run_row(d, op, row, dtypes[k]);
            if (status == LATHE__SKIP && n_run == 0)
                return lathe__skip(d->s, "the device has no such kernel");
            if (status == LATHE__SKIP)
                return lathe_error(LATHE_E_PLUGIN,
                                   "it has the op, but refuses %s in %s, which it declares: %s",
                                   row->in, lathe_dtype_name(dtypes[k]), lathe_error_message());
            if (status != LATHE_OK)
                return lathe_error_context(status, "%s -> %s", row->in, row->out);
            n_run++;
        }
    lathe__note(d->s, "%d problems", n_run);
    return LATHE_OK;
}

static lathe_status op_agrees(lathe__subject *s)
{
    lathe__session d;
    LATHE_TRY(lathe__session_init(&d, s));
    lathe_status status = LATHE_OK;
    if (lathe_op_info_get(s->check->argument)->runs_on == LATHE_RUNS_QUANT)
        status = lathe__skip(s, "a codec runs it");
    else
        status = run_op(&d, s->check->argument);
    lathe_instance_fini(&d.instance);
    return status;
}

/* One check for each op: "linear_dw_agrees". */
const lathe__check *lathe__checks_kernels(void)
{
    static lathe__check checks[LATHE_N_OPS + 1];
    static char names[LATHE_N_OPS][40];
    for (int32_t op = 0; op < LATHE_N_OPS; op++) {
        (void)snprintf(names[op], sizeof names[op], "%s_agrees", lathe_op_info_get(op)->name);
        checks[op] = (lathe__check){names[op], op_agrees, op};
    }
    return checks;
}

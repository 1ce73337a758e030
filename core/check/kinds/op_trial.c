/* Small problems on which the checks of op plugins run kernels. */
#include "check/kinds/op_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/parallel.h"
#include "lathe/rng.h"

enum { FENCE_BYTE = 0xff };

/* ---- problems ---- */

static double *doubles(lathe__subject *s, const lathe_desc *d)
{
    return d->dtype == LATHE_ABSENT ? NULL : lathe__memory(s, 8 * lathe_desc_count(d));
}

static int is_float(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_BF16 || dtype == LATHE_F16;
}

static int same_desc(const lathe_desc *a, const lathe_desc *b)
{
    return a->dtype == b->dtype &&
           (a->dtype == LATHE_ABSENT ||
            (a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * 8) == 0));
}

/* Rows of the batch: the first batched input has `rows` entries for each. */
static lathe_status count_rows(lathe__op_trial *t)
{
    const lathe_op_v1 *table = t->op->table;
    int32_t i = 0;
    for (int32_t k = 0; k < table->n_in; k++)
        t->batched_in[k] = (table->inputs[k].flags & LATHE_TENSOR_BATCHED) != 0;
    for (int32_t k = 0; k < table->n_out; k++)
        t->batched_out[k] = (table->outputs[k].flags & LATHE_TENSOR_BATCHED) != 0;
    while (i < table->n_in && (!t->batched_in[i] || t->p.in[i].dtype == LATHE_ABSENT))
        i++;
    if (t->test->rows <= 0)
        return LATHE_OK;
    if (i == table->n_in || t->p.in[i].dims[0] % t->test->rows != 0 ||
        t->p.in[i].dims[0] / t->test->rows < 2)
        return lathe_error(LATHE_E_PLUGIN,
                           "the test (%s) has rows of %d, which do not divide the first dimension "
                           "of a batched input into two or more",
                           t->test->in, t->test->rows);
    t->batch = (int32_t)(t->p.in[i].dims[0] / t->test->rows);
    return LATHE_OK;
}

/* Compares what shape() gives with what the test says. */
static lathe_status check_shapes(const lathe__op_trial *t)
{
    lathe_op_problem asked = t->p;
    LATHE_TRY(t->op->info.infer(&asked));
    for (int32_t k = 0; k < t->op->table->n_out; k++)
        if (!same_desc(&asked.out[k], &t->p.out[k]))
            return lathe_error(LATHE_E_SHAPE,
                               "shape() gives output %s another shape or dtype than the test (%s) "
                               "-> %s says",
                               t->op->table->outputs[k].name, t->test->in, t->test->out);
    return LATHE_OK;
}

lathe_status lathe__op_trial_init(lathe__subject *s, const lathe_plugin_op *op, void *self,
                                  const lathe_op_test *test, int32_t dtype, lathe__op_trial *t)
{
    *t = (lathe__op_trial){.s = s,
                           .op = op,
                           .test = test,
                           .self = self,
                           .dtype = dtype,
                           .c = {.in = test->in,
                                 .out = test->out,
                                 .terms = test->terms,
                                 .half_units = test->half_units}};
    int uses_c = 0;
    LATHE_TRY(lathe__op_case_problem(op->number, &t->c, dtype, &t->p, &uses_c));
    t->uses_c = uses_c;
    t->p.self = self;
    t->p.label = "test";
    if (t->p.n_in > op->table->n_in || t->p.n_out > op->table->n_out)
        return lathe_error(LATHE_E_PLUGIN, "the test (%s) -> %s has more tensors than the op",
                           test->in, test->out);
    for (int32_t i = t->p.n_in; i < LATHE_OP_MAX_IN; i++)
        t->p.in[i].dtype = LATHE_ABSENT;
    for (int32_t k = t->p.n_out; k < LATHE_OP_MAX_OUT; k++)
        t->p.out[k].dtype = LATHE_ABSENT;
    t->p.n_in = op->table->n_in;
    t->p.n_out = op->table->n_out;
    LATHE_TRY(check_shapes(t));
    LATHE_TRY(count_rows(t));
    for (int32_t i = 0; i < t->p.n_in; i++) {
        t->x[i] = doubles(s, &t->p.in[i]);
        if (t->x[i] != NULL)
            lathe__op_case_fill(&t->c, &t->p, i, t->x[i]);
    }
    lathe__op_trial_exact(t);
    return LATHE_OK;
}

void lathe__op_trial_exact(lathe__op_trial *t)
{
    const lathe_op_info *info = t->is_backward ? &t->op->backward : &t->op->info;
    for (int32_t k = 0; k < t->p.n_out; k++) {
        t->want[k] = doubles(t->s, &t->p.out[k]);
        t->largest[k] = 0.0;
    }
    info->exact(&t->p, t->x, t->want);
    for (int32_t k = 0; k < t->p.n_out; k++)
        for (int64_t i = 0; t->want[k] != NULL && i < lathe_desc_count(&t->p.out[k]); i++)
            if (isfinite(t->want[k][i]))
                t->largest[k] = fmax(t->largest[k], fabs(t->want[k][i]));
}

/* Noise in [-1, 1) as the gradient of output k. */
static void fill_gradient(lathe__op_trial *t, int32_t k)
{
    for (int64_t i = 0; t->x[k] != NULL && i < lathe_desc_count(&t->p.in[k]); i++) {
        const lathe_u32x4 r = lathe_rng_block(500 + (uint64_t)k, 0, 79, (uint64_t)i);
        t->x[k][i] =
            lathe__op_round(2.0 * lathe_uniform_f64(r.v[0], r.v[1]) - 1.0, t->p.in[k].dtype);
    }
}

lathe_status lathe__op_trial_turn(lathe__op_trial *t, uint32_t silent, uint32_t unwanted)
{
    const lathe_op_v1 *table = t->op->table;
    const lathe__op_trial of = *t;
    const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    int32_t n = 0;
    t->is_backward = 1;
    t->p = (lathe_op_problem){
        .op = t->op->number + 1, .self = t->self, .label = "test", .n_out = table->n_in};
    for (int32_t k = 0; k < table->n_out; k++, n++) {
        const int flows = is_float(of.p.out[k].dtype) &&
                          !(table->outputs[k].flags & LATHE_TENSOR_FIXED) && !(silent >> k & 1u);
        t->p.in[n] = flows ? of.p.out[k] : absent;
        t->batched_in[n] = of.batched_out[k];
        t->x[n] = doubles(t->s, &t->p.in[n]);
        fill_gradient(t, n);
    }
    for (int32_t i = 0; i < table->n_in; i++, n++) {
        const int reads = (table->backward->reads_in >> i & 1u) != 0;
        t->p.in[n] = reads ? of.p.in[i] : absent;
        t->batched_in[n] = of.batched_in[i];
        t->x[n] = reads ? of.x[i] : NULL;
    }
    for (int32_t k = 0; k < table->n_out; k++, n++) {
        const int reads = (table->backward->reads_out >> k & 1u) != 0;
        t->p.in[n] = reads ? of.p.out[k] : absent;
        t->batched_in[n] = of.batched_out[k];
        t->x[n] = reads ? of.want[k] : NULL;
        for (int64_t i = 0; t->x[n] != NULL && i < lathe_desc_count(&t->p.in[n]); i++)
            t->x[n][i] = lathe__op_round(t->x[n][i], t->p.in[n].dtype); /* as the run keeps it */
    }
    t->p.n_in = n;
    for (int32_t i = 0; i < LATHE_OP_MAX_OUT; i++) {
        const int wanted = i < table->n_in && is_float(of.p.in[i].dtype) &&
                           !(table->inputs[i].flags & LATHE_TENSOR_FIXED) && !(unwanted >> i & 1u);
        t->p.out[i] = wanted ? of.p.in[i] : absent;
        t->batched_out[i] = of.batched_in[i];
        if (wanted && table->inputs[i].flags & LATHE_TENSOR_PARAMETER)
            t->p.out[i].dtype = LATHE_F32;
        if (wanted)
            t->c.terms += lathe_desc_count(&of.p.in[i]);
    }
    for (int32_t k = 0; k < table->n_out; k++)
        if (of.p.out[k].dtype != LATHE_ABSENT)
            t->c.terms += lathe_desc_count(&of.p.out[k]);
    lathe__op_trial_exact(t);
    return LATHE_OK;
}

/* Row r of n of a tensor. */
static lathe_status cut(const lathe__op_trial *t, const char *side, int32_t i, int64_t r,
                        lathe_desc *d, double **values)
{
    if (*values == NULL)
        return LATHE_OK;
    if (d->rank < 1 || d->dims[0] % t->batch != 0)
        return lathe_error(
            LATHE_E_PLUGIN,
            "the first dimension of batched %s %d of the test (%s) is no multiple of "
            "%d rows",
            side, i, t->test->in, t->batch);
    const int64_t n = lathe_desc_count(d) / t->batch;
    d->dims[0] /= t->batch;
    *values += r * n;
    return LATHE_OK;
}

lathe_status lathe__op_trial_row(const lathe__op_trial *t, int64_t r, lathe__op_trial *out)
{
    *out = *t;
    for (int32_t i = 0; i < t->p.n_in; i++)
        if (t->batched_in[i])
            LATHE_TRY(cut(t, "input", i, r, &out->p.in[i], &out->x[i]));
    for (int32_t k = 0; k < t->p.n_out; k++)
        if (t->batched_out[k])
            LATHE_TRY(cut(t, "output", k, r, &out->p.out[k], &out->want[k]));
    lathe__op_trial_exact(out);
    return LATHE_OK;
}

/* ---- kernels ---- */

int32_t lathe__op_trial_kernels(const lathe__op_trial *t)
{
    int32_t n = 0;
    (void)lathe_plugin_op_kernels(t->p.op, &n);
    return n;
}

const lathe_op_kernel *lathe__op_trial_kernel(const lathe__op_trial *t, int32_t i)
{
    int32_t n = 0;
    return &lathe_plugin_op_kernels(t->p.op, &n)[i];
}

static lathe_device_info device_of(const lathe__op_trial *t)
{
    lathe_device_info info = {.size = sizeof info,
                              .model = "conformance",
                              .isa = "portable",
                              .n_workers = lathe_parallel_threads(),
                              .host_memory = 1,
                              .memory_bytes = INT64_C(1) << 33,
                              .compute_dtypes = 1u << LATHE_F32 | 1u << LATHE_BF16};
    return t->s->device != NULL ? t->s->device->machine.info : info;
}

/* All outputs may be overwritten, and added to if the op can. */
static lathe_op_call call_of(const lathe__op_trial *t, const lathe_device_info *device)
{
    const lathe_op_info *info = t->is_backward ? &t->op->backward : &t->op->info;
    uint32_t all = 0;
    for (int32_t k = 0; k < t->p.n_out; k++)
        all |= t->p.out[k].dtype != LATHE_ABSENT ? 1u << k : 0u;
    if (t->has_states) /* they are neither */
        all &= ~(1u << t->op->table->n_out);
    return (lathe_op_call){.size = (uint32_t)sizeof(lathe_op_call),
                           .flags = LATHE_FLAG_DETERMINISTIC,
                           .in = t->p.in,
                           .out = t->p.out,
                           .n_in = t->p.n_in,
                           .n_out = t->p.n_out,
                           .may_accumulate = info->accumulates ? all : 0,
                           .may_overwrite = all,
                           .n_threads = lathe_parallel_threads(),
                           .device = device};
}

lathe_status lathe__op_trial_score(const lathe__op_trial *t, int32_t i, int32_t *out)
{
    enum { WHY = 256 };
    const lathe_op_kernel *k = lathe__op_trial_kernel(t, i);
    const lathe_device_info device = device_of(t);
    const lathe_op_call call = call_of(t, &device);
    char why[WHY] = "", again[WHY] = "", few[8] = "abcdefg";
    *out = LATHE_SCORE_NO;
    if (t->s->device == NULL
            ? k->run == NULL
            : k->queue == NULL || k->image == NULL || !LATHE_HAS(t->s->device->machine.dev, launch))
        return LATHE_OK;
    const int32_t got = k->score(t->self, &call, why, WHY);
    why[WHY - 1] = again[WHY - 1] = '\0';
    if (got < LATHE_SCORE_NO || got > 1000)
        return lathe_error(LATHE_E_PLUGIN, "kernel %s scores %d, expected 0 to 1000", k->name, got);
    if (k->score(t->self, &call, again, WHY) != got || strcmp(why, again) != 0)
        return lathe_error(LATHE_E_PLUGIN, "score of kernel %s answers otherwise the second time",
                           k->name);
    if (got == LATHE_SCORE_NO && (why[0] == '\0' || strchr(why, '\n') != NULL))
        return lathe_error(LATHE_E_PLUGIN, "kernel %s refuses without one line of reason", k->name);
    (void)k->score(t->self, &call, few, 4);
    if (few[4] != 'e')
        return lathe_error(LATHE_E_CORRUPT, "score of kernel %s writes more than its capacity",
                           k->name);
    *out = got;
    return LATHE_OK;
}

lathe_status lathe__op_trial_best(const lathe__op_trial *t, int32_t *out)
{
    int32_t best = LATHE_SCORE_NO;
    *out = -1;
    for (int32_t i = 0; i < lathe__op_trial_kernels(t); i++) {
        int32_t score = 0;
        LATHE_TRY(lathe__op_trial_score(t, i, &score));
        if (score > best) {
            best = score;
            *out = i;
        }
    }
    return LATHE_OK;
}

/* ---- memory ---- */

/* Bytes of a tensor; in host memory in pages of its own. */
typedef struct fenced {
    unsigned char *at; /* NULL: none */
    int64_t bytes;
    unsigned char *map; /* NULL: the subject's guarded memory */
    int64_t map_bytes;
} fenced;

enum { N_TENSORS = LATHE_OP_MAX_IN + LATHE_OP_MAX_OUT + 1, SCRATCH = N_TENSORS - 1 };

typedef struct placed {
    fenced tensors[N_TENSORS]; /* inputs, outputs, scratch */
    const void *in[LATHE_OP_MAX_IN];
    void *out[LATHE_OP_MAX_OUT];
} placed;

static lathe_status take(lathe__subject *s, int64_t bytes, fenced *out)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    *out = (fenced){.bytes = bytes};
    if (s->device != NULL) {
        out->at = lathe__memory(s, bytes);
        memset(out->at, FENCE_BYTE, (size_t)bytes);
        return LATHE_OK;
    }
    const int64_t aligned = (bytes + 63) / 64 * 64;
    const int64_t inner = (aligned + 64 + page - 1) / page * page;
    out->map_bytes = inner + 2 * page;
    void *map = mmap(NULL, (size_t)out->map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return lathe_error(LATHE_E_NOMEM, "no memory for a tensor of %lld bytes", (long long)bytes);
    out->map = map;
    out->at = out->map + page + inner - aligned;
    memset(out->map + page, FENCE_BYTE, (size_t)inner);
    if (mprotect(out->map, (size_t)page, PROT_NONE) != 0 ||
        mprotect(out->map + page + inner, (size_t)page, PROT_NONE) != 0)
        return lathe_error(LATHE_E_NOMEM, "cannot protect a page");
    return LATHE_OK;
}

static lathe_status check_fences(const fenced *f, const char *what, int32_t i)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    for (const unsigned char *at = f->map + page; at < f->map + f->map_bytes - page; at++) {
        if (at == f->at)
            at += f->bytes;
        if (at < f->map + f->map_bytes - page && *at != FENCE_BYTE)
            return lathe_error(LATHE_E_CORRUPT, "it wrote %s %s %d",
                               at < f->at ? "before the memory of" : "past the end of", what, i);
    }
    return LATHE_OK;
}

static void store_all(void *to, const lathe_desc *d, const double *values)
{
    for (int64_t i = 0; i < lathe_desc_count(d); i++)
        lathe__op_store(to, d->dtype, i, values[i]);
}

/* Element i of output k before it is added to. */
static double before(int32_t k, int64_t i, int32_t dtype)
{
    const lathe_u32x4 r = lathe_rng_block(900 + (uint64_t)k, 0, 78, (uint64_t)i);
    return lathe__op_round(2.0 * lathe_uniform_f64(r.v[0], r.v[1]) - 1.0, dtype);
}

static lathe_status place(const lathe__op_trial *t, const lathe__op_mode *mode, int64_t scratch,
                          placed *x)
{
    for (int32_t i = 0; i < t->p.n_in; i++) {
        if (t->x[i] == NULL)
            continue;
        LATHE_TRY(take(t->s, lathe_desc_bytes(&t->p.in[i]), &x->tensors[i]));
        store_all(x->tensors[i].at, &t->p.in[i], t->x[i]);
        x->in[i] = x->tensors[i].at;
    }
    for (int32_t k = 0; k < t->p.n_out; k++) {
        fenced *f = &x->tensors[LATHE_OP_MAX_IN + k];
        if (t->want[k] == NULL)
            continue;
        if (t->has_states && k == t->op->table->n_out) {
            x->out[k] = x->tensors[t->op->table->n_in + 1].at;
            continue;
        }
        if (k == 0 && mode->in_place > 0) {
            x->out[0] = x->tensors[mode->in_place - 1].at;
            continue;
        }
        LATHE_TRY(take(t->s, lathe_desc_bytes(&t->p.out[k]), f));
        x->out[k] = f->at;
        for (int64_t i = 0; mode->accumulate >> k & 1u && i < lathe_desc_count(&t->p.out[k]); i++)
            lathe__op_store(f->at, t->p.out[k].dtype, i, before(k, i, t->p.out[k].dtype));
    }
    return scratch > 0 ? take(t->s, scratch, &x->tensors[SCRATCH]) : LATHE_OK;
}

static void unplace(placed *x)
{
    for (int32_t i = 0; i < N_TENSORS; i++)
        if (x->tensors[i].map != NULL)
            (void)munmap(x->tensors[i].map, (size_t)x->tensors[i].map_bytes);
}

/* ---- runs ---- */

typedef struct launching {
    lathe__subject *s;
    const lathe_op_kernel *kernel;
} launching;

static lathe_status launch(void *ctx, const char *kernel, int64_t n_blocks, int32_t n_threads,
                           const void *args, int64_t args_bytes)
{
    const launching *l = ctx;
    const lathe_machine *m = &l->s->device->machine;
    return m->dev->launch(m->device->self, m->stream, l->kernel->image, kernel, n_blocks, n_threads,
                          args, args_bytes);
}

static lathe_status queue(const lathe__op_trial *t, const lathe_op_kernel *k,
                          const lathe_op_call *call, const placed *x, uint32_t accumulate)
{
    lathe__subject *s = t->s;
    const void *in[LATHE_OP_MAX_IN];
    void *out[LATHE_OP_MAX_OUT];
    launching l = {s, k};
    const lathe_op_launcher to = {.size = sizeof to, .ctx = &l, .launch = launch};
    for (int32_t i = 0; i < LATHE_OP_MAX_IN; i++)
        in[i] = lathe__on_device(s, x->in[i]);
    for (int32_t i = 0; i < LATHE_OP_MAX_OUT; i++)
        out[i] = lathe__on_device(s, x->out[i]);
    const lathe_kernel_args args = {.size = sizeof args,
                                    .accumulate = accumulate,
                                    .in = in,
                                    .out = out,
                                    .scratch = lathe__on_device(s, x->tensors[SCRATCH].at),
                                    .stream = s->device->machine.stream};
    LATHE_TRY(lathe__send(s));
    LATHE_TRY(k->queue(t->self, call, &args, &to));
    return lathe__fetch(s);
}

static lathe_status start(const lathe__op_trial *t, const lathe_op_kernel *k,
                          const lathe_op_call *call, const placed *x, const lathe__op_mode *mode)
{
    if (t->s->device != NULL)
        return queue(t, k, call, x, mode->accumulate);
    const lathe_kernel_args args = {.size = sizeof args,
                                    .accumulate = mode->accumulate,
                                    .in = x->in,
                                    .out = x->out,
                                    .scratch = x->tensors[SCRATCH].at};
    const int64_t taken = lathe__heap();
    const lathe_status status = k->run(t->self, call, &args);
    const int64_t more = lathe__heap() - taken;
    if (status == LATHE_OK && more != 0 && mode->is_measured)
        return lathe_error(LATHE_E_PLUGIN, "a run took %lld heap blocks", (long long)more);
    if (status != LATHE_OK && lathe_error_message()[0] == '\0')
        return lathe_error(status, "it fails without a message");
    return status;
}

static lathe_status check_output(const lathe__op_trial *t, const placed *x, int32_t k,
                                 const lathe__op_mode *mode, double *worst)
{
    const lathe_desc *d = &t->p.out[k];
    const lathe_op_v1 *table = t->op->table;
    const char *const name = t->is_backward     ? table->inputs[k].name
                             : k < table->n_out ? table->outputs[k].name
                                                : "states";
    for (int64_t i = 0; i < lathe_desc_count(d); i++) {
        const double old = mode->accumulate >> k & 1u ? before(k, i, d->dtype) : 0.0;
        const double want = t->want[k][i] + old, got = lathe__op_load(x->out[k], d->dtype, i);
        const double bound = lathe__op_case_bound(&t->c, t->dtype, d->dtype, t->s->device != NULL,
                                                  want, t->largest[k]);
        if (!(fabs(got - want) <= bound) && !(isinf(want) && want == got))
            return lathe_error(LATHE_E_NUMERIC,
                               "%s%s, element %lld is %.8g, expected %.8g within %.1e",
                               t->is_backward ? "the gradient of " : "output ", name, (long long)i,
                               got, want, bound);
        *worst = bound > 0.0 ? fmax(*worst, fabs(got - want) / bound) : *worst;
    }
    if (mode->kept != NULL)
        memcpy(mode->kept[k], x->out[k], (size_t)lathe_desc_bytes(d));
    return LATHE_OK;
}

static lathe_status check_input(const lathe__op_trial *t, const placed *x, int32_t i)
{
    const lathe_desc *d = &t->p.in[i];
    char cell[8];
    for (int64_t k = 0; k < lathe_desc_count(d); k++) {
        lathe__op_store(cell, d->dtype, 0, t->x[i][k]);
        if (memcmp(cell, x->tensors[i].at + k * lathe_dtype_bytes(d->dtype),
                   (size_t)lathe_dtype_bytes(d->dtype)) != 0)
            return lathe_error(LATHE_E_PLUGIN, "it changed its input %d", (int)i);
    }
    return LATHE_OK;
}

static lathe_status check_memory(const lathe__op_trial *t, const placed *x,
                                 const lathe__op_mode *mode)
{
    for (int32_t i = 0; i < N_TENSORS; i++)
        if (x->tensors[i].map != NULL)
            LATHE_TRY(check_fences(&x->tensors[i],
                                   i == SCRATCH          ? "scratch"
                                   : i < LATHE_OP_MAX_IN ? "input"
                                                         : "output",
                                   i == SCRATCH          ? 0
                                   : i < LATHE_OP_MAX_IN ? i
                                                         : i - LATHE_OP_MAX_IN));
    for (int32_t i = 0; i < t->p.n_in; i++)
        if (t->x[i] != NULL && i != mode->in_place - 1 &&
            !(t->has_states && i == t->op->table->n_in + 1))
            LATHE_TRY(check_input(t, x, i));
    return t->s->device != NULL ? lathe__guards(t->s) : LATHE_OK;
}

lathe_status lathe__op_trial_run(const lathe__op_trial *t, int32_t i, const lathe__op_mode *mode,
                                 double *worst)
{
    const lathe_op_kernel *k = lathe__op_trial_kernel(t, i);
    const lathe_device_info device = device_of(t);
    const lathe_op_call call = call_of(t, &device);
    const int64_t scratch = k->scratch != NULL ? k->scratch(t->self, &call) : 0;
    placed x;
    memset(&x, 0, sizeof x);
    if (scratch < 0 || scratch > INT64_C(1) << 32)
        return lathe_error(LATHE_E_PLUGIN, "kernel %s wants %lld bytes of scratch", k->name,
                           (long long)scratch);
    if (k->scratch != NULL && k->scratch(t->self, &call) != scratch)
        return lathe_error(LATHE_E_PLUGIN, "scratch of kernel %s answers otherwise the second time",
                           k->name);
    lathe_status status = place(t, mode, scratch, &x);
    if (status == LATHE_OK)
        status = start(t, k, &call, &x, mode);
    if (status == LATHE_OK)
        status = check_memory(t, &x, mode);
    for (int32_t o = 0; o < t->p.n_out && status == LATHE_OK; o++)
        if (t->want[o] != NULL)
            status = check_output(t, &x, o, mode, worst);
    unplace(&x);
    if (t->s->device != NULL)
        lathe__device_side_release(t->s);
    return status == LATHE_OK ? status
                              : lathe_error_context(status, "kernel %s of (%s) in %s", k->name,
                                                    t->test->in, lathe_dtype_name(t->dtype));
}

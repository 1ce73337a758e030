/* The CPU device with one fault. */
#include <dlfcn.h>

#include "fault.h"

#include "lathe/device.h"
#include "lathe/quant.h"
#include "lathe/rng.h"

/* A kernel of the CPU device, and how this device changes its results. */
struct lathe_kernel {
    lathe_kernel *real;
    int32_t op, n_in, n_out;
    lathe_desc out[LATHE_OP_MAX_OUT], in0;
    int64_t runs;
};

static const lathe_plugin *real;
static const lathe_device_v1 *cpu;
static void *cpu_self;
static lathe_kernel *last_kernel;
static int64_t n_runs;

static lathe_status open_real(const lathe_host *host)
{
    static const char *const names[] = {"cpu_avx512_bf16", "cpu_avx512", "cpu_avx2"};
    for (int i = 0; i < 3 && real == NULL; i++) {
        char path[1024], why[256];
        (void)snprintf(path, sizeof path, FAULT_BUILD "/lib/lathe/plugins/device/%s.so", names[i]);
        void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const lathe_plugin *p = so != NULL ? dlsym(so, LATHE_PLUGIN_ENTRY_NAME) : NULL;
        if (p != NULL && ((const lathe_device_v1 *)p->table)->score(why, sizeof why) > 0) {
            real = p;
            cpu = p->table;
        }
    }
    if (real == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "no CPU device runs here");
    return cpu_self != NULL ? LATHE_OK : real->create(host, NULL, 0, &cpu_self);
}

static lathe_status device_create(const lathe_host *host, const lathe_value *values,
                                  int32_t n_values, void **out_self)
{
    LATHE_TRY(open_real(host));
    return create(host, values, n_values, out_self);
}

static int32_t score(char *why, int64_t why_bytes)
{
    static int calls;
    calls++;
    (void)snprintf(why, IS(ignores_why_bytes) ? 40 : (size_t)why_bytes, "%s",
                   IS(gives_no_reason) ? "" : "the CPU device with a fault");
    if (IS(score_crashes))
        crash();
    if (IS(score_hangs))
        hang();
    return IS(score_negative) ? -5 : IS(score_changes) ? 100 + calls : LATHE_SCORE_PORTABLE;
}

static lathe_status info(void *self, lathe_device_info *out)
{
    (void)self;
    LATHE_TRY(cpu->info(cpu_self, out));
    if (IS(has_f32_alone)) {
        out->compute_dtypes = 1u << LATHE_F32;
        out->graph_dtypes = 1u << LATHE_F32;
    }
    if (IS(no_workers))
        out->n_workers = 0;
    if (IS(no_memory))
        out->memory_bytes = 0;
    if (IS(no_model))
        out->model[0] = '\0';
    if (IS(activations_without_planes))
        out->packed_weights = 0;
    if (IS(activations_of_bf16))
        out->activations = 1u << LATHE_BF16;
    if (IS(no_f32))
        out->compute_dtypes = 0;
    return LATHE_OK;
}

static lathe_status alloc(void *self, int64_t bytes, int32_t memory, void **out)
{
    (void)self;
    if (IS(takes_unknown_memory))
        memory = LATHE_MEM_DEVICE;
    LATHE_TRY(cpu->alloc(cpu_self, bytes, memory, out));
    if (IS(memory_is_not_zero) && bytes > 0)
        memset(*out, 0xff, (size_t)bytes);
    return LATHE_OK;
}

static void release(void *self, void *memory)
{
    (void)self;
    cpu->free(cpu_self, memory);
}

static lathe_status copy(void *self, lathe_stream *stream, void *dst, const void *src,
                         int64_t bytes, int32_t direction)
{
    (void)self;
    if (IS(copies_one_byte_less) && bytes > 1000)
        bytes--;
    if (IS(loses_copies_on_the_device) && direction == LATHE_COPY_ON_DEVICE)
        return LATHE_OK;
    if (IS(takes_unknown_directions))
        direction = LATHE_COPY_ON_DEVICE;
    return cpu->copy(cpu_self, stream, dst, src, bytes, direction);
}

static int refuses(const lathe_kernel_problem *p)
{
    if (IS(has_few_ops) && p->op != LATHE_OP_ADD && p->op != LATHE_OP_LINEAR)
        return 1;
    if (IS(has_f32_alone) && p->in[0].dtype != LATHE_F32 && p->in[0].dtype >= 0)
        return 1;
    return (IS(lacks_a_declared_dtype) && p->op == LATHE_OP_LINEAR &&
            p->in[0].dtype == LATHE_BF16) ||
           (IS(lacks_a_variant) && p->op == LATHE_OP_MATMUL && p->attrs->trans_b);
}

/* The weight of a product in a format that does not quantize its inputs. */
static const lathe_packed_weight *plain_weights(const lathe_kernel_problem *p)
{
    static lathe_packed_weight weights[LATHE_OP_MAX_IN];
    static lathe_quant_v1 table;
    memset(weights, 0, sizeof weights);
    memcpy(weights, p->weights, (size_t)p->n_in * sizeof *weights);
    table = *weights[1].table;
    table.activations = NULL;
    weights[1].table = &table;
    return weights;
}

static lathe_status kernel_create(void *self, const lathe_kernel_problem *p, lathe_kernel **out,
                                  int64_t *out_scratch)
{
    const instance *x = self;
    lathe_kernel_problem problem = *p;
    lathe_op_attrs attrs = *p->attrs;
    if (refuses(p))
        return lathe_fail(x->host, LATHE_E_UNSUPPORTED, "not this one");
    if (IS(makes_unknown_ops) && (p->op < 0 || p->op >= LATHE_N_OPS))
        problem.op = LATHE_OP_ADD;
    if (IS(takes_unknown_dtypes) && p->in[0].dtype == 99)
        return LATHE_OK;
    if (IS(refuses_without_a_message) && (p->op < 0 || p->op >= LATHE_N_OPS))
        return LATHE_E_UNSUPPORTED;
    if (IS(ignores_softcap))
        attrs.softcap = 0.0f;
    if (IS(ignores_eps))
        attrs.eps = 0.0f;
    if (IS(ignores_inverse))
        attrs.inverse = 0;
    if (IS(ignores_alpha) && p->op == LATHE_OP_MATMUL)
        attrs.alpha = 1.0;
    if (IS(ignores_offset_one))
        attrs.offset_one = 0;
    if (IS(ignores_rng_stream))
        attrs.rng_stream = 0;
    if (IS(ignores_activations) && p->weights != NULL)
        problem.weights = plain_weights(p);
    problem.attrs = &attrs;
    lathe_kernel *k = x->host->alloc((int64_t)sizeof *k);
    *k = (lathe_kernel){.op = problem.op, .n_in = p->n_in, .n_out = p->n_out, .in0 = p->in[0]};
    memcpy(k->out, p->out, (size_t)p->n_out * sizeof *p->out);
    const lathe_status status = cpu->kernel_create(cpu_self, &problem, &k->real, out_scratch);
    if (status != LATHE_OK) {
        x->host->free(k);
        return status;
    }
    if (IS(wants_negative_scratch))
        *out_scratch = -1;
    *out = last_kernel = k;
    return LATHE_OK;
}

static void kernel_destroy(void *self, lathe_kernel *k)
{
    const instance *x = self;
    if (k != NULL) {
        cpu->kernel_destroy(cpu_self, k->real);
        x->host->free(k);
    }
}

/* Multiplies element i of output 0 by `factor`. */
static void spoil(const lathe_kernel *k, const lathe_kernel_args *a, int64_t i, float factor)
{
    const int32_t dtype = k->out[0].dtype;
    if (dtype == LATHE_F32)
        ((float *)a->out[0])[i] *= factor;
    else if (dtype == LATHE_BF16)
        ((uint16_t *)a->out[0])[i] =
            lathe_f32_to_bf16(lathe_bf16_to_f32(((uint16_t *)a->out[0])[i]) * factor);
}

static void spoil_last(const lathe_kernel *k, const lathe_kernel_args *a, float factor)
{
    spoil(k, a, lathe_desc_count(&k->out[0]) - 1, factor);
}

static void spoil_results(const lathe_kernel *k, const lathe_kernel_args *a)
{
    if (IS(linear_loses_its_last_element) && k->op == LATHE_OP_LINEAR)
        spoil_last(k, a, 0.0f);
    if (IS(head_is_off_by_a_percent) && k->op == LATHE_OP_HEAD_LOGPROB)
        spoil(k, a, 1, 1.02f);
    if (IS(embed_bwd_is_off) && k->op == LATHE_OP_EMBED_BWD)
        spoil(k, a, 30, 1.01f);
    if (IS(bf16_alone_is_off) && k->op == LATHE_OP_SWIGLU && k->out[0].dtype == LATHE_BF16)
        spoil_last(k, a, 1.05f);
    if (IS(rmsnorm_bwd_forgets_dw) && k->op == LATHE_OP_RMSNORM_BWD && a->out[1] != NULL)
        memset(a->out[1], 0, (size_t)lathe_desc_bytes(&k->out[1]));
    if (IS(nan_at_run_777) && k->runs == 777 && k->op == LATHE_OP_SCALE)
        spoil(k, a, 0, NAN);
    if (IS(writes_past_the_end) && k->op == LATHE_OP_ADD)
        ((char *)a->out[0])[lathe_desc_bytes(&k->out[0])] = 0;
    if (IS(writes_its_inputs) && k->op == LATHE_OP_MUL && a->in[1] != a->out[0])
        *(volatile char *)(uintptr_t)a->in[1] = 0x5a;
}

/* Changes the place among the ranks that a kernel with random numbers sees. */
static void move_ranks(const lathe_kernel *k, lathe_kernel_args *a, const void *in[2],
                       int64_t counter[LATHE_RNG_COUNTER])
{
    if (k->op != LATHE_OP_DROPOUT || a->in[1] == NULL)
        return;
    memcpy(counter, a->in[1], LATHE_RNG_COUNTER * sizeof *counter);
    if (IS(ignores_the_rank))
        counter[LATHE_RNG_RANKS] = 1;
    if (IS(ignores_parts))
        counter[LATHE_RNG_PARTS] = 1;
    in[0] = a->in[0];
    in[1] = counter;
    a->in = in;
}

static lathe_status kernel_run(void *self, lathe_kernel *k, const lathe_kernel_args *args)
{
    int64_t counter[LATHE_RNG_COUNTER];
    const void *in[2];
    const instance *x = self;
    lathe_kernel_args a = *args;
    misbehave(x->host);
    k->runs++;
    n_runs++;
    if (IS(ignores_the_rank) || IS(ignores_parts))
        move_ranks(k, &a, in, counter);
    if (IS(ignores_accumulate))
        a.accumulate = 0;
    if (IS(adds_to_all_or_none) && a.accumulate != 0)
        a.accumulate = (1u << k->n_out) - 1u;
    if (IS(runs_the_last_kernel) && last_kernel->op == k->op && k->op == LATHE_OP_SCALE)
        return cpu->kernel_run(cpu_self, last_kernel->real, &a);
    LATHE_TRY(cpu->kernel_run(cpu_self, k->real, &a));
    spoil_results(k, &a);
    if (IS(answers_otherwise_the_second_time) && k->op == LATHE_OP_GELU_TANH && n_runs % 2)
        spoil(k, &a, 0, 1.0f + 0x1p-20f);
    return LATHE_OK;
}

static const lathe_device_v1 table = {
    .size = sizeof table,
    .revision = LATHE_DEVICE_REVISION,
    .score = IS(null_score) ? NULL : score,
    .info = IS(null_info) ? NULL : info,
    .alloc = IS(null_alloc) ? NULL : alloc,
    .free = IS(null_free) ? NULL : release,
    .copy = IS(null_copy) ? NULL : copy,
    .kernel_create = IS(null_kernel_create) ? NULL : kernel_create,
    .kernel_destroy = kernel_destroy,
    .kernel_run = IS(null_kernel_run) ? NULL : kernel_run,
};

#undef FAULT_CREATE
#define FAULT_CREATE device_create
FAULTY_PLUGIN(LATHE_KIND_DEVICE, LATHE_DEVICE_REVISION, &table);

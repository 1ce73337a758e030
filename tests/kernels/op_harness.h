/* Tests a kernel: makes the problem, runs it on every CPU build that this machine can run, on the
 * emulated GPU if the toolkit's headers were found (tests/emulator) and on a real one if there is
 * one, and compares with a reference in double precision.
 *
 * Each case runs with overwriting (outputs full of NaN before) and, if asked for, with adding; with
 * one and with two workers, whose results must agree bit for bit. Scratch is full of NaN and
 * fenced.
 *
 * Tolerance: |got - want| <= round_off(dtype) * |want| + slack * max |want| of that output, where
 * slack covers the f32 arithmetic inside; a case derives it from its reduction length.
 */
#ifndef LATHE_TEST_OP_HARNESS_H
#define LATHE_TEST_OP_HARNESS_H

#include <cpuid.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/parallel.h"
#include "lathe/device.h"
#include "lathe/plugin.h"
#include "lathe/rng.h"
#include "plug/host_table.h"
#include "support/build_folder.h"

#define HARNESS_FENCE 64
#define HARNESS_BYTE 0xff /* a NaN in every float dtype */

typedef struct op_case op_case;
/** Computes want = the op's outputs from inputs as doubles, both in the op's order. */
typedef void (*op_reference)(const op_case *c, double *const *in, double *const *want);

struct op_case {
    int32_t op;
    lathe_op_attrs attrs;
    lathe_desc in[LATHE_OP_MAX_IN], out[LATHE_OP_MAX_OUT];
    int32_t n_in, n_out;
    double *value[LATHE_OP_MAX_IN]; /* exactly representable in the input's dtype */
    op_reference reference;
    double slack;     /* see the tolerance above */
    int32_t add;      /* also run with adding to every output */
    int32_t product;  /* 1: a product, see op_products_are_exact */
    int32_t in_place; /* 1 + the input whose memory output 0 uses; 0: none */
};

typedef struct op_build {
    const lathe_plugin *plugin;
    const lathe_device_v1 *device;
    void *self;
    lathe_device_info info;
} op_build;

static const char *const op_isas[] = {"cpu_avx2", "cpu_avx512", "cpu_avx512_bf16"};
#define N_ISAS 3
/* The CUDA device: emulated and real. */
static const char *const op_gpus[] = {"tests/emulated/device/cuda.so",
                                      "lib/lathe/plugins/device/cuda.so"};
#define N_GPUS 2
#define REAL_GPU 1 /* in op_gpus */

/** Slack of a GPU's sum of n fp8 products: on Hopper, after every 32 of them 14 bits remain, the
 * others are cut off ("DeepSeek-V3 Technical Report", 3.3.2). */
static inline double op_fp8_slack(int64_t n)
{
    return 0x1p-13 * (1.0 + (double)n / 32.0);
}

/** Slack of an f32 sum of n products that uses at least 8 lanes. */
static inline double slack_of(int64_t n)
{
    return 0x1p-24 * (8.0 + 2.0 * sqrt((double)n));
}

/* Opens the plugin at a path of the build folder; returns 0 if it was not built or cannot run
 * here. */
static inline int op_open_file(const char *file, op_build *b)
{
    char path[512], why[256] = "";
    (void)snprintf(path, sizeof path, "%s/%s", lathe_test_build(), file);
    if (access(path, F_OK) != 0)
        return 0;
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(so, "%s: %s", path, dlerror());
    b->plugin = dlsym(so, LATHE_PLUGIN_ENTRY_NAME);
    cr_assert_not_null(b->plugin);
    b->device = b->plugin->table;
    if (b->device->score(why, sizeof why) == 0)
        return 0;
    cr_assert_eq(b->plugin->create(lathe_host_get(), NULL, 0, &b->self), LATHE_OK);
    b->info.size = sizeof b->info;
    cr_assert_eq(b->device->info(b->self, &b->info), LATHE_OK);
    return 1;
}

static inline int op_open(const char *name, op_build *b)
{
    char file[128];
    (void)snprintf(file, sizeof file, "lib/lathe/plugins/device/%s.so", name);
    return op_open_file(file, b);
}

/* Opens the CUDA device of the real GPU if there is one, else of the emulated one. Returns the
 * folder, below the build's, of the plugins with code for it. */
static inline const char *op_open_gpu(op_build *b)
{
    static const char *const folders[] = {"lib/lathe/plugins", "tests/emulated"};
    for (int i = 0; i < N_GPUS; i++) {
        char file[128];
        (void)snprintf(file, sizeof file, "%s/device/cuda.so", folders[i]);
        if (op_open_file(file, b))
            return folders[i];
    }
    cr_assert_fail("neither a GPU nor the emulated one");
    return NULL;
}

static inline void op_close(op_build *b)
{
    b->plugin->destroy(b->self);
}

static inline double op_load(const void *p, int32_t dtype, int64_t i)
{
    switch (dtype) {
    case LATHE_F32:
        return (double)((const float *)p)[i];
    case LATHE_BF16:
        return (double)lathe_bf16_to_f32(((const uint16_t *)p)[i]);
    case LATHE_F16:
        return (double)lathe_f16_to_f32(((const uint16_t *)p)[i]);
    case LATHE_I32:
        return (double)((const int32_t *)p)[i];
    case LATHE_I64:
        return (double)((const int64_t *)p)[i];
    case LATHE_F64:
        return ((const double *)p)[i];
    default:
        cr_assert_fail("no such dtype in the harness: %d", (int)dtype);
        return 0.0;
    }
}

static inline void op_store(void *p, int32_t dtype, int64_t i, double x)
{
    if (dtype == LATHE_F32)
        ((float *)p)[i] = (float)x;
    else if (dtype == LATHE_F64)
        ((double *)p)[i] = x;
    else if (dtype == LATHE_BF16)
        ((uint16_t *)p)[i] = lathe_f32_to_bf16((float)x);
    else if (dtype == LATHE_F16)
        ((uint16_t *)p)[i] = lathe_f32_to_f16((float)x);
    else if (dtype == LATHE_I32)
        ((int32_t *)p)[i] = (int32_t)x;
    else
        ((int64_t *)p)[i] = (int64_t)x;
}

/** x rounded to `dtype`. */
static inline double op_round(double x, int32_t dtype)
{
    char cell[8];
    op_store(cell, dtype, 0, x);
    return op_load(cell, dtype, 0);
}

/** Uniform in [-1, 1); depends only on (seed, i). */
static inline double op_noise(uint64_t seed, int64_t i)
{
    const lathe_u32x4 r = lathe_rng_block(seed, 0, 77, (uint64_t)i);
    return 2.0 * lathe_uniform_f64(r.v[0], r.v[1]) - 1.0;
}

/** Gives input i a shape and noise of size `scale` around `center`. */
static inline void op_input(op_case *c, int32_t i, lathe_desc d, double center, double scale)
{
    const int64_t n = lathe_desc_count(&d);
    c->in[i] = d;
    c->value[i] = malloc((size_t)(n > 0 ? n : 1) * sizeof(double));
    for (int64_t j = 0; j < n; j++)
        c->value[i][j] =
            op_round(center + scale * op_noise((uint64_t)(100 * c->op + i), j), d.dtype);
    if (i >= c->n_in)
        c->n_in = i + 1;
}

/** Gives input i a shape and the whole numbers first, first+step, ... modulo `modulus`. */
static inline void op_indices(op_case *c, int32_t i, int64_t n, int64_t first, int64_t step,
                              int64_t modulus)
{
    c->in[i] = lathe_desc_1d(LATHE_I32, n);
    c->value[i] = malloc((size_t)n * sizeof(double));
    for (int64_t j = 0; j < n; j++)
        c->value[i][j] = (double)((first + j * step) % modulus);
    if (i >= c->n_in)
        c->n_in = i + 1;
}

static inline void op_absent_in(op_case *c, int32_t i)
{
    c->in[i] = (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    c->value[i] = NULL;
    if (i >= c->n_in)
        c->n_in = i + 1;
}

static inline void op_output(op_case *c, int32_t i, lathe_desc d)
{
    c->out[i] = d;
    if (i >= c->n_out)
        c->n_out = i + 1;
}

static inline void op_absent_out(op_case *c, int32_t i)
{
    op_output(c, i, (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}});
}

static inline void op_free(op_case *c)
{
    for (int32_t i = 0; i < c->n_in; i++)
        free(c->value[i]);
}

static inline lathe_kernel_problem op_problem(const op_case *c)
{
    const uint32_t all = (1u << c->n_out) - 1u;
    const lathe_kernel_problem p = {.size = sizeof p,
                                    .op = c->op,
                                    .attrs = &c->attrs,
                                    .in = c->in,
                                    .out = c->out,
                                    .n_in = c->n_in,
                                    .n_out = c->n_out,
                                    .may_accumulate = c->add ? all : 0,
                                    .may_overwrite = all,
                                    .flags = LATHE_FLAG_DETERMINISTIC,
                                    .n_threads = lathe_host_get()->n_threads()};
    return p;
}

/* The value of an output before the kernel adds to it. */
static inline double op_before(int32_t output, int64_t i, int32_t dtype)
{
    return op_round(op_noise((uint64_t)(900 + output), i), dtype);
}

/** Copies `host` into new device memory. */
static inline void *op_to_device(const op_build *b, const void *host, int64_t bytes)
{
    void *device = NULL;
    cr_assert_eq(b->device->alloc(b->self, bytes, LATHE_MEM_DEVICE, &device), LATHE_OK);
    cr_assert_eq(b->device->copy(b->self, NULL, device, host, bytes, LATHE_COPY_TO_DEVICE),
                 LATHE_OK);
    cr_assert_eq(b->device->sync(b->self, NULL), LATHE_OK);
    return device;
}

/** Copies device memory into new host memory. */
static inline void *op_to_host(const op_build *b, const void *device, int64_t bytes)
{
    void *host = malloc((size_t)bytes + 1);
    cr_assert_eq(b->device->copy(b->self, NULL, host, device, bytes, LATHE_COPY_TO_HOST), LATHE_OK);
    cr_assert_eq(b->device->sync(b->self, NULL), LATHE_OK);
    return host;
}

/* Makes input i on the device; or an output, full of NaN or of the values that the kernel adds
 * to. */
static inline void *op_make_input(const op_build *b, const op_case *c, int32_t i)
{
    const int64_t bytes = lathe_desc_bytes(&c->in[i]);
    char *host = malloc((size_t)bytes + 1);
    for (int64_t j = 0; j < lathe_desc_count(&c->in[i]); j++)
        op_store(host, c->in[i].dtype, j, c->value[i][j]);
    void *device = op_to_device(b, host, bytes);
    free(host);
    return device;
}

static inline void *op_make_output(const op_build *b, const op_case *c, int32_t i, int add)
{
    const int64_t bytes = lathe_desc_bytes(&c->out[i]);
    char *host = malloc((size_t)bytes + 1);
    memset(host, HARNESS_BYTE, (size_t)bytes);
    for (int64_t j = 0; add && j < lathe_desc_count(&c->out[i]); j++)
        op_store(host, c->out[i].dtype, j, op_before(i, j, c->out[i].dtype));
    void *device = op_to_device(b, host, bytes);
    free(host);
    return device;
}

static inline void op_run_kernel(const op_build *b, const op_case *c, int add,
                                 const void *const *in, void *const *out)
{
    const lathe_device_v1 *dev = b->device;
    const lathe_kernel_problem problem = op_problem(c);
    lathe_kernel *k = NULL;
    int64_t scratch_bytes = -1;
    const lathe_status made = dev->kernel_create(b->self, &problem, &k, &scratch_bytes);
    cr_assert_eq(made, LATHE_OK, "%s: op %d: create gives %d", b->plugin->name, (int)c->op,
                 (int)made);
    cr_assert_geq(scratch_bytes, 0);
    unsigned char *fence = malloc((size_t)scratch_bytes + HARNESS_FENCE);
    memset(fence, HARNESS_BYTE, (size_t)(scratch_bytes + HARNESS_FENCE));
    void *scratch = op_to_device(b, fence, scratch_bytes + HARNESS_FENCE);
    free(fence);
    const lathe_kernel_args args = {.size = sizeof args,
                                    .accumulate = add ? problem.may_accumulate : 0,
                                    .in = in,
                                    .out = out,
                                    .scratch = scratch};
    cr_assert_eq(dev->kernel_run(b->self, k, &args), LATHE_OK);
    fence = op_to_host(b, scratch, scratch_bytes + HARNESS_FENCE);
    for (int64_t i = 0; i < HARNESS_FENCE; i++)
        cr_assert_eq(fence[scratch_bytes + i], HARNESS_BYTE, "op %d writes past its scratch",
                     (int)c->op);
    free(fence);
    dev->kernel_destroy(b->self, k);
    dev->free(b->self, scratch);
}

/** Runs the case once; the outputs are returned in new host memory. */
static inline void op_run(const op_build *b, const op_case *c, int add, void **out)
{
    const void *in[LATHE_OP_MAX_IN] = {0};
    void *memory[LATHE_OP_MAX_IN] = {0}, *made[LATHE_OP_MAX_OUT] = {0};
    for (int32_t i = 0; i < c->n_in; i++)
        in[i] = memory[i] = c->in[i].dtype == LATHE_ABSENT ? NULL : op_make_input(b, c, i);
    for (int32_t i = 0; i < c->n_out; i++)
        if (i == 0 && c->in_place)
            made[0] = memory[c->in_place - 1];
        else if (c->out[i].dtype != LATHE_ABSENT)
            made[i] = op_make_output(b, c, i, add);
    op_run_kernel(b, c, add, in, made);
    for (int32_t i = 0; i < c->n_out; i++) {
        out[i] = made[i] == NULL ? NULL : op_to_host(b, made[i], lathe_desc_bytes(&c->out[i]));
        if (!(i == 0 && c->in_place))
            b->device->free(b->self, made[i]);
    }
    for (int32_t i = 0; i < c->n_in; i++)
        b->device->free(b->self, memory[i]);
}

static inline void op_compare(const op_build *b, const op_case *c, int add, int32_t i,
                              const void *got, const double *want)
{
    const int32_t dtype = c->out[i].dtype;
    /* half a unit of 8 or 11 bits; f16's smallest unit is 2^-24 */
    const double round_off = dtype == LATHE_BF16  ? 0x1p-8
                             : dtype == LATHE_F16 ? 0x1p-11
                             : dtype == LATHE_F64 ? 0.0 /* slack covers everything */
                                                  : 0x1p-22;
    const double least = dtype == LATHE_F16 ? 0x1p-25 : (double)FLT_MIN;
    const int64_t n = lathe_desc_count(&c->out[i]);
    double largest = 0.0;
    for (int64_t j = 0; j < n; j++)
        if (fabs(want[j]) > largest && isfinite(want[j]))
            largest = fabs(want[j]);
    for (int64_t j = 0; j < n; j++) {
        const double before = add ? op_before(i, j, dtype) : 0.0;
        const double w = want[j] + before, g = op_load(got, dtype, j);
        const double allowed = round_off * fabs(w) + c->slack * largest + least;
        if ((isinf(w) && w == g) || (isnan(w) && isnan(g)))
            continue;
        cr_assert(fabs(g - w) <= allowed,
                  "%s: op %d output %d[%lld]%s is %.9g, expected %.9g (within %.3g)",
                  b->plugin->name, (int)c->op, (int)i, (long long)j, add ? " added" : "", g, w,
                  allowed);
    }
}

static inline void op_free_outputs(const op_case *c, void **out)
{
    for (int32_t i = 0; i < c->n_out; i++)
        free(out[i]);
}

/* CPUID leaf 7, EDX bit 22. */
static inline int op_has_amx_bf16(void)
{
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 22) != 0;
}

/* Whether products must not depend on the number of workers. Two kinds do, because oneDNN splits
 * their sums over the workers: f32 without AVX-512, and bf16 with AMX tiles. */
static inline int op_products_are_exact(const op_case *c)
{
    if (getenv("ONEDNN_MAX_CPU_ISA") == NULL && op_has_amx_bf16())
        return c->in[0].dtype == LATHE_F32 || c->in[0].dtype == LATHE_F16;
    return c->in[0].dtype != LATHE_F32 ||
           (__builtin_cpu_supports("avx512bw") && getenv("ONEDNN_MAX_CPU_ISA") == NULL);
}

/* Checks one build: overwriting and adding, one worker and two (on the emulated GPU, threads in
 * both orders). */
static inline void op_check_build(const op_build *b, const op_case *c, double *const *want)
{
    for (int add = 0; add <= c->add; add++) {
        void *one[LATHE_OP_MAX_OUT], *two[LATHE_OP_MAX_OUT];
        lathe_parallel_init(1);
        op_run(b, c, add, one);
        lathe_parallel_init(2);
        op_run(b, c, add, two);
        for (int32_t i = 0; i < c->n_out; i++) {
            if (c->out[i].dtype == LATHE_ABSENT)
                continue;
            op_compare(b, c, add, i, one[i], want[i]);
            op_compare(b, c, add, i, two[i], want[i]);
            if (c->product && !op_products_are_exact(c))
                continue;
            cr_assert_eq(memcmp(one[i], two[i], (size_t)lathe_desc_bytes(&c->out[i])), 0,
                         "%s: op %d output %d depends on the number of workers", b->plugin->name,
                         (int)c->op, (int)i);
        }
        op_free_outputs(c, one);
        op_free_outputs(c, two);
    }
}

/** Checks the case on every build that runs here, and frees its inputs. */
static inline void op_check(op_case *c)
{
    double *want[LATHE_OP_MAX_OUT] = {0};
    int checked = 0;
    for (int32_t i = 0; i < c->n_out; i++)
        want[i] = calloc((size_t)lathe_desc_count(&c->out[i]) + 1, sizeof(double));
    c->reference(c, c->value, want);
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        if (!op_open(op_isas[i], &b))
            continue;
        op_check_build(&b, c, want);
        op_close(&b);
        checked++;
    }
    cr_assert_gt(checked, 0, "no build of the CPU device runs on this machine");
    for (int i = 0; i < N_GPUS; i++) {
        op_build b = {0};
        if (!op_open_file(op_gpus[i], &b))
            continue;
        if (c->attrs.fp8 != 0 && i == REAL_GPU)
            c->slack += op_fp8_slack(c->in[0].dims[c->op != LATHE_OP_LINEAR_DW]);
        if (c->attrs.fp8 == 0 || b.info.graph_dtypes >> LATHE_F8_E4M3 & 1u)
            op_check_build(&b, c, want);
        op_close(&b);
    }
    for (int32_t i = 0; i < c->n_out; i++)
        free(want[i]);
    op_free(c);
}

/** The status of kernel_create for the case on the first build that runs here. */
static inline lathe_status op_refusal(const op_case *c)
{
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        if (!op_open(op_isas[i], &b))
            continue;
        const lathe_kernel_problem problem = op_problem(c);
        lathe_kernel *k = NULL;
        int64_t scratch = 0;
        const lathe_status status = b.device->kernel_create(b.self, &problem, &k, &scratch);
        b.device->kernel_destroy(b.self, k);
        op_close(&b);
        return status;
    }
    return LATHE_OK;
}

/** d loss / d x by central differences in double: want[i] for each of n elements of x. */
static inline void op_differences(double (*loss)(const op_case *c, double *const *in),
                                  const op_case *c, double *const *in, double *x, int64_t n,
                                  double *want)
{
    for (int64_t i = 0; i < n; i++) {
        const double keep = x[i], h = 1e-5 * (1.0 + fabs(keep));
        x[i] = keep + h;
        const double up = loss(c, in);
        x[i] = keep - h;
        want[i] = (up - loss(c, in)) / (2.0 * h);
        x[i] = keep;
    }
}

#endif

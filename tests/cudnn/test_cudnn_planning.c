/* Plans the graphs of attention with the real cuDNN for GPUs that are described to it: every GPU
 * that `auto` may meet has an engine. Nothing runs. The driver is pretended_driver.c, found through
 * LD_LIBRARY_PATH. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cudnn_engine.h"
#include "cudnn_problem.h"
#include "cudnn_sdpa.h"

typedef struct gpu {
    const char *name, *isa;
    int32_t n_processors, shared_bytes; /* of a block that opts in */
} gpu;

static const gpu a100 = {"NVIDIA A100-SXM4-80GB", "sm_80", 108, 166912};
static const gpu l40s = {"NVIDIA L40S", "sm_89", 142, 101376};
static const gpu h100 = {"NVIDIA H100 80GB HBM3", "sm_90", 132, 232448};
static const gpu b200 = {"NVIDIA B200", "sm_100", 148, 232448};

static const cudnn_library *library(void)
{
    static cudnn_library lib;
    char why[256];
    if (!cudnn_library_open(&lib, TEST_CUDNN, why, sizeof why))
        cr_skip_test("%s", why);
    return &lib;
}

/* The GPU as a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. */
static cudnn_descriptor described(cudnn_graph *g, const gpu *x)
{
    char json[1200];
    const int n = snprintf(
        json, sizeof json,
        "{\"version\": 1, \"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"deviceVer\": %s0, "
        "\"driverVer\": 13000, \"maxGridSize\": [2147483647, 65535, 65535], "
        "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
        "\"multiProcessorCount\": %d, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, "
        "\"l2CacheSize\": 52428800, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
        "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, "
        "\"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32, "
        "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, "
        "\"supportCoopLaunch\": 1, \"totalGlobalMem\": 85000000000}",
        x->name, x->isa + 3, x->n_processors, x->shared_bytes);
    const cudnn_attribute attributes[] = {
        {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n + 1, json},
        {0},
    };
    cudnn_descriptor d = cudnn_graph_make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, attributes);
    cr_assert(d, "%s", g->error);
    return d;
}

/* q, k and v as columns of one tensor; 8 query heads. */
static lathe_attention_problem problem(int32_t dtype, int64_t t, int32_t kv_heads, int32_t d)
{
    const int64_t width = (8 + 2 * kv_heads) * (int64_t)d;
    return (lathe_attention_problem){.size = sizeof(lathe_attention_problem),
                                     .dtype = dtype,
                                     .batch = 2,
                                     .t_q = t,
                                     .t_k = t,
                                     .n_heads = 8,
                                     .n_kv_heads = kv_heads,
                                     .head_dim = d,
                                     .causal = 1,
                                     .scale = 0.1f,
                                     .q_stride = width,
                                     .k_stride = width,
                                     .v_stride = width,
                                     .o_stride = 8 * (int64_t)d,
                                     .dq_stride = width,
                                     .dk_stride = width,
                                     .dv_stride = width,
                                     .need_backward = 1};
}

static char refusal[192]; /* of the last problem that was not planned */

/* Plans a direction in a form; returns the bytes of its workspace, -1 if no engine takes it. */
static int64_t planned(const gpu *x, const lathe_attention_problem *p, cudnn_part part,
                       int32_t backward, cudnn_form form, const cudnn_engine *only)
{
    static cudnn_graph g;
    int64_t bytes = -1;
    cudnn_graph_init(&g, library());
    cudnn_descriptor target = described(&g, x);
    (backward ? cudnn_sdpa_backward : cudnn_sdpa_forward)(&g, p, part, form);
    cr_assert(g.status == CUDNN_STATUS_SUCCESS, "%s: %s", x->isa, g.error);
    if (!cudnn_engine_plan(&g, NULL, target, only, form.any_order, &bytes)) {
        (void)snprintf(refusal, sizeof refusal, "%s", g.error);
        bytes = -1;
    }
    cudnn_graph_fini(&g);
    return bytes;
}

static void must_plan_as(const gpu *x, lathe_attention_problem p, cudnn_part part, cudnn_form form)
{
    const cudnn_library *lib = library();
    lathe_device_info device = {.size = sizeof device};
    (void)snprintf(device.isa, sizeof device.isa, "%s", x->isa);
    p.device = &device;
    cr_assert(cudnn_problem_refusal(&p) == NULL, "%s", cudnn_problem_refusal(&p));
    for (int32_t backward = 0; backward < 2; backward++) {
        const cudnn_engine *only = NULL;
        char why[192];
        if (backward && !form.any_order &&
            !cudnn_engine_for_backward(cudnn_problem_arch(&device), lib->version, &only, why,
                                       sizeof why))
            continue; /* this cuDNN is too old, and its message says so */
        const int64_t bytes = planned(x, &p, part, backward, form, only);
        /* The workspace that README.md states: dS in 16 bits unless dq is gathered, and dk and dv
         * of every query head. */
        const int64_t heads = part.batch * part.n_kv_heads * (p.n_heads / p.n_kv_heads);
        const int64_t t = (p.t_k + 127) / 128 * 128;
        const int64_t ds = backward && !only && !form.any_order ? 2 * heads * t * t : 0;
        const int64_t sums = backward ? 8 * heads * t * p.head_dim : 0;
        cr_assert(bytes >= 0 && bytes <= ds + sums + 4096,
                  "%s %s T %lld D %d documents %d any order %d: workspace %lld, %s", x->isa,
                  backward ? "backward" : "forward", (long long)p.t_q, p.head_dim,
                  (int)form.documents, form.any_order, (long long)bytes, refusal);
    }
}

/* In a fixed order, documents as a bias. */
static void must_plan(const gpu *x, lathe_attention_problem p, cudnn_part part)
{
    const cudnn_form form = {p.packed ? CUDNN_DOCUMENTS_BIAS : CUDNN_DOCUMENTS_NONE, 0};
    must_plan_as(x, p, part, form);
}

#define WHOLE(p) ((cudnn_part){(p).batch, (p).n_kv_heads})

/* Grouped heads: the whole problem and a part of it. */
static void must_plan_groups(const gpu *x)
{
    const lathe_attention_problem p = problem(LATHE_BF16, 1024, 4, 128);
    must_plan(x, p, WHOLE(p));
    must_plan(x, p, (cudnn_part){1, 2});
}

/* A number of tokens that does not fill a tile, and a window. */
static lathe_attention_problem odd_window(void)
{
    lathe_attention_problem p = problem(LATHE_F16, 1001, 8, 64);
    p.window = 300;
    return p;
}

/* The problem of odd_window with packed documents. */
static void must_plan_documents(const gpu *x)
{
    lathe_attention_problem p = odd_window();
    p.packed = 1;
    must_plan(x, p, WHOLE(p));
}

Test(cudnn_planning, ampere)
{
    must_plan_groups(&a100);
    must_plan_documents(&a100);
}

Test(cudnn_planning, ada)
{
    must_plan_documents(&l40s);
}

Test(cudnn_planning, hopper)
{
    lathe_attention_problem p =
        problem(LATHE_BF16, 256, 4, 40); /* no mask, more keys than queries */
    p.causal = 0;
    p.t_k = 392;
    must_plan(&h100, p, WHOLE(p));
    must_plan_groups(&h100);
    must_plan_documents(&h100);
}

/* Its backward of fixed order does not support documents: cuDNN 9.19 cannot compile them in it. */
Test(cudnn_planning, blackwell)
{
    const lathe_attention_problem p = odd_window();
    must_plan_groups(&b200);
    must_plan(&b200, p, WHOLE(p));
}

/* The choice of `auto` on sm_90, for the head sizes of real models. */
Test(cudnn_planning, hopper_compares_with_starts)
{
    for (int32_t d = 40; d <= 256; d += 72) {
        lathe_attention_problem p = problem(LATHE_BF16, 1024, 4, d);
        p.packed = 1;
        must_plan_as(&h100, p, WHOLE(p), (cudnn_form){CUDNN_DOCUMENTS_STARTS, 0});
    }
    lathe_attention_problem p = odd_window();
    p.packed = 1;
    must_plan_as(&h100, p, WHOLE(p), (cudnn_form){CUDNN_DOCUMENTS_STARTS, 0});
    p.causal = p.window = 0;
    must_plan_as(&h100, p, WHOLE(p), (cudnn_form){CUDNN_DOCUMENTS_STARTS, 0});
}

/* deterministic = false: dq is gathered, and no workspace holds dS. */
Test(cudnn_planning, any_order_needs_no_ds)
{
    const gpu *const gpus[] = {&a100, &l40s, &h100, &b200};
    for (int i = 0; i < 4; i++) {
        lathe_attention_problem p = problem(LATHE_BF16, 1024, 4, 128);
        must_plan_as(gpus[i], p, WHOLE(p), (cudnn_form){CUDNN_DOCUMENTS_NONE, 1});
        p = odd_window();
        p.packed = 1;
        must_plan_as(gpus[i], p, WHOLE(p),
                     (cudnn_form){i == 2 ? CUDNN_DOCUMENTS_STARTS : CUDNN_DOCUMENTS_BIAS, 1});
    }
}

Test(cudnn_planning, the_first_failure_is_kept_and_reported)
{
    static cudnn_graph g;
    const cudnn_shape a = {{1, 1, 16, 16}, {256, 256, 16, 1}},
                      b = {{1, 1, 24, 16}, {384, 384, 16, 1}};
    cudnn_graph_init(&g, library());
    cudnn_descriptor x = cudnn_graph_tensor(&g, 1, CUDNN_DATA_HALF, &a);
    cudnn_descriptor y = cudnn_graph_tensor(&g, 2, CUDNN_DATA_HALF, &b);
    cudnn_descriptor z = cudnn_graph_tensor(&g, 3, CUDNN_DATA_HALF, &a);
    cr_assert(g.status == CUDNN_STATUS_SUCCESS, "%s", g.error);
    cudnn_graph_matmul(&g, x, y, z); /* 16 columns by 24 rows */
    const cudnnStatus_t first = g.status;
    cr_assert(first != CUDNN_STATUS_SUCCESS);
    cr_assert(strstr(g.error, "CUDNN_STATUS_"), "%s", g.error);
    cr_assert(cudnn_graph_tensor(&g, 4, CUDNN_DATA_HALF, &a) == NULL);
    cr_assert(g.status == first);
    cudnn_graph_fini(&g);
}

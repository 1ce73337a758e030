/* The cudnn attention backend in the tests of all backends: on a GPU with cuDNN, else on the
 * emulated GPU with an emulated libcudnn.so.9 (emulator_cudnn.cpp), which evaluates the graphs.
 * Above 500 lines because the suite of all backends and this one's settings share one device. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define ATTENTION_ON_DEVICE "cudnn"
#define ATTENTION_HAS_LIBRARY dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL) != NULL
#define ATTENTION_ISAS NULL
#define ATTENTION_FIRST_DTYPE LATHE_BF16
#define ATTENTION_GAP 8 /* rows begin at multiples of 16 bytes */
#define ATTENTION_O_GAP 16
#define ATTENTION_REFUSES(problem) refuses(problem)

struct lathe_attention_problem;
static int refuses(const struct lathe_attention_problem *p);

#include "attention_suite.h"
#include "plug/host_table.h"

/* The problems that README.md says are refused. */
static int refuses(const lathe_attention_problem *p)
{
    const int has_mask = p->causal || p->window > 0 || p->packed;
    const int largest = p->need_backward && strcmp(p->device->isa, "sm_90") != 0 ? 128 : 256;
    return p->dtype == LATHE_F32 || p->cached || p->bounded || p->alibi || p->sinks ||
           (p->value_dim > 0 && p->value_dim != p->head_dim) || p->softcap > 0.0f ||
           p->head_dim % 8 != 0 || p->head_dim > largest || p->t_q < 2 || p->t_k < 2 ||
           p->batch < 1 || (has_mask && p->t_q != p->t_k) ||
           (p->packed && p->need_backward && strncmp(p->device->isa, "sm_10", 5) == 0);
}

/* An instance with these settings: the library, MiB of workspace, `deterministic`, `documents`. */
static void *instance_with(const char *library, int64_t mib, int32_t deterministic,
                           const char *documents)
{
    const lathe_value values[4] = {{.type = LATHE_T_STRING, .is_set = 1, .s = library},
                                   {.type = LATHE_T_INT, .is_set = 1, .i = mib},
                                   {.type = LATHE_T_BOOL, .is_set = 1, .i = deterministic},
                                   {.type = LATHE_T_STRING, .is_set = 1, .s = documents}};
    void *self = NULL;
    cr_assert(attention_plugin()->create(lathe_host_get(), values, 4, &self) == LATHE_OK);
    return self;
}

/* An instance that runs problems of more than `mib` MiB of workspace in parts. */
static void *instance_of(const char *library, int64_t mib)
{
    return instance_with(library, mib, 1, "auto");
}

static lathe_attention_problem problem_on(const lathe_device_info *device)
{
    return (lathe_attention_problem){.size = sizeof(lathe_attention_problem),
                                     .dtype = LATHE_BF16,
                                     .batch = 2,
                                     .t_q = 64,
                                     .t_k = 64,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 64,
                                     .causal = 1,
                                     .scale = 0.125f,
                                     .q_stride = 256,
                                     .k_stride = 128,
                                     .v_stride = 128,
                                     .o_stride = 256,
                                     .dq_stride = 256,
                                     .dk_stride = 128,
                                     .dv_stride = 128,
                                     .need_backward = 1,
                                     .device = device};
}

Test(attention_cudnn, score_names_what_is_amiss)
{
    static const char *const says[] = {"bf16", "CUDA", "8.0",   "cache", "soft-cap", "head size",
                                       "head", "2^24", "heads", "masks", "multiple", "multiple"};
    void *self = attention_instance(lathe_host_get(), NULL);
    const lathe_attention_v1 *t = attention_plugin()->table;
    lathe_device_info old = *attention_device();
    (void)snprintf(old.isa, sizeof old.isa, "sm_75");
    for (int bad = 0; bad < 12; bad++) {
        lathe_attention_problem p = problem_on(attention_device());
        char why[192] = "";
        p.dtype = bad == 0 ? LATHE_F32 : p.dtype;
        p.device = bad == 1 ? NULL : bad == 2 ? &old : p.device;
        p.cached = bad == 3;
        p.softcap = bad == 4 ? 30.0f : 0.0f;
        p.head_dim = bad == 5 ? 60 : bad == 6 ? 264 : p.head_dim;
        p.t_q = p.t_k = bad == 7 ? (1 << 24) + 8 : p.t_q;
        p.batch = bad == 8 ? 1 << 23 : p.batch;
        p.t_k = bad == 9 ? 128 : p.t_k;
        p.q_stride = bad == 10 ? 260 : p.q_stride;
        p.dv_stride = bad == 11 ? 132 : p.dv_stride;
        cr_assert(t->score(self, &p, why, sizeof why) == LATHE_SCORE_NO, "%d", bad);
        cr_assert(strstr(why, says[bad]), "%d: %s", bad, why);
        p.need_backward = 0; /* dq has no stride then */
        cr_assert((t->score(self, &p, why, sizeof why) > 0) == (bad == 11), "%d: %s", bad, why);
    }
    const lathe_attention_problem p = problem_on(attention_device());
    char why[192] = "";
    cr_assert(t->score(self, &p, why, sizeof why) == LATHE_SCORE_VENDOR, "%s", why);
    cr_assert(strstr(why, "cuDNN 9."), "%s", why);
    attention_plugin()->destroy(self);
}

Test(attention_cudnn, an_absent_library_is_one_clear_line)
{
    void *self = instance_of("/nowhere/libcudnn.so.9", 1024);
    const lathe_attention_v1 *t = attention_plugin()->table;
    const lathe_attention_problem p = problem_on(attention_device());
    for (int again = 0; again < 2; again++) {
        char why[192] = "";
        cr_assert(t->score(self, &p, why, sizeof why) == LATHE_SCORE_NO);
        cr_assert(strstr(why, "cuDNN 9 cannot be opened: /nowhere/libcudnn.so.9: "), "%s", why);
        cr_assert(strchr(why, '\n') == NULL);
    }
    cr_assert(t->forward_scratch(self, &p) == 0 && t->backward_scratch(self, &p) == 0);
    attention_plugin()->destroy(self);
}

/* Blackwell's engine with a fixed order came with 9.18; the forward does not need it. */
Test(attention_cudnn, blackwell_takes_its_own_backward)
{
    static const struct {
        const char *machine;
        int32_t head_dim;
        const char *says; /* message for the backward; NULL: accepted */
    } rows[] = {
        {"arch=100 cudnn=91900", 128, NULL},         {"arch=100 cudnn=91701", 128, "9.18"},
        {"arch=100 cudnn=91900", 256, "backward: "}, {"arch=80 cudnn=91701", 128, NULL},
        {"arch=80 cudnn=91701", 256, "backward: "},  {"arch=90 cudnn=91500", 128, "9.15.0"},
    };
    if (!attention_is_emulated())
        return; /* the machine cannot be changed */
    const lathe_attention_v1 *t = attention_plugin()->table;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lathe_device_info device = *attention_device();
        char why[192] = "";
        (void)setenv("LATHE_EMULATOR", rows[i].machine, 1);
        (void)snprintf(device.isa, sizeof device.isa, "sm_%d", atoi(rows[i].machine + 5));
        void *self = attention_instance(lathe_host_get(), NULL);
        lathe_attention_problem p = problem_on(&device);
        p.head_dim = rows[i].head_dim;
        const int32_t score = t->score(self, &p, why, sizeof why);
        cr_assert((score > 0) == (rows[i].says == NULL), "%zu: %s", i, why);
        cr_assert(rows[i].says == NULL || strstr(why, rows[i].says), "%zu: %s", i, why);
        p.need_backward = 0;
        cr_assert((t->score(self, &p, why, sizeof why) > 0) == (i != 5), "%zu: %s", i, why);
        attention_plugin()->destroy(self);
    }
}

/* Scores near +-900 do not reach through the bias between documents. Weights and then o are
 * rounded. */
Test(attention_cudnn, documents_hide_large_scores)
{
    for (int32_t dtype = LATHE_BF16; dtype <= LATHE_F16; dtype++) {
        attention_case c = {ATTENTION_CASE(2, 60, 60, 2, 1, 16), .dtype = dtype, .causal = 1,
                            .packed = 1, .forward_only = 1};
        const double r = dtype == LATHE_BF16 ? 0x1p-8 : 0x1p-11;
        void *self = attention_instance(lathe_host_get(), NULL);
        attention_memory m;
        attention_memory_init(&m, &c);
        m.p.scale = 60.0f;
        cr_assert(attention_run(self, &m, &c));
        attention_exact(&m, 0);
        cr_assert(m.most_s > 900.0);
        for (int64_t i = 0; i < 2 * 60 * 32; i++) {
            const double got = attention_load(m.o, i / 32 * m.p.o_stride + i % 32, dtype);
            cr_assert(fabs(got - m.x_o[i]) <= 3.0 * r * m.most_v, "%lld: %g, expected %g",
                      (long long)i, got, m.x_o[i]);
        }
        attention_memory_fini(&m);
        attention_plugin()->destroy(self);
    }
}

/* A form of documents, in any order and in a fixed one. Engines that refuse it say so. */
static void documents_are_hidden_by(const char *form)
{
    for (int i = 0; i < 2; i++) {
        void *self = instance_with("auto", 1024, i, form);
        attention_case c = {ATTENTION_CASE(2, 75, 75, 4, 2, 16),
                            .dtype = i ? LATHE_F16 : LATHE_BF16, .packed = 1, .fused = i};
        if (!attention_is_emulated()) { /* several tiles of an engine */
            c.t_q = c.t_k = 333;
            c.dim = 64;
        }
        for (int masks = 0; masks < 3; masks++) {
            c.causal = masks > 0;
            c.window = masks > 1 ? 9 : 0;
            c.accumulate = masks == 1 ? 5 : 0;
            attention_memory m;
            attention_memory_init(&m, &c);
            m.p.flags = i ? LATHE_FLAG_DETERMINISTIC : 0;
            char why[192] = "";
            const lathe_attention_v1 *t = attention_plugin()->table;
            const int32_t runs = t->score(self, &m.p, why, sizeof why) != LATHE_SCORE_NO;
            cr_assert(runs || (strcmp(m.p.device->isa, "sm_90") != 0 && strstr(why, "backward")),
                      "%s: %s", form, why);
            for (int pass = 0; pass < 2 && runs; pass++)
                cr_assert(attention_call(self, &m.p, attention_args(&m, c.accumulate), pass) ==
                          LATHE_OK);
            if (runs)
                attention_check(&c, &m);
            attention_memory_fini(&m);
        }
        attention_plugin()->destroy(self);
    }
}

Test(attention_cudnn, documents_are_hidden_by_a_bias)
{
    documents_are_hidden_by("bias");
}

Test(attention_cudnn, documents_are_hidden_by_starts)
{
    documents_are_hidden_by("starts");
}

/* The choice of `documents = "auto"`, seen by its size: 64 x 64 bias of 2 bytes, or 64 starts of 4,
 * in 2 batch rows. */
Test(attention_cudnn, starts_replace_the_bias_on_sm_90)
{
    static const struct {
        const char *machine;
        int has_bias;
    } rows[] = {{"arch=90 cudnn=91900", 0},
                {"arch=90 cudnn=91801", 1},
                {"arch=80 cudnn=91900", 1},
                {"arch=89 cudnn=92600", 1}};
    if (!attention_is_emulated())
        return; /* the machine cannot be changed */
    const lathe_attention_v1 *t = attention_plugin()->table;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lathe_device_info device = *attention_device();
        char why[192] = "";
        (void)setenv("LATHE_EMULATOR", rows[i].machine, 1);
        (void)snprintf(device.isa, sizeof device.isa, "sm_%d", atoi(rows[i].machine + 5));
        void *self = attention_instance(lathe_host_get(), NULL);
        lathe_attention_problem p = problem_on(&device);
        int64_t bytes[2];
        for (p.packed = 0; p.packed < 2; p.packed++) {
            cr_assert(t->score(self, &p, why, sizeof why) > 0, "%zu: %s", i, why);
            bytes[p.packed] = t->backward_scratch(self, &p);
        }
        cr_assert_eq(bytes[1] - bytes[0], rows[i].has_bias ? 2 * 64 * 64 * 2 : 2 * 64 * 4, "%zu",
                     i);
        attention_plugin()->destroy(self);
    }
}

/* Without dS, of 2 * 2 * 4 * 256 * 256 bytes, and with an f32 sum of dq. */
Test(attention_cudnn, any_order_is_for_runs_that_need_not_repeat)
{
    const lathe_attention_v1 *t = attention_plugin()->table;
    void *fixed = instance_with("auto", 1024, 1, "auto"),
         *any = instance_with("auto", 1024, 0, "auto");
    lathe_attention_problem p = problem_on(attention_device());
    char why[192] = "";
    p.t_q = p.t_k = 256;
    p.flags = LATHE_FLAG_DETERMINISTIC;
    cr_assert(t->score(any, &p, why, sizeof why) == LATHE_SCORE_NO);
    cr_assert(strstr(why, "attention.deterministic = false needs train.deterministic = false"),
              "%s", why);
    cr_assert(t->backward_scratch(any, &p) == 0);
    p.need_backward = 0;
    cr_assert(t->score(any, &p, why, sizeof why) > 0, "%s", why);
    p.need_backward = 1;
    for (p.flags = 0; p.flags < 2; p.flags++) {
        cr_assert(t->score(fixed, &p, why, sizeof why) > 0, "%s", why);
        cr_assert(strstr(why, "fixed order"), "%s", why);
    }
    p.flags = 0;
    cr_assert(t->score(any, &p, why, sizeof why) > 0, "%s", why);
    cr_assert(strstr(why, "any order"), "%s", why);
    if (attention_is_emulated())
        cr_assert_eq(t->backward_scratch(fixed, &p) - t->backward_scratch(any, &p),
                     2 * 2 * 4 * 256 * 256 - 4 * 2 * 4 * 256 * 64);
    attention_plugin()->destroy(fixed);
    attention_plugin()->destroy(any);
}

/* One instance and problems that differ in one property each: none uses another's plan. */
Test(attention_cudnn, plans_are_kept_apart)
{
    static const attention_case base = {ATTENTION_CASE(2, 48, 48, 4, 2, 16), .dtype = LATHE_BF16,
                                        .causal = 1};
    void *self = attention_instance(lathe_host_get(), NULL);
    for (int change = 0; change < 20; change++) { /* each twice: made, then found */
        attention_case c = base;
        c.batch = change % 10 == 1 ? 1 : c.batch;
        c.t_q = c.t_k = change % 10 == 2 ? 50 : c.t_q;
        c.kv_heads = change % 10 == 3 ? 4 : c.kv_heads;
        c.dim = change % 10 == 4 ? 24 : c.dim;
        c.dtype = change % 10 == 5 ? LATHE_F16 : c.dtype;
        c.causal = change % 10 != 6;
        c.window = change % 10 == 7 ? 9 : 0;
        c.packed = change % 10 == 8;
        c.fused = change % 10 == 9;
        attention_try(self, &c);
    }
    attention_plugin()->destroy(self);
}

/* A sum of dq of 2 * 4 * 520 rows of 64 needs 1.02 MiB: runs in parts of one key head. */
Test(attention_cudnn, parts_of_any_order_give_the_whole)
{
    attention_case c = {ATTENTION_CASE(2, 520, 520, 4, 2, 64), .dtype = LATHE_BF16, .causal = 1,
                        .packed = 1, .accumulate = 1};
    const lathe_attention_v1 *t = attention_plugin()->table;
    int64_t scratch[2];
    for (int i = 0; i < 2; i++) {
        void *self = instance_with("auto", i == 0 ? 1024 : 1, 0, "auto");
        attention_memory m;
        attention_memory_init(&m, &c);
        m.p.flags = 0;
        cr_assert(attention_run(self, &m, &c));
        attention_check(&c, &m);
        scratch[i] = t->backward_scratch(self, &m.p);
        attention_memory_fini(&m);
        attention_plugin()->destroy(self);
    }
    cr_assert(!attention_is_emulated() || scratch[0] > scratch[1] + (1 << 19), "%lld, %lld",
              (long long)scratch[0], (long long)scratch[1]);
}

/* dS of 2 * 4 * 520 * 520 scores needs 4.1 MiB: runs in parts of a batch row or of a key head, with
 * a bias of 0.5 MiB per row. */
Test(attention_cudnn, parts_give_the_whole)
{
    attention_case c = {ATTENTION_CASE(2, 520, 520, 4, 2, 16),
                        .dtype = LATHE_F16,
                        .causal = 1,
                        .packed = 1,
                        .fused = 1,
                        .accumulate = 2};
    const lathe_attention_v1 *t = attention_plugin()->table;
    const int64_t mib[3] = {1024, 3, 1};
    int64_t scratch[3];
    attention_memory m[3];
    for (int i = 0; i < 3; i++) {
        void *self = instance_of("auto", mib[i]);
        attention_memory_init(&m[i], &c);
        cr_assert(attention_run(self, &m[i], &c));
        scratch[i] = t->backward_scratch(self, &m[i].p);
        attention_plugin()->destroy(self);
    }
    for (int i = 0; i < 3; i++)
        attention_check(&c, &m[i]);
    /* the real cuDNN may need less memory */
    for (int i = 1; i < 3 && attention_is_emulated(); i++) {
        cr_assert(scratch[i - 1] > scratch[i] + (1 << 20), "%lld, %lld", (long long)scratch[i - 1],
                  (long long)scratch[i]);
        cr_assert(memcmp(m[0].store[6], m[i].store[6], (size_t)(1040 * m[0].p.o_stride * 2)) == 0);
        cr_assert(memcmp(m[0].store[1], m[i].store[1], (size_t)(1040 * m[0].p.dq_stride * 2)) == 0);
        cr_assert(memcmp(m[0].lse, m[i].lse, 2 * 4 * 520 * 4) == 0);
    }
    for (int i = 0; i < 3; i++)
        attention_memory_fini(&m[i]);
}

Test(attention_cudnn, a_workspace_beyond_the_memory_is_refused)
{
    lathe_device_info small = *attention_device();
    void *self = attention_instance(lathe_host_get(), NULL);
    const lathe_attention_v1 *t = attention_plugin()->table;
    char why[192] = "";
    small.memory_bytes = (int64_t)1 << 20;
    lathe_attention_problem p = problem_on(&small);
    p.t_q = p.t_k = 1 << 14;
    if (!attention_is_emulated())
        return; /* the real engines may need none */
    cr_assert(t->score(self, &p, why, sizeof why) == LATHE_SCORE_NO);
    cr_assert(strstr(why, "backward: a workspace of 1024 MiB is more than a quarter"), "%s", why);
    attention_plugin()->destroy(self);
}

/* dS of 2 * 4 * 520 * 520 scores needs 4.1 MiB, and a quarter of the memory is 3 MiB. */
Test(attention_cudnn, a_workspace_is_within_a_quarter_of_the_memory)
{
    lathe_device_info small = *attention_device();
    const lathe_attention_v1 *t = attention_plugin()->table;
    char why[192] = "";
    int64_t scratch[2];
    lathe_attention_problem p = problem_on(&small);
    p.t_q = p.t_k = 520;
    for (int i = 0; i < 2; i++) {
        small.memory_bytes = i == 0 ? (int64_t)1 << 30 : (int64_t)12 << 20;
        void *self = attention_instance(lathe_host_get(), NULL);
        cr_assert(t->score(self, &p, why, sizeof why) > 0, "%s", why);
        scratch[i] = t->backward_scratch(self, &p);
        attention_plugin()->destroy(self);
    }
    cr_assert(!attention_is_emulated() || scratch[0] > scratch[1] + (2 << 20), "%lld, %lld",
              (long long)scratch[0], (long long)scratch[1]);
}

Test(attention_cudnn, arguments_that_do_not_fit_are_errors)
{
    const attention_case c = {ATTENTION_CASE(1, 16, 16, 1, 1, 16), .dtype = LATHE_BF16,
                              .packed = 1};
    void *self = attention_instance(lathe_host_get(), NULL);
    const lathe_attention_v1 *t = attention_plugin()->table;
    attention_memory m;
    attention_memory_init(&m, &c);
    lathe_attention_args a = attention_args(&m, 0);
    char scratch[64];
    a.scratch = scratch;
    cr_assert(t->forward(self, &m.p, &a) == LATHE_E_UNSUPPORTED); /* was never scored */
    cr_assert(t->score(self, &m.p, NULL, 0) > 0);
    a.scratch = NULL;
    cr_assert(t->forward(self, &m.p, &a) == LATHE_E_ARG);
    a.scratch = scratch;
    a.doc_start = NULL;
    cr_assert(t->forward(self, &m.p, &a) == LATHE_E_ARG);
    a.doc_start = m.doc_start;
    a.q = (const char *)a.q + 2;
    cr_assert(t->forward(self, &m.p, &a) == LATHE_E_ARG);
    a.q = m.q;
    a.d_o = NULL;
    cr_assert(t->backward(self, &m.p, &a) == LATHE_E_ARG);
    attention_memory_fini(&m);
    attention_plugin()->destroy(self);
}

/* A document start after its query, which no host could check, counts as the query itself: the
 * query sees one key. */
Test(attention_cudnn, starts_out_of_range_are_clamped)
{
    attention_case c = {ATTENTION_CASE(1, 40, 40, 2, 1, 16), .dtype = LATHE_BF16, .causal = 1,
                        .packed = 1};
    void *self = attention_instance(lathe_host_get(), NULL);
    attention_memory m;
    attention_memory_init(&m, &c);
    m.doc_start[7] = 1000;
    m.doc_start[9] = -5;
    cr_assert(attention_run(self, &m, &c));
    m.doc_start[7] = 7;
    m.doc_start[9] = 0;
    attention_check(&c, &m);
    attention_memory_fini(&m);
    attention_plugin()->destroy(self);
}

/* Runs on a stream of its own, and in a capture of it, which uses the inputs' content at launch. */
Test(attention_cudnn, runs_on_the_stream_it_is_given)
{
    const attention_gpu *g = attention_gpu_get();
    const lathe_attention_v1 *t = g->plugin->table;
    void *self = attention_instance(lathe_host_get(), NULL);
    enum { N = 16 * 16 }; /* 16 tokens of one head of 16: q and k are zero, so o is the mean of v */
    lathe_attention_problem p = problem_on(attention_device());
    p.batch = p.n_heads = p.n_kv_heads = 1;
    p.t_q = p.t_k = p.head_dim = 16;
    p.q_stride = p.k_stride = p.v_stride = p.o_stride = 16;
    p.causal = p.need_backward = 0;
    char why[192] = "";
    cr_assert(t->score(self, &p, why, sizeof why) > 0, "%s", why);
    lathe_stream *stream = NULL;
    lathe_capture *capture = NULL;
    uint16_t *memory = NULL, host[N], out[N];
    void *scratch = NULL;
    cr_assert(g->table->stream_create(g->self, &stream) == LATHE_OK);
    cr_assert(g->table->alloc(g->self, 4 * N * 2 + 64, LATHE_MEM_DEVICE, (void **)&memory) ==
              LATHE_OK);
    cr_assert(g->table->alloc(g->self, t->forward_scratch(self, &p), LATHE_MEM_DEVICE, &scratch) ==
              LATHE_OK);
    const lathe_attention_args a = {.size = sizeof a,
                                    .q = memory,
                                    .k = memory + N,
                                    .v = memory + 2 * N,
                                    .o = memory + 3 * N,
                                    .lse = (float *)(void *)(memory + 4 * N),
                                    .scratch = scratch,
                                    .stream = stream};
    cr_assert(t->forward(self, &p, &a) ==
              LATHE_OK); /* the first run loads code, which a capture cannot */
    cr_assert(g->table->sync(g->self, stream) == LATHE_OK);
    cr_assert(g->table->capture_begin(g->self, stream) == LATHE_OK);
    cr_assert(t->forward(self, &p, &a) == LATHE_OK);
    cr_assert(g->table->capture_end(g->self, stream, &capture) == LATHE_OK);
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < N; i++)
            host[i] = lathe_f32_to_bf16((float)(run + 1));
        cr_assert(g->table->copy(g->self, stream, memory + 2 * N, host, sizeof host,
                                 LATHE_COPY_TO_DEVICE) == LATHE_OK);
        cr_assert(g->table->capture_launch(g->self, capture, stream) == LATHE_OK);
        cr_assert(g->table->copy(g->self, stream, out, memory + 3 * N, sizeof out,
                                 LATHE_COPY_TO_HOST) == LATHE_OK);
        cr_assert(g->table->sync(g->self, stream) == LATHE_OK);
        for (int i = 0; i < N; i++)
            cr_assert(out[i] == host[i], "run %d: %d", run, i);
    }
    g->table->capture_destroy(g->self, capture);
    g->table->free(g->self, memory);
    g->table->free(g->self, scratch);
    g->table->stream_destroy(g->self, stream);
    attention_plugin()->destroy(self);
}

/* The reference_cuda attention backend against a dense double reference, on a GPU or on the
 * emulated one. */
#define ATTENTION_ON_DEVICE "reference_cuda"
#define ATTENTION_ISAS NULL
#include "attention_suite.h"
#include "plug/host_table.h"

Test(attention_reference_cuda, scratch_is_one_number_a_query)
{
    void *self = attention_instance(lathe_host_get(), NULL);
    const lathe_attention_v1 *t = attention_plugin()->table;
    const lathe_attention_problem p = {
        .size = sizeof p, .batch = 3, .t_q = 100, .t_k = 100, .n_heads = 4, .head_dim = 64};
    cr_assert(t->forward_scratch(self, &p) == 0);
    cr_assert(t->backward_scratch(self, &p) == 3 * 4 * 100 * 4);
    attention_plugin()->destroy(self);
}

Test(attention_reference_cuda, score_names_what_is_amiss)
{
    static const struct {
        const char *isa;
        int32_t host_memory, head_dim;
        int64_t t_q;
        const char *says; /* NULL: accepted */
    } rows[] = {
        {"sm_80", 0, 256, 128, NULL},
        {"sm_121", 0, 1, 1, NULL},
        {"sm_75", 0, 64, 128, "8.0"},
        {"sm_90", 1, 64, 128, "CUDA"},
        {"avx512", 0, 64, 128, "CUDA"},
        {"sm_90", 0, 257, 128, "head size"},
        {"sm_90", 0, 64, (int64_t)1 << 31, "tokens"},
    };
    const lathe_attention_v1 *t = attention_plugin()->table;
    void *self = attention_instance(lathe_host_get(), NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lathe_device_info device = {.size = sizeof device, .host_memory = rows[i].host_memory};
        (void)snprintf(device.isa, sizeof device.isa, "%s", rows[i].isa);
        const lathe_attention_problem p = {.size = sizeof p,
                                           .dtype = LATHE_BF16,
                                           .batch = 1,
                                           .t_q = rows[i].t_q,
                                           .t_k = 128,
                                           .n_heads = 2,
                                           .n_kv_heads = 1,
                                           .head_dim = rows[i].head_dim,
                                           .device = &device};
        char why[128] = "";
        const int32_t score = t->score(self, &p, why, sizeof why);
        cr_assert(score == (rows[i].says ? LATHE_SCORE_NO : LATHE_SCORE_PORTABLE), "%zu: %s", i,
                  why);
        cr_assert(rows[i].says == NULL || strstr(why, rows[i].says), "%zu: %s", i, why);
    }
    attention_plugin()->destroy(self);
}

/* Lengths and starts that no host could check are clamped and never read out of bounds. */
Test(attention_reference_cuda, lengths_out_of_range_are_clamped)
{
    attention_case c = {ATTENTION_CASE(3, 2, 70, 2, 1, 16), .causal = 1, .cached = 1,
                        .forward_only = 1};
    void *self = attention_instance(lathe_host_get(), NULL);
    attention_memory m;
    attention_memory_init(&m, &c);
    m.kv_len[0] = 1000;
    m.kv_len[1] = -5;
    cr_assert(attention_run(self, &m, &c));
    m.kv_len[0] = 70;
    m.kv_len[1] = 0;
    attention_check(&c, &m);
    attention_memory_fini(&m);
    attention_plugin()->destroy(self);
}

enum { BLOCK = 16, ROWS = 3, KEYS = 96, BLOCKS = ROWS * KEYS / BLOCK };

/* Block i of all keys, in the order of the rows, is number (5 i + 2) % BLOCKS of the blocks. */
static int32_t number_of(int64_t i)
{
    return (int32_t)((5 * i + 2) % BLOCKS);
}

/* The tokens of a tensor, of `bytes` bytes each, in blocks. */
static void *in_blocks(const void *from, int64_t bytes)
{
    char *to = attention_zeroed(ROWS * KEYS * bytes);
    for (int64_t i = 0; i < BLOCKS; i++)
        memcpy(to + number_of(i) * BLOCK * bytes, (const char *)from + i * BLOCK * bytes,
               (size_t)(BLOCK * bytes));
    return to;
}

/* The cases include a window that begins within a tile of keys, and blocks that are no whole tile.
 */
Test(attention_reference_cuda, keys_in_blocks_have_the_bits_of_keys_in_a_row)
{
    void *self = attention_instance(lathe_host_get(), NULL);
    int32_t lengths[ROWS * (1 + KEYS / BLOCK)];
    for (int mix = 0; mix < 4; mix++) {
        const attention_case c = {ATTENTION_CASE(ROWS, mix % 2 ? 5 : 1, KEYS, 4, 2, 32),
                                  .dtype = mix % 2 ? LATHE_BF16 : LATHE_F32,
                                  .causal = 1,
                                  .cached = 1,
                                  .window = mix > 1 ? 21 : 0,
                                  .forward_only = 1};
        attention_memory m;
        attention_memory_init(&m, &c);
        lathe_attention_problem p = m.p;
        lathe_attention_args a = attention_args(&m, 0);
        const int64_t e = lathe_dtype_bytes(c.dtype);
        const int64_t o_bytes = ROWS * p.t_q * p.o_stride * e, n_lse = ROWS * 4 * p.t_q;
        m.kv_len[0] = KEYS;
        m.kv_len[1] = 70;
        m.kv_len[2] = 6;
        cr_assert(attention_call(self, &p, a, 0) == LATHE_OK);
        char *o = malloc((size_t)o_bytes);
        float *lse = malloc((size_t)n_lse * sizeof *lse);
        memcpy(o, m.o, (size_t)o_bytes);
        memcpy(lse, m.lse, (size_t)n_lse * sizeof *lse);
        p.block_tokens = BLOCK;
        p.kv_stride = 1 + KEYS / BLOCK;
        for (int b = 0; b < ROWS; b++) {
            lengths[b * p.kv_stride] = m.kv_len[b];
            for (int j = 0; j < KEYS / BLOCK; j++)
                lengths[b * p.kv_stride + 1 + j] = number_of(b * (KEYS / BLOCK) + j);
        }
        void *k = in_blocks(m.k, p.k_stride * e), *v = in_blocks(m.v, p.v_stride * e);
        a.k = k;
        a.v = v;
        a.kv_len = lengths;
        memset(m.lse, 0, (size_t)n_lse * sizeof *lse);
        cr_assert(attention_call(self, &p, a, 0) == LATHE_OK);
        cr_assert_eq(memcmp(o, m.o, (size_t)o_bytes), 0, "o, mix %d", mix);
        cr_assert_eq(memcmp(lse, m.lse, (size_t)n_lse * sizeof *lse), 0, "lse, mix %d", mix);
        free(o);
        free(lse);
        free(k);
        free(v);
        attention_memory_fini(&m);
    }
    attention_plugin()->destroy(self);
}

/* Runs on a stream of its own, and twice in a capture of it. */
Test(attention_reference_cuda, runs_on_the_stream_it_is_given)
{
    const attention_gpu *g = attention_gpu_get();
    void *self = attention_instance(lathe_host_get(), NULL);
    const lathe_attention_v1 *t = g->plugin->table;
    const lathe_attention_problem p = {.size = sizeof p,
                                       .dtype = LATHE_F32,
                                       .batch = 1,
                                       .t_q = 1,
                                       .t_k = 1,
                                       .n_heads = 1,
                                       .n_kv_heads = 1,
                                       .head_dim = 1,
                                       .scale = 1.0f,
                                       .q_stride = 1,
                                       .k_stride = 1,
                                       .v_stride = 1,
                                       .o_stride = 1,
                                       .device = &g->info};
    const float qkv[3] = {2.0f, 3.0f, 5.0f};
    float got[2] = {0};
    lathe_stream *stream = NULL;
    lathe_capture *capture = NULL;
    float *memory = NULL;
    cr_assert(g->table->stream_create(g->self, &stream) == LATHE_OK);
    cr_assert(g->table->alloc(g->self, 64, LATHE_MEM_DEVICE, (void **)&memory) == LATHE_OK);
    const lathe_attention_args a = {.size = sizeof a,
                                    .q = memory,
                                    .k = memory + 1,
                                    .v = memory + 2,
                                    .o = memory + 3,
                                    .lse = memory + 4,
                                    .stream = stream};
    cr_assert(g->table->capture_begin(g->self, stream) == LATHE_OK);
    cr_assert(t->forward(self, &p, &a) == LATHE_OK);
    cr_assert(g->table->capture_end(g->self, stream, &capture) == LATHE_OK);
    for (int run = 0; run < 2; run++) {
        const float in[3] = {qkv[0], qkv[1], qkv[2] + (float)run};
        cr_assert(g->table->copy(g->self, stream, memory, in, sizeof in, LATHE_COPY_TO_DEVICE) ==
                  LATHE_OK);
        cr_assert(g->table->capture_launch(g->self, capture, stream) == LATHE_OK);
        cr_assert(g->table->copy(g->self, stream, got, memory + 3, sizeof got,
                                 LATHE_COPY_TO_HOST) == LATHE_OK);
        cr_assert(g->table->sync(g->self, stream) == LATHE_OK);
        /* one key: o = v, lse = q k */
        cr_assert(got[0] == 5.0f + (float)run && got[1] == 6.0f);
    }
    g->table->capture_destroy(g->self, capture);
    g->table->free(g->self, memory);
    g->table->stream_destroy(g->self, stream);
    attention_plugin()->destroy(self);
}

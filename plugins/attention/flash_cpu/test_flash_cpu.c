/* The flash_cpu attention backend, on every instruction set this machine has, against a dense
 * double reference. */
#define ATTENTION_ISAS "generic", "avx2", "avx512", "avx512_bf16"
#include "attention_suite.h"
#include "base/error.h"
#include "plug/host_table.h"

/* Doubling the sequence doubles the scratch, except for a constant. */
Test(attention_flash_cpu, scratch_grows_with_the_sequence_not_its_square)
{
    void *self = attention_instance(attention_host(2), NULL);
    const lathe_attention_v1 *t = attention_plugin()->table;
    for (int32_t heads = 1; heads <= 32; heads *= 32) {
        int64_t forward[3], backward[3];
        for (int i = 0; i < 3; i++) {
            const int64_t tokens = (int64_t)6144 << i; /* multiples of the tile sizes */
            const lathe_attention_problem p = {.size = sizeof p,
                                               .dtype = LATHE_F32,
                                               .batch = 1,
                                               .t_q = tokens,
                                               .t_k = tokens,
                                               .n_heads = heads,
                                               .n_kv_heads = heads,
                                               .head_dim = 64,
                                               .n_threads = 2,
                                               .need_backward = 1};
            forward[i] = t->forward_scratch(self, &p);
            backward[i] = t->backward_scratch(self, &p);
        }
        cr_assert(forward[2] - forward[1] <= 2 * (forward[1] - forward[0]) + 4096);
        cr_assert(backward[2] - backward[1] <= 2 * (backward[1] - backward[0]) + 4096);
        cr_assert(forward[1] - forward[0] > 0 && backward[1] - backward[0] > 0);
    }
    attention_plugin()->destroy(self);
}

Test(attention_flash_cpu, unknown_hardware_is_refused_by_name)
{
    /* The best level that this machine has can be created; for others, create says what the machine
     * has. */
    for (size_t i = 0; i < ATTENTION_N_ISAS; i++) {
        void *self = attention_instance(lathe_host_get(), attention_isas[i]);
        if (!self)
            cr_assert(strstr(lathe_error_message(), attention_isas[i]), "%s",
                      lathe_error_message());
        attention_plugin()->destroy(self);
    }
}

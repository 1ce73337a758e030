/* RoPE tables against transformers: default, linear, llama3, yarn and longrope. */
#include <math.h>

#include "golden_model.h"
#include "model/family/rope_table.h"
#include "support/golden_folders.h"

Test(rope_table, agrees_with_transformers)
{
    golden_folders all;
    int n_checked = 0;
    golden_folders_find(&all);
    for (int m = 0; m < all.n; m++) {
        golden g;
        golden_open(&g, all.names[m]);
        const lathe_st_tensor *want = lathe_safetensors_find(g.golden, "rope");
        if (want == NULL) { /* no rotary positions, or several tables */
            golden_close(&g);
            continue;
        }
        const int64_t n = 64 * g.config.ropes[0].dims;
        cr_assert_eq(lathe_desc_count(&want->desc), n);
        float *table = malloc((size_t)n * sizeof *table);
        lathe_rope_table(&g.config.ropes[0], 64, 1, table); /* phi3: 64 is beyond 16 */
        for (int64_t i = 0; i < n; i++) {
            float w;
            memcpy(&w, (const char *)want->data + 4 * i, 4);
            /* an ulp of inv_freq (2^-23 relative) changes an angle of at most 64 by 64 * 2^-23;
             * yarn and longrope multiply by at most 1.25 */
            cr_assert_float_eq(table[i], w, 80 * 0x1p-23f, "%s at %lld: %g, %g", all.names[m],
                               (long long)i, (double)table[i], (double)w);
        }
        free(table);
        golden_close(&g);
        n_checked++;
    }
    cr_assert_geq(n_checked, 14);
}

/* transformers scales it only for positions beyond max_position_embeddings, where a run's rows
 * end. */
Test(rope_table, dynamic_is_the_default_up_to_the_last_position)
{
    golden g;
    float want[64 * 64], got[64 * 64];
    golden_open(&g, "llama_tied");
    lathe_rope_config rope = g.config.ropes[0];
    cr_assert_leq(rope.dims, 64);
    lathe_rope_table(&rope, 64, 0, want);
    rope.type = LATHE_ROPE_DYNAMIC;
    rope.factor = 4.0;
    lathe_rope_table(&rope, 64, 0, got);
    cr_expect_arr_eq(got, want, 64 * (size_t)rope.dims * sizeof *got);
    golden_close(&g);
}

Test(rope_table, position_one_by_hand)
{
    const lathe_rope_config rope = {
        .type = LATHE_ROPE_DEFAULT, .dims = 4, .theta = 100.0, .attention_factor = 1.0};
    float table[2 * 2 * 2];
    lathe_rope_table(&rope, 2, 0, table); /* inv_freq 1 and 100^(-1/2) = 0.1 */
    const double want[8] = {1, 1, 0, 0, cos(1.0), cos(0.1), sin(1.0), sin(0.1)};
    for (int i = 0; i < 8; i++)
        cr_assert_float_eq((double)table[i], want[i], 1e-7);
}

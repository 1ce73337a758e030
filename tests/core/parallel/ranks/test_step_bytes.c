/* Bytes that ranks send in a step, from the plan of a run on one rank. tests/ranks counts those of
 * real ranks. */
#include "parallel/ranks/step_bytes.h"
#include "support/small_run.h"

/* With f32 weights and gradients: what DDP and ZeRO-1 to ZeRO-3 with 3 micro-batches send at least.
 */
Test(step_bytes, are_the_lower_bound_of_each_strategy)
{
    char dir[] = "/tmp/lathe_step_bytes_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_llama(&s, 2, 32, 4, 2, 64);
    set_data(&s, dir);
    set(&s, "data.seq_len=32");
    set(&s, "train.precision=fp32");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    int64_t n = 0;
    for (int32_t i = 0; i < run->params.n; i++)
        n += run->params.rows[i]->trainable ? lathe_desc_count(&run->params.rows[i]->desc) : 0;
    for (int32_t n_ranks = 2; n_ranks <= 8; n_ranks *= 2)
        for (int32_t shard = LATHE_SHARD_NONE; shard < LATHE_N_SHARDS; shard++) {
            const double part = 4.0 * (double)n / n_ranks;
            double reduced = 0.0, spread = 0.0;
            for (int32_t q = 0; q < n_ranks; q++) {
                const lathe_division_ask ask = {
                    .shard = shard, .rank = q, .n_ranks = n_ranks, .bucket_bytes = 40000};
                lathe_step_bytes b;
                OK(lathe_step_bytes_of(&run->store, &ask, 3, &b));
                reduced += (double)b.reduced;
                spread += (double)b.spread;
                cr_expect((b.n_spread > 1) == (shard != LATHE_SHARD_NONE));
            }
            const double once = (n_ranks - 1) * n_ranks * part;
            const double least = shard >= LATHE_SHARD_GRADIENTS ? 3.0 * once
                                 : shard == LATHE_SHARD_NONE    ? 2.0 * once
                                                                : once;
            cr_expect_float_eq(reduced, least, 0.01 * least, "shard %d on %d ranks: %.0f, not %.0f",
                               shard, n_ranks, reduced, least);
            const double all = shard == LATHE_SHARD_PARAMETERS ? 6.0 * once
                               : shard == LATHE_SHARD_NONE     ? 0.0
                                                               : once;
            cr_expect_float_eq(spread, all, 0.02 * all + 1.0,
                               "shard %d on %d ranks: %.0f, not %.0f", shard, n_ranks, spread, all);
        }
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

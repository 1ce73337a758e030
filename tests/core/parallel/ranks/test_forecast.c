/* Forecasts of strategies, against numbers computed by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/kit/collective_kit.h"
#include "parallel/ranks/forecast.h"

/* 1,000,000 parameters in f32 with two moments; 4 blocks; a step of 1 s, 0.6 s of it backward. */
static lathe_forecast_run small(void)
{
    lathe_forecast_run run = {.weight_bytes = 4000000,
                              .grad_bytes = 4000000,
                              .wide_grad_bytes = 4000000,
                              .slot_bytes = 8000000,
                              .slot_category = LATHE_MEM_OPTIMIZER,
                              .narrow_width = 4,
                              .n_trained = 1000000,
                              .trained_bytes = 4000000,
                              .read_bytes = 4000000,
                              .bucket_bytes = 1 << 30,
                              .n_blocks = 4,
                              .n_micro = 1,
                              .seconds = 1.0,
                              .backward = 0.6};
    run.planned.by[LATHE_MEM_PARAMETERS] = 4000000;
    run.planned.by[LATHE_MEM_GRADIENTS] = 4000000;
    run.planned.by[LATHE_MEM_OPTIMIZER] = 8000100;
    run.planned.by[LATHE_MEM_ACTIVATIONS] = 5000000;
    return run;
}

/* 4 ranks, 10 MB/s, 1 ms. */
static lathe_forecast_setup flat(void)
{
    return (lathe_forecast_setup){
        .network = {4, 1, {1e7, 1e-3}, {0, 0}}, .shard_ranks = 2, .inner_steps = 100};
}

static lathe_forecast rows[LATHE_N_FORECASTS];

static void make(const lathe_forecast_run *run, const lathe_forecast_setup *setup)
{
    lathe_forecast_make(run, setup, rows);
}

static const lathe_forecast *const ddp = &rows[LATHE_FORECAST_DDP];

/* The message in which 4 ranks agree: 32 f64 of each; 3 rounds. */
static const double agree = 3e-3 + 3.0 / 4.0 * 4 * 256 / 1e7;

static void near(double got, double want, const char *what)
{
    cr_expect_float_eq(got, want, 1e-9 * fabs(want) + 1e-12, "%s: %.12g, expected %.12g", what, got,
                       want);
}

Test(forecast, bytes_are_those_of_rings)
{
    const lathe_forecast_run run = small();
    const lathe_forecast_setup setup = flat();
    make(&run, &setup);
    near(ddp->sent, 2 * 0.75 * 4e6, "ddp");
    near(rows[LATHE_FORECAST_ZERO1].sent, 2 * 0.75 * 4e6, "zero1");
    near(rows[LATHE_FORECAST_ZERO2].sent, 2 * 0.75 * 4e6, "zero2");
    near(rows[LATHE_FORECAST_ZERO3].sent, 3 * 0.75 * 4e6, "zero3");
    near(rows[LATHE_FORECAST_HYBRID].sent, 3 * 0.5 * 4e6 + 2 * 0.5 * 2e6, "hybrid");
    near(rows[LATHE_FORECAST_DILOCO].sent, 2 * 0.75 * 4e6 / 100, "diloco fp32");
    near(rows[LATHE_FORECAST_DILOCO + 1].sent, 2 * 0.75 * 2e6 / 100, "diloco bf16");
}

Test(forecast, diloco_saves_what_its_paper_says)
{
    const lathe_forecast_run run = small();
    const lathe_forecast_setup setup = flat();
    make(&run, &setup);
    near(ddp->sent / rows[LATHE_FORECAST_DILOCO].sent, 100, "fp32: H b / b of the change");
    cr_expect_geq(ddp->sent / rows[LATHE_FORECAST_DILOCO + 2].sent, 390); /* int8 */
    cr_expect_leq(ddp->sent / rows[LATHE_FORECAST_DILOCO + 2].sent, 400);
    cr_expect_geq(ddp->sent / rows[LATHE_FORECAST_DILOCO + 3].sent, 700); /* 4 bits */
    near(rows[LATHE_FORECAST_DILOCO].outer_seconds, 6e-3 + 0.6, "its exchange");
    near(rows[LATHE_FORECAST_DILOCO].in_order, 1.0 + 0.606 / 100, "its step");
}

/* Narrow gradients halve what ddp sends, and so what DiLoCo saves. */
Test(forecast, gradients_in_bf16_are_counted_as_such)
{
    lathe_forecast_run run = small();
    const lathe_forecast_setup setup = flat();
    run.wide_grad_bytes = 0;
    run.grad_bytes = 2000000;
    run.narrow_width = 2;
    make(&run, &setup);
    near(ddp->sent, 2 * 0.75 * 2e6, "ddp");
    near(ddp->sent / rows[LATHE_FORECAST_DILOCO].sent, 50, "saving");
}

/* Training in bf16: masters beside copies are state, and zero1 gathers the copies. */
Test(forecast, masters_beside_copies_are_state)
{
    lathe_forecast_run run = small();
    const lathe_forecast_setup setup = flat();
    run.copied_bytes = 4000000;
    run.weight_bytes = 6000000;
    run.trained_bytes = run.read_bytes = 2000000;
    run.average_bytes = run.planned.by[LATHE_MEM_AVERAGE] = 4000000;
    run.planned.by[LATHE_MEM_PARAMETERS] = 6000000;
    make(&run, &setup);
    near(rows[LATHE_FORECAST_ZERO1].sent, 0.75 * 4e6 + 0.75 * 2e6, "zero1");
    near(rows[LATHE_FORECAST_ZERO3].sent, 0.75 * 4e6 + 2 * 0.75 * 2e6, "zero3");
    cr_expect_eq(ddp->memory.by[LATHE_MEM_PARAMETERS], 6000000);
    cr_expect_eq(ddp->memory.by[LATHE_MEM_AVERAGE], 4000000);
    const int64_t *m = rows[LATHE_FORECAST_ZERO1].memory.by;
    cr_expect_eq(m[LATHE_MEM_PARAMETERS], 2000000 + 1000000);
    cr_expect_eq(m[LATHE_MEM_AVERAGE], 1000000);
    cr_expect_eq(rows[LATHE_FORECAST_ZERO3].memory.by[LATHE_MEM_PARAMETERS], 1500000);
}

Test(forecast, ddp_in_order_adds_and_overlapped_hides)
{
    lathe_forecast_run run = small();
    const lathe_forecast_setup setup = flat();
    make(&run, &setup);
    near(ddp->in_order, 1.0 + 6e-3 + 0.6 + agree, "one bucket, in order");
    near(ddp->overlapped, 1.0 + 6e-3 + 0.6 + agree, "one bucket is ready at the end");
    run.bucket_bytes = 1000000; /* 1000000 is a multiple of 64: 4 buckets */
    make(&run, &setup);
    near(ddp->exchange, 4 * 6e-3 + 0.6 + agree, "four buckets");
    near(ddp->in_order, 1.0 + 4 * 6e-3 + 0.6 + agree, "in order");
    /* ready at 0.55, 0.7, 0.85, 1.0; each takes 0.156 s, so the link is busy from 0.55 on */
    near(ddp->overlapped, 0.55 + 4 * 0.156 + agree, "overlapped");
    run.bucket_bytes = 999999; /* rounded up to 64 */
    make(&run, &setup);
    near(ddp->overlapped, 0.55 + 4 * 0.156 + agree, "overlapped");
    run.n_micro = 4; /* only the last of four backwards, each 0.15 s, overlaps */
    run.bucket_bytes = 1000000;
    make(&run, &setup);
    near(ddp->overlapped, 0.85 + 0.0375 + 4 * 0.156 + agree, "accumulated");
    near(ddp->sent, 6e6, "once for all micro-batches");
}

/* Half of the gradients are an embedding, which the end of the backward completes. */
Test(forecast, a_bucket_is_sent_when_the_backward_has_completed_it)
{
    static const lathe_forecast_ready ready[] = {{0.25, 0.25}, {0.75, 0.5}, {1.0, 1.0}};
    lathe_forecast_run run = small();
    const lathe_forecast_setup setup = flat();
    run.bucket_bytes = 1000000;
    run.ready = ready;
    run.n_ready = 3;
    make(&run, &setup);
    /* ready at 0.55, 0.85, 1.0, 1.0; each takes 0.156 s, and the link waits for the second and the
     * third */
    near(ddp->overlapped, 0.85 + 3 * 0.156 + agree, "ddp");
    run.bucket_bytes = 1500032; /* 999936 bytes, which are ready first, and two buckets */
    make(&run, &setup);
    near(ddp->overlapped, 1.0 + 2 * (6e-3 + 1.5 * 1500032 / 1e7) + agree, "a shorter one first");
    for (int i = 0; i < LATHE_N_FORECASTS; i++)
        cr_expect_eq(lathe_forecast_overlaps(i), i == LATHE_FORECAST_DDP ||
                                                     i == LATHE_FORECAST_ZERO1 ||
                                                     i >= LATHE_FORECAST_DILOCO);
}

Test(forecast, a_fast_link_leaves_only_the_last_bucket)
{
    lathe_forecast_run run = small();
    lathe_forecast_setup setup = flat();
    setup.network.link = (lathe_link){1e9, 0.0};
    run.bucket_bytes = 1000000;
    make(&run, &setup);
    const double last = 2 * 0.75 * 1e6 / 1e9, message = 768 / 1e9;
    near(ddp->overlapped, 1.0 + last + message, "ddp");
    /* zero1: the scatter of the last bucket, then the gather of all masters */
    near(rows[LATHE_FORECAST_ZERO1].overlapped, 1.0 + last / 2 + 3e6 / 1e9 + message, "zero1");
    /* zero3: the gather of the first block before the forward and, because the link is free, none
     * before the backward; the scatter of the last block's gradients */
    near(rows[LATHE_FORECAST_ZERO3].overlapped, 1.0 + 2 * 0.75e6 / 1e9 + 0.75e6 / 1e9 + message,
         "zero3");
}

Test(forecast, sharded_strategies_exchange_in_every_micro_batch)
{
    lathe_forecast_run run = small();
    const lathe_forecast_setup setup = flat();
    run.n_micro = 3;
    make(&run, &setup);
    near(ddp->sent, 2 * 0.75 * 4e6, "ddp");
    near(rows[LATHE_FORECAST_ZERO1].sent, 2 * 0.75 * 4e6, "zero1");
    near(rows[LATHE_FORECAST_ZERO2].sent, (3 + 1) * 0.75 * 4e6, "zero2");
    near(rows[LATHE_FORECAST_ZERO3].sent, 3 * 3 * 0.75 * 4e6, "zero3");
    near(rows[LATHE_FORECAST_HYBRID].sent, 3 * 3 * 0.5 * 4e6 + 2 * 0.5 * 2e6, "hybrid");
    for (int i = 0; i < LATHE_N_FORECASTS; i++) {
        cr_expect_leq(rows[i].overlapped, rows[i].in_order + 1e-9, "%s", lathe_forecast_name(i));
        cr_expect_geq(rows[i].overlapped, 1.0, "%s", lathe_forecast_name(i));
    }
}

/* 2 islands of 2, whose link is ten times slower. */
Test(forecast, islands_have_the_slow_link)
{
    const lathe_forecast_run run = small();
    lathe_forecast_setup setup = flat();
    setup.network.n_islands = 2;
    setup.network.island_link = (lathe_link){1e6, 0.05};
    make(&run, &setup);
    near(ddp->sent, 2 * 0.75 * 4e6, "ddp");
    near(ddp->across, 2 * 0.5 * 2e6, "half of the gradients per rank");
    const double inside = 2 * 1e-3 + 2 * 0.5 * 4e6 / 1e7, across = 2 * 0.05 + 2 * 0.5 * 4e6 / 1e6;
    const double message = 1e-3 + 0.5 * 1024 / 1e7 + 0.05 + 0.5 * 1024 / 1e6;
    near(ddp->in_order, 1.0 + inside + across + message, "ddp");
    const lathe_forecast *d = &rows[LATHE_FORECAST_DILOCO];
    near(d->across, 2 * 0.5 * 2e6 / 100, "diloco");
    near(d->sent, 2 * 0.5 * 4e6 + (2 * 0.5 * 2e6 + 0.5 * 4e6) / 100, "ddp in the island");
    near(d->outer_seconds, across + 1e-3 + 0.5 * 4e6 / 1e7, "sums across, gather inside");
    near(ddp->across / d->across, 100, "saving");
    near(rows[LATHE_FORECAST_HYBRID].across, 2 * 0.5 * 2e6, "hybrid sends its shares across");
}

Test(forecast, memory_is_divided_as_the_extents_are)
{
    const lathe_forecast_run run = small();
    const lathe_forecast_setup setup = flat();
    make(&run, &setup);
    const int64_t scratch = lathe_exchange_scratch(1000000, 4);
    cr_expect_eq(scratch, 2 * 3 * 1000000); /* its piece is 2.6 MB */
    const int64_t *m = ddp->memory.by;
    cr_expect_eq(m[LATHE_MEM_PARAMETERS], 4000000);
    cr_expect_eq(m[LATHE_MEM_GRADIENTS], 4000000);
    cr_expect_eq(m[LATHE_MEM_OPTIMIZER], 8000100);
    cr_expect_eq(m[LATHE_MEM_STAGING], scratch);
    m = rows[LATHE_FORECAST_ZERO1].memory.by;
    cr_expect_eq(m[LATHE_MEM_OPTIMIZER], 2000100);
    cr_expect_eq(m[LATHE_MEM_GRADIENTS], 4000000);
    m = rows[LATHE_FORECAST_ZERO2].memory.by;
    cr_expect_eq(m[LATHE_MEM_GRADIENTS], 1000000);
    cr_expect_eq(m[LATHE_MEM_PARAMETERS], 4000000);
    cr_expect_eq(m[LATHE_MEM_STAGING], scratch + 4000000);
    m = rows[LATHE_FORECAST_ZERO3].memory.by;
    cr_expect_eq(m[LATHE_MEM_PARAMETERS], 1000000);
    cr_expect_eq(m[LATHE_MEM_ACTIVATIONS], 5000000);
    cr_expect_eq(m[LATHE_MEM_STAGING], scratch + 4000000 + 2000000);
    m = rows[LATHE_FORECAST_HYBRID].memory.by;
    cr_expect_eq(m[LATHE_MEM_PARAMETERS], 2000000);
    cr_expect_eq(m[LATHE_MEM_OPTIMIZER], 4000100);
    cr_expect_eq(rows[LATHE_FORECAST_DILOCO].outer_bytes, 8000000);
    cr_expect_eq(ddp->outer_bytes, 0);
}

Test(forecast, the_row_of_hybrid_needs_a_size)
{
    const lathe_forecast_run run = small();
    lathe_forecast_setup setup = flat();
    setup.shard_ranks = 0;
    make(&run, &setup);
    cr_expect_eq(rows[LATHE_FORECAST_HYBRID].sent, 0.0);
    cr_expect_str_eq(lathe_forecast_name(LATHE_FORECAST_DILOCO + 3), "diloco int4");
    cr_expect_str_eq(lathe_forecast_name(LATHE_N_FORECASTS), "?");
}

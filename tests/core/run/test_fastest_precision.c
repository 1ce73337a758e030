/* The precision of generation and evaluation if none was set: the fastest one among those that lose
 * nothing of the weights. */
#include "base/log.h"
#include "run/fastest_precision.h"
#include "small_run.h"

static char said[2048];

static void keep(void *arg, int32_t level, const char *message)
{
    (void)arg;
    (void)level;
    if (strlen(said) + strlen(message) + 2 < sizeof said)
        strcat(strcat(said, message), "\n");
}

/* The precision that a folder is opened with; messages are in `said`. */
static int32_t precision_of(const char *model, int32_t mode, const char *const *more)
{
    settings s = {.n = 0};
    said[0] = '\0';
    lathe_log_set_sink(keep, NULL);
    set(&s, "model.path=%s%s", MODELS, model);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=16");
    set_all(&s, more);
    lathe_run *run = open_run(mode, s.list);
    const int32_t used = run->set.compute_dtype;
    lathe_run_close(run);
    return used;
}

static const char *const nothing[] = {NULL};

Test(fastest_precision, weights_that_bf16_would_round_are_computed_in_fp32)
{
    cr_expect_eq(precision_of("llama_tied", LATHE_OPEN_INFER, nothing), LATHE_F32);
    cr_expect_str_eq(said,
                     "computes in fp32: bf16 would round the model's weights "
                     "(--train.precision sets another)\n",
                     "%s", said);
}

Test(fastest_precision, bf16_weights_are_computed_in_what_was_measured_to_be_fastest)
{
    double narrow = 0.0, wide = 0.0;
    const int32_t used = precision_of("qwen3", LATHE_OPEN_INFER, nothing);
    const char *times = strstr(said, "with 1 token takes ");
    cr_assert_not_null(times, "%s", said);
    cr_assert_eq(
        sscanf(times, "with 1 token takes %lf ms in bf16 and %lf ms in fp32", &narrow, &wide), 2,
        "%s", said);
    cr_expect(narrow > 0.0 && wide > 0.0, "%s", said);
    if (fabs(narrow - 1.15 * wide) > 0.02) /* they are printed with two decimals */
        cr_expect_eq(used, lathe__narrow_is_faster(wide, narrow) ? LATHE_BF16 : LATHE_F32, "%s",
                     said);
    cr_expect_eq(strncmp(said, used == LATHE_F32 ? "computes in fp32:" : "computes in bf16:", 17),
                 0, "%s", said);
}

/* The precision is measured before the data are read, for which the bytes tokenizer does not
 * fit. */
Test(fastest_precision, evaluation_is_measured_with_the_tokens_of_a_micro_batch)
{
    static const char *const list[] = {"model.path=" MODELS "qwen3",
                                       "tokenizer.path=bytes",
                                       "data.seq_len=16",
                                       "train.micro_batch_size=2",
                                       "data.datasets=[{path = \"" LATHE_TEST_DATA "\"}]",
                                       "data.validation_split=0.5",
                                       NULL};
    lathe_run *run = NULL;
    said[0] = '\0';
    lathe_log_set_sink(keep, NULL);
    cr_expect_eq(open_run_status(LATHE_OPEN_EVALUATE, list, &run), LATHE_E_CONFIG);
    cr_expect(strstr(said, "with 32 tokens takes "), "%s", said);
}

Test(fastest_precision, what_the_user_sets_is_used_and_nothing_is_measured)
{
    static const char *const bf16[] = {"train.precision=bf16", NULL};
    static const char *const fp32[] = {"train.precision=fp32", NULL};
    cr_expect_eq(precision_of("llama_tied", LATHE_OPEN_INFER, bf16), LATHE_BF16);
    cr_expect_str_eq(said, "");
    cr_expect_eq(precision_of("qwen3", LATHE_OPEN_INFER, fp32), LATHE_F32);
    cr_expect_str_eq(said, "");
}

Test(fastest_precision, of_two_that_are_nearly_as_fast_the_narrower_is_taken)
{
    cr_expect(lathe__narrow_is_faster(1.0, 0.5));
    cr_expect(lathe__narrow_is_faster(1.0, 1.0));
    cr_expect(lathe__narrow_is_faster(1.0, 1.14));
    cr_expect_not(lathe__narrow_is_faster(1.0, 1.16));
    cr_expect_not(lathe__narrow_is_faster(1.0, 2.2));
    cr_expect(lathe__narrow_is_faster(0.0, 0.0)); /* not measured */
}

/* The precision of generation and evaluation if none was set: by the features of the device, among
 * those that lose nothing of the weights. */
#include "base/log.h"
#include "run/decide/fastest_precision.h"
#include "support/small_run.h"

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
    set(&s, "log.level=debug");
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

/* cpu_avx2 has no bf16 products in hardware; cpu_avx512_bf16 has, on machines that can run it. */
Test(fastest_precision, bf16_weights_generate_in_bf16_on_every_device)
{
    static const char *const avx2[] = {"device.name=cpu_avx2", NULL};
    cr_expect_eq(precision_of("qwen3", LATHE_OPEN_INFER, nothing), LATHE_BF16);
    cr_expect_eq(precision_of("qwen3", LATHE_OPEN_INFER, avx2), LATHE_BF16);
    cr_expect_str_eq(said, "computes in bf16: a token reads half the bytes (--train.precision sets "
                           "another)\n");
}

/* Opens a model to be evaluated on a device, for the notes about its precision. The precision is
 * chosen before the data are read, for which the bytes tokenizer does not fit. */
static void open_to_evaluate(const char *device)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    said[0] = '\0';
    lathe_log_set_sink(keep, NULL);
    set(&s, "log.level=debug");
    set(&s, "model.path=" MODELS "qwen3");
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.datasets=[{path = \"" LATHE_TEST_DATA "\"}]");
    set(&s, "data.validation_split=0.5");
    set(&s, "device.name=%s", device);
    cr_expect_eq(open_run_status(LATHE_OPEN_EVALUATE, s.list, &run), LATHE_E_CONFIG);
}

Test(fastest_precision, bf16_weights_are_evaluated_by_what_the_device_multiplies_faster)
{
    open_to_evaluate("cpu_avx2");
    cr_expect(strstr(said, "computes in fp32: the device multiplies fp32 faster"), "%s", said);
    if (!__builtin_cpu_supports("avx512bf16"))
        return;
    open_to_evaluate("cpu_avx512_bf16");
    cr_expect(strstr(said, "computes in bf16: the device multiplies bf16 faster"), "%s", said);
}

Test(fastest_precision, what_the_user_sets_is_used)
{
    static const char *const bf16[] = {"train.precision=bf16", NULL};
    static const char *const fp32[] = {"train.precision=fp32", NULL};
    cr_expect_eq(precision_of("llama_tied", LATHE_OPEN_INFER, bf16), LATHE_BF16);
    cr_expect_str_eq(said, "");
    cr_expect_eq(precision_of("qwen3", LATHE_OPEN_INFER, fp32), LATHE_F32);
    cr_expect_str_eq(said, "");
}

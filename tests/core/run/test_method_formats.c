/* Every fine-tuning method over every format of the frozen weights, as the registry lists them: a
 * pair trains, stops and resumes with the same bits, and its adapter is read back; or it is refused
 * before it starts, with the reason. */
#include "base/hash.h"
#include "plug/kind.h"
#include "plug/registry.h"
#include "small_run.h"

enum { STEPS = 20, HALF = 10, MOST = 64 };

/* Names of the plugins of a kind, in the order of the registry. */
static int32_t list_names(int32_t kind, lathe_arena *arena, const char **out)
{
    lathe_registry *registry = NULL;
    const char **found = NULL;
    int64_t n = 0;
    OK(lathe_registry_create(&registry));
    OK(lathe_registry_names(registry, kind, arena, &found, &n));
    cr_assert_lt(n, MOST);
    for (int64_t i = 0; i < n; i++)
        out[i] = found[i];
    lathe_registry_destroy(registry);
    return (int32_t)n;
}

static int is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static void configure(settings *s, const char *dir, const char *method, const char *format)
{
    set_llama(s, 2, 64, 2, 1, 128);
    set_data(s, dir);
    set(s, "data.seq_len=16");
    set(s, "data.prefetch=0");
    set(s, "train.micro_batch_size=2");
    set(s, "train.max_steps=%d", STEPS);
    set(s, "train.threads=1");
    set(s, "optimizer.lr=0.01");
    set(s, "log.level=error");
    set(s, "adapter.name=%s", method);
    set(s, "quant.name=%s", format);
    if (is(method, "freeze"))
        set(s, "adapter.layers=1");
    else if (is(method, "oft"))
        set(s, "adapter.block_size=8");
    else if (!is(method, "full"))
        set(s, "adapter.dropout=0.1");
}

/* The reason why a pair makes no sense; NULL: it does. */
static const char *senseless(const char *method, const char *format)
{
    if (is(method, "full") && !is(format, "none"))
        return "would quantize nothing, because adapter \"full\" trains every matrix";
    if (is(format, "gptq") || is(format, "awq"))
        return "is calibrated on data, which a run does not do";
    if (is(method, "qlora") && is(format, "none"))
        return "trains beside a quantized base, and the base is in full precision";
    return NULL;
}

static double train(lathe_run *run, int steps)
{
    lathe_step_result r = {.size = sizeof r};
    for (int k = 0; k < steps; k++) {
        lathe_forward_result f = {.size = sizeof f};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, &r));
    }
    return r.loss;
}

static uint64_t weights_of(const lathe_run *run)
{
    return lathe_hash64(run->store.masters, run->store.master_bytes) ^
           3 * lathe_hash64(run->store.planes, run->store.plane_bytes);
}

static void check_pair(const char *dir, const char *method, const char *format)
{
    settings s = {.n = 0};
    char middle[256];
    snprintf(middle, sizeof middle, "%s/%s-%s-middle", dir, method, format);
    configure(&s, dir, method, format);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const uint64_t start = weights_of(run);
    const double first = train(run, 1);
    (void)train(run, HALF - 1);
    const uint64_t saved = weights_of(run);
    OK(lathe_save(run, middle));
    const double last = train(run, STEPS - HALF);
    const uint64_t want = weights_of(run);
    lathe_run_close(run);
    cr_expect_neq(want, start, "%s over %s trains nothing", method, format);
    cr_expect_lt(last, first, "%s over %s: loss %g, then %g", method, format, first, last);

    run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_load(run, middle));
    cr_expect_eq(weights_of(run), saved, "%s over %s: other bits read back", method, format);
    cr_expect_eq(train(run, STEPS - HALF), last, "%s over %s: another loss", method, format);
    cr_expect_eq(weights_of(run), want, "%s over %s: other bits after resuming", method, format);
    lathe_run_close(run);
}

static void check_refusal(const char *dir, const char *method, const char *format,
                          const char *reason)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure(&s, dir, method, format);
    cr_expect_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG, "%s over %s",
                 method, format);
    cr_expect(strstr(lathe_error_message(), reason), "%s over %s: %s", method, format,
              lathe_error_message());
    lathe_run_close(run);
}

Test(method_formats, every_pair_trains_and_resumes_or_is_refused_with_the_reason)
{
    char dir[] = "/tmp/lathe-pairs-XXXXXX";
    const char *methods[MOST], *formats[MOST + 1] = {"none"};
    int n_trained = 0, n_refused = 0;
    lathe_arena arena = LATHE_ARENA_INIT;
    const int32_t n_methods = list_names(LATHE_KIND_ADAPTER, &arena, methods);
    const int32_t n_formats = 1 + list_names(LATHE_KIND_QUANT, &arena, formats + 1);
    make_folder(dir, 1500);
    for (int32_t m = 0; m < n_methods; m++)
        for (int32_t f = 0; f < n_formats; f++) {
            const char *reason = senseless(methods[m], formats[f]);
            if (reason)
                check_refusal(dir, methods[m], formats[f], reason);
            else
                check_pair(dir, methods[m], formats[f]);
            n_refused += reason != NULL;
            n_trained += reason == NULL;
        }
    /* full over each of them, qlora over none, and two calibrated formats under the other methods
     */
    cr_expect_eq(n_refused, n_formats + 2 * (n_methods - 1));
    cr_expect_geq(n_trained, 4 * 7, "%d pairs", n_trained);
    lathe_arena_fini(&arena);
    OK(lathe_dir_remove(dir));
}

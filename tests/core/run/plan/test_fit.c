/* A plan that is too large for the machine is refused before weights are read, and the message
 * names settings that fit. */
#include "run/plan/fit.h"
#include "support/small_run.h"

static char dir[64];

static void setup(void)
{
    strcpy(dir, "/tmp/lathe-fit-XXXXXX");
    make_folder(dir, 40000);
}

static void teardown(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(fit, .init = setup, .fini = teardown);

static void base(settings *s)
{
    set_data(s, dir);
    set_llama(s, 4, 64, 2, 2, 160);
    set(s, "data.seq_len=64");
    set(s, "train.micro_batch_size=8");
    set(s, "train.gradient_accumulation_steps=2");
    set(s, "train.recompute=none");
    set(s, "train.precision=fp32");
    set(s, "train.max_steps=2");
}

static int64_t peak_of(const settings *s)
{
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s->list);
    const int64_t peak = lathe_mem_total(&run->planned);
    lathe_run_close(run);
    return peak;
}

/* Opening must fail for lack of memory; the message is in the thread's error record. */
static void refuse(int32_t mode, const settings *s)
{
    static char keys[MAX_SETTINGS][128];
    lathe_override list[MAX_SETTINGS];
    int32_t n = 0;
    for (; s->list[n]; n++) {
        const char *equals = strchr(s->list[n], '=');
        snprintf(keys[n], sizeof keys[n], "%.*s", (int)(equals - s->list[n]), s->list[n]);
        list[n] = (lathe_override){keys[n], equals + 1};
    }
    lathe_run *run = NULL;
    cr_assert_eq(open_options(NULL, list, n, mode, &run), LATHE_E_CONFIG, "%s",
                 lathe_error_message());
    cr_assert_null(run);
}

/* Adds the settings of a line of the message: "  --key value --key value   (peak ...". */
static void apply(settings *s, const char *line)
{
    char key[64], value[64];
    int n = 0;
    while (sscanf(line, " --%63s %63s%n", key, value, &n) == 2) {
        set(s, "%s=%s", key, value);
        line += n;
    }
}

Test(fit, what_is_proposed_fits_and_trains)
{
    settings s = {.n = 0};
    base(&s);
    const int64_t peak = peak_of(&s);
    /* two thirds of the plan: smaller batches, or recomputation, or an adapter */
    set(&s, "train.memory_limit=%.17g", (double)(peak / 3 * 2) / 1073741824.0);
    refuse(LATHE_OPEN_TRAIN, &s);
    char message[4096];
    snprintf(message, sizeof message, "%s", lathe_error_message());
    cr_expect_not_null(strstr(message, "does not fit: peak "), "%s", message);
    cr_expect_not_null(strstr(message, "(train.memory_limit)"), "%s", message);
    cr_expect_not_null(strstr(message, " too much"), "%s", message);
    char out[96];
    snprintf(out, sizeof out, "%s/out", dir);
    FILE *sink = fopen("/dev/null", "w");
    int options = 0;
    for (const char *line = strstr(message, "\n  --"); line; line = strstr(line + 1, "\n  --")) {
        settings with = s;
        for (int i = 0; i < with.n; i++)
            with.list[i] = with.text[i];
        apply(&with, line + 1);
        const int64_t smaller = peak_of(&with);
        cr_expect(smaller <= peak / 3 * 2, "%.80s: %lld", line, (long long)smaller);
        char told[32];
        snprintf(told, sizeof told, "(peak %.1f MiB)", (double)smaller / 1048576.0);
        cr_expect_not_null(strstr(line, told), "%s is not in %s", told, line);
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, with.list); /* now it opens within the limit */
        lathe_train_result result = {0};
        const lathe_train_options train = {.out = sink};
        OK(lathe_train(run, &train, &result));
        cr_expect(lathe_mem_total(&run->machine.peak) <= peak / 3 * 2);
        lathe_run_close(run);
        options++;
        OK(lathe_dir_remove(out));
    }
    fclose(sink);
    cr_expect(options >= 2, "%d options: %s", options, message);
}

Test(fit, a_plan_at_the_limit_passes_and_a_byte_more_does_not)
{
    settings s = {.n = 0};
    base(&s);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    lathe_fit fit;
    const int64_t need = lathe_mem_total(&run->planned);
    run->set.memory_limit = need;
    lathe_fit_check(run, &fit);
    cr_assert(fit.need == need && fit.have == need && fit.n_options == 0);
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_fit_text(&fit, &text);
    cr_assert_eq(strncmp(text.data, "fits: peak ", 11), 0, "%s", text.data);
    lathe_buffer_fini(&text);
    run->set.memory_limit = need - 1;
    lathe_fit_check(run, &fit);
    cr_assert(fit.need > fit.have);
    lathe_fit_text(&fit, &text);
    cr_assert_eq(strncmp(text.data, "does not fit: peak ", 19), 0, "%s", text.data);
    lathe_buffer_fini(&text);
    run->set.memory_limit = 0; /* the machine's own limit, which this small plan does not reach */
    lathe_fit_check(run, &fit);
    cr_assert(fit.have > need && fit.source[0] != '\0');
    lathe_run_close(run);
}

Test(fit, a_plan_that_cannot_fit_is_reported)
{
    settings s = {.n = 0};
    base(&s);
    set(&s, "train.memory_limit=0.000001");
    refuse(LATHE_OPEN_TRAIN, &s);
    cr_assert_not_null(strstr(lathe_error_message(), "nor would smaller batches"), "%s",
                       lathe_error_message());
}

/* The methods of adapter.name = "auto" are proposed for an adapter that is too large. */
Test(fit, smaller_methods_are_proposed_for_an_adapter)
{
    settings s = {.n = 0};
    base(&s);
    set(&s, "train.micro_batch_size=1");
    set(&s, "train.gradient_accumulation_steps=1");
    set(&s, "train.recompute=layer");
    set(&s, "data.seq_len=16");
    set(&s, "adapter.name=lora");
    settings small = s, large = s;
    set(&small, "adapter.r=8");
    set(&small, "adapter.alpha=8");
    set(&large, "adapter.r=64");
    set(&large, "train.memory_limit=%.17g", (double)peak_of(&small) / 1073741824.0);
    refuse(LATHE_OPEN_TRAIN, &large);
    const char *text = lathe_error_message();
    cr_expect_not_null(strstr(text,
                              "; these fine-tuning methods would fit (adapter.name = "
                              "\"auto\" chooses the first):\n"
                              "  --adapter.name lora --adapter.r 8 --adapter.alpha 8   (peak "),
                       "%s", text);
    cr_expect_null(strstr(text, "nor would"), "%s", text);
}

/* The folder's weights are damaged, but the plan is refused first. */
Test(fit, is_refused_before_weights_are_read_in_every_mode)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 320, \"hidden_size\": 32, "
        "\"intermediate_size\": 64, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"max_position_embeddings\": 64}";
    char path[128], file[192];
    snprintf(path, sizeof path, "%s/model", dir);
    OK(lathe_dir_create(path));
    snprintf(file, sizeof file, "%s/config.json", path);
    OK(lathe_file_write_atomic(file, config, (int64_t)sizeof config - 1));
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    OK(lathe_file_write_atomic(file, "x", 1));
    static const int32_t modes[] = {LATHE_OPEN_TRAIN, LATHE_OPEN_INFER, LATHE_OPEN_EVALUATE};
    for (int i = 0; i < 3; i++) {
        settings s = {.n = 0};
        set_data(&s, dir);
        set(&s, "model.path=%s", path);
        set(&s, "data.seq_len=32");
        set(&s, "train.max_steps=1");
        set(&s, "train.precision=fp32");
        if (modes[i] == LATHE_OPEN_EVALUATE)
            set(&s, "data.validation_split=0.5");
        set(&s, "train.memory_limit=0.00001");
        refuse(modes[i], &s);
        cr_expect_not_null(strstr(lathe_error_message(), "does not fit"), "mode %d: %s", modes[i],
                           lathe_error_message());
    }
}

/* In fp32, the golden model's linear layer keeps for each sequence and each of 4 heads the state
 * [8, 6] and its chunk of 64 tokens, rows of 6 padded to 16: k [8, 64], v [64, 16], 64 decays and a
 * row of 16; and the last 3 rows of the 56 channels of its convolution. They are counted for the
 * sequence and for the zeros with which one begins. Keys and values: 2 layers, 2 heads of 16, 24
 * tokens. */
Test(fit, generation_counts_the_caches_and_the_states_of_linear_layers)
{
    const char *const list[] = {"model.path=" LATHE_TEST_DATA "/golden/data/models/qwen3_next",
                                "tokenizer.path=bytes", "train.precision=fp32", "data.seq_len=24",
                                NULL};
    const int64_t delta = 4 * 4 * (8 * 16 + 8 * 64 + 64 * 16 + 64 + 16), conv = 4 * 3 * 56;
    const int64_t cache = 2 * 2 * 2 * 16 * 24 * 4;
    lathe_fit fit;
    lathe_run *run = open_run(LATHE_OPEN_INFER, list);
    lathe_fit_check(run, &fit);
    cr_assert_eq(run->programs.state_bytes, 2 * (delta + conv), "%lld bytes of states",
                 (long long)run->programs.state_bytes);
    cr_assert_eq(fit.need - lathe_machine_total(&run->machine, &run->planned),
                 2 * (delta + conv) + cache);
    lathe_run_close(run);
}

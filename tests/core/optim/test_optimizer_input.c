/* Wrong or contradictory settings of optimizers and schedulers: one message each, with its place.
 * Wrong numbers are tested with every optimizer. */
#include "plug/schema_check.h"
#include "run/open/opening.h"
#include "support/open_options.h"
#include "support/small_run.h"

static char folder[32], path[64], said[8192];

static void setup(void)
{
    strcpy(folder, "/tmp/lathe-input-XXXXXX");
    make_folder(folder, 20000);
    snprintf(path, sizeof path, "%s/run.toml", folder);
}

static void teardown(void)
{
    OK(lathe_dir_remove(folder));
}

TestSuite(optimizer_input, .init = setup, .fini = teardown);

/* ---- the file, and the messages of `lathe validate` ---- */

/* Writes a valid run after `head`, whose first line is line 1. */
static void write_run(const char *head, const char *tail)
{
    char text[4096];
    snprintf(
        text, sizeof text,
        "%s\n[model]\nmodel_type = \"llama\"\nvocab_size = 320\nhidden_size = 16\n"
        "intermediate_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
        "max_position_embeddings = 64\n[tokenizer]\npath = \"bytes\"\n"
        "[data]\ndatasets = [{path = \"%s/corpus.txt\"}]\nseq_len = 16\ncache_dir = \"%s/cache\"\n"
        "[checkpoint]\ndir = \"%s/out\"\n[log]\nprogress = \"off\"\n%s\n",
        head, folder, folder, folder, tail);
    OK(lathe_file_write_atomic(path, text, (int64_t)strlen(text)));
}

/* Stores errors and warnings of the file in `said`; returns the number of errors. */
static int64_t validate(void)
{
    lathe_diags diags = {0};
    lathe_buffer text = LATHE_BUFFER_INIT;
    const lathe_status status = lathe_run_check(&(lathe_run_source){.path = path},
                                                LATHE_OPEN_CHECK_ELSEWHERE, 0, NULL, &diags, NULL);
    cr_assert_eq(status == LATHE_OK, diags.n_errors == 0, "%s", lathe_error_message());
    lathe_diags_print(&diags, &text);
    snprintf(said, sizeof said, "%s", text.data ? text.data : "");
    const int64_t n = diags.n_errors;
    lathe_buffer_fini(&text);
    lathe_diags_fini(&diags);
    return n;
}

/* Checks that the file has exactly one error, at line:column, that begins with this text. */
static void expect_error(int line, int column, const char *begins)
{
    char want[512];
    cr_expect_eq(validate(), 1, "%s", said);
    snprintf(want, sizeof want, "%s:%d:%d: error: %s", path, line, column, begins);
    cr_expect(strncmp(said, want, strlen(want)) == 0, "\n got %s\nwant %s", said, want);
}

/* Checks that a run gives the same error. */
static void expect_refusal(int line, int column, const char *begins)
{
    char want[512];
    lathe_run *run = NULL;
    expect_error(line, column, begins);
    snprintf(want, sizeof want, "%s:%d:%d: error: %s", path, line, column, begins);
    cr_expect_eq(open_options(path, NULL, 0, LATHE_OPEN_TRAIN, &run), LATHE_E_CONFIG, "%s", want);
    cr_expect(strncmp(lathe_error_message(), want, strlen(want)) == 0, "\n got %s\nwant %s",
              lathe_error_message(), want);
    lathe_run_close(run);
}

/* ---- numbers, for every plugin ---- */

typedef struct plugins {
    lathe_registry *registry;
    lathe_arena arena;
    const lathe_component **list;
    int64_t n;
} plugins;

static plugins list_plugins(int32_t kind)
{
    plugins p = {.arena = LATHE_ARENA_INIT};
    OK(lathe_registry_create(&p.registry));
    OK(lathe_registry_scan(p.registry, kind));
    OK(lathe_registry_list(p.registry, kind, &p.arena, &p.list, &p.n));
    return p;
}

static void plugins_fini(plugins *p)
{
    lathe_arena_fini(&p->arena);
    lathe_registry_destroy(p->registry);
}

/* Values that no field may take whose key contains `key`. */
static const struct {
    const char *key, *values[5];
} bad_numbers[] = {
    {"lr", {"-0.001", "nan", "inf", "-inf", NULL}},  {"beta", {"1.0", "-0.1", "nan", "inf", NULL}},
    {"momentum", {"1.0", "-0.1", "nan", "inf"}},     {"eps", {"-1e-8", "nan", "inf", NULL}},
    {"weight_decay", {"-0.01", "nan", "inf", NULL}}, {"", {"nan", "inf", "-inf", NULL}},
};

static int refuse_numbers(const lathe_component *c, const lathe_field *f)
{
    int n = 0;
    for (size_t i = 0; i < sizeof bad_numbers / sizeof bad_numbers[0]; i++)
        for (int k = 0; strstr(f->key, bad_numbers[i].key) && k < 4 && bad_numbers[i].values[k];
             k++, n++) {
            char head[256], begins[128];
            snprintf(head, sizeof head, "[optimizer]\nname = \"%s\"\n%s = %s", c->plugin->name,
                     f->key, bad_numbers[i].values[k]);
            snprintf(begins, sizeof begins, "optimizer.%s is ", f->key);
            write_run(head, "");
            if (n == 0)
                expect_refusal(3, (int)strlen(f->key) + 4, begins);
            else
                expect_error(3, (int)strlen(f->key) + 4, begins);
        }
    return n;
}

Test(optimizer_input, numbers_that_are_none_or_out_of_range_are_refused_by_all, .timeout = 120)
{
    plugins p = list_plugins(LATHE_KIND_OPTIMIZER);
    cr_assert_eq(p.n, 13);
    for (int64_t i = 0; i < p.n; i++) {
        int n_lr = 0;
        for (int32_t k = 0; k < p.list[i]->plugin->n_fields; k++) {
            const lathe_field *f = &p.list[i]->plugin->fields[k];
            if (f->type == LATHE_T_FLOAT) {
                const int n = refuse_numbers(p.list[i], f);
                n_lr += strcmp(f->key, "lr") == 0 ? n : 0;
            }
        }
        cr_expect_eq(n_lr, 7, "%s: lr was tried %d times", p.list[i]->plugin->name, n_lr);
    }
    plugins_fini(&p);
}

Test(optimizer_input, words_of_a_rule_across_keys_stand_at_the_key)
{
    write_run("[optimizer]\nname = \"sgd\"\nnesterov = true", "");
    expect_refusal(3, 12, "optimizer sgd: nesterov needs a momentum above 0");
}

/* ---- state_dtype ---- */

Test(optimizer_input, a_state_dtype_is_refused_for_optimizers_without_state)
{
    plugins p = list_plugins(LATHE_KIND_OPTIMIZER);
    int n_with = 0;
    for (int64_t i = 0; i < p.n; i++) {
        const lathe_plugin *plugin = p.list[i]->plugin;
        char head[128];
        snprintf(head, sizeof head, "[optimizer]\nname = \"%s\"\nstate_dtype = \"bf16\"",
                 plugin->name);
        write_run(head, "[train]\nmax_steps = 9\n[scheduler]\nname = \"constant\"");
        if (lathe_schema_index(plugin->fields, plugin->n_fields, "state_dtype") < 0) {
            expect_refusal(3, 1, "unknown key 'state_dtype'");
            continue;
        }
        n_with++;
        cr_expect_eq(validate(), 0, "%s", said);
        snprintf(head, sizeof head, "[optimizer]\nname = \"%s\"\nstate_dtype = \"fp8\"",
                 plugin->name);
        write_run(head, "");
        expect_refusal(3, 15, "optimizer.state_dtype is \"fp8\", expected one of fp32, bf16");
    }
    cr_expect_eq(n_with, 6); /* adamw, lion, muon, sgd, signsgd, sophia */
    plugins_fini(&p);
}

/* ---- schedules and the length of the run ---- */

Test(optimizer_input, a_warm_up_longer_than_the_schedule_is_refused)
{
    plugins p = list_plugins(LATHE_KIND_SCHEDULER);
    int n_with = 0;
    cr_assert_eq(p.n, 11);
    for (int64_t i = 0; i < p.n; i++) {
        const lathe_plugin *plugin = p.list[i]->plugin;
        char head[160];
        if (lathe_schema_index(plugin->fields, plugin->n_fields, "warmup_steps") < 0)
            continue;
        n_with++;
        const int has_total =
            lathe_schema_index(plugin->fields, plugin->n_fields, "total_steps") >= 0;
        snprintf(head, sizeof head, "[scheduler]\nname = \"%s\"\nwarmup_steps = 31%s", plugin->name,
                 has_total ? "\ntotal_steps = 30" : "");
        write_run(head, "[train]\nmax_steps = 30");
        if (has_total)
            expect_refusal(3, 16, "warmup_steps is 31, the schedule has 30 steps");
        else /* its length is the run's, which may be short */
            cr_expect_eq(validate(), 0, "%s", said);
        snprintf(head, sizeof head, "[scheduler]\nname = \"%s\"\nwarmup_steps = 31", plugin->name);
        write_run(head, "[train]\nmax_steps = 31");
        cr_expect_eq(validate(), 0, "%s", said);
        write_run(head, ""); /* epochs: the length is not known yet */
        cr_expect_eq(validate(), 0, "%s", said);
    }
    cr_expect_eq(n_with, 9); /* all except constant and one_cycle */
    plugins_fini(&p);
}

Test(optimizer_input, a_schedule_that_needs_a_length_is_refused_without_one)
{
    static const char *const free[] = {"constant", "constant_with_warmup", "inverse_sqrt",
                                       "reduce_on_plateau"};
    plugins p = list_plugins(LATHE_KIND_SCHEDULER);
    for (int64_t i = 0; i < p.n; i++) {
        const char *name = p.list[i]->plugin->name;
        int is_free = 0;
        lathe_run *run = NULL;
        settings s = {.n = 0};
        for (size_t k = 0; k < sizeof free / sizeof free[0]; k++)
            is_free |= strcmp(name, free[k]) == 0;
        set_llama(&s, 1, 16, 2, 2, 32);
        set(&s, "train.precision=fp32");
        set(&s, "data.seq_len=16");
        set(&s, "scheduler.name=%s", name);
        cr_expect_eq(open_run_status(LATHE_OPEN_BATCHES, s.list, &run),
                     is_free ? LATHE_OK : LATHE_E_CONFIG, "%s: %s", name, lathe_error_message());
        if (!is_free)
            cr_expect_str_eq(lathe_error_message(),
                             "--scheduler.name: error: the schedule needs the length of the run in "
                             "steps, got 0: set train.max_steps or scheduler.total_steps");
        lathe_run_close(run);
    }
    plugins_fini(&p);
}

/* ---- parts that contradict each other ---- */

Test(optimizer_input, curvature_needs_labels)
{
    write_run("[optimizer]\nname = \"sophia\"\n[stage]\nname = \"dpo\"", "");
    cr_expect_eq(validate(), 1, "%s", said);
    cr_expect_not_null(strstr(said, "run.toml:2:8: error: optimizer \"sophia\" estimates curvature "
                                    "from labels that the model draws; stage \"dpo\" has none"));
}

Test(optimizer_input, an_average_in_the_place_of_a_schedule_stands_beside_none)
{
    plugins p = list_plugins(LATHE_KIND_SCHEDULER);
    for (int64_t i = 0; i < p.n; i++) {
        const char *name = p.list[i]->plugin->name;
        char head[128], begins[128];
        snprintf(head, sizeof head,
                 "[optimizer]\nname = \"schedule_free_adamw\"\n[scheduler]\nname = \"%s\"", name);
        write_run(head, "[train]\nmax_steps = 30");
        if (strncmp(name, "constant", 8) == 0) {
            cr_expect_eq(validate(), 0, "%s", said);
            cr_expect_str_eq(said, "");
            continue;
        }
        snprintf(begins, sizeof begins, "scheduler \"%s\" lowers the rate, but optimizer", name);
        expect_refusal(4, 8, begins);
    }
    write_run("[optimizer]\nname = \"schedule_free_adamw\"", "[train]\nmax_steps = 30");
    expect_refusal(2, 8, "scheduler \"cosine\" lowers the rate");
    write_run("[optimizer]\nname = \"schedule_free_adamw\"\n"
              "[scheduler]\nname = \"constant_with_warmup\"\nwarmup_steps = 4",
              "[train]\nmax_steps = 30");
    cr_expect_eq(validate(), 0, "%s", said);
    cr_expect_not_null(strstr(said, "run.toml:4:8: warning: scheduler \"constant_with_warmup\" "
                                    "raises the rate at the beginning, which optimizer"));
    plugins_fini(&p);
}

/* With any optimizer: a trainable matrix is not quantized. With LoRA none of the model's own
 * trains. */
Test(optimizer_input, matrices_that_train_are_not_quantized)
{
    static const char *const optimizers[] = {"muon", "adamw"}, *const quants[] = {"nf4", "int8"};
    for (int i = 0; i < 4; i++) {
        char head[160], begins[160];
        snprintf(head, sizeof head,
                 "[quant]\nname = \"%s\"\n[adapter]\nname = \"full\"\n"
                 "[optimizer]\nname = \"%s\"",
                 quants[i % 2], optimizers[i / 2]);
        snprintf(begins, sizeof begins,
                 "quant.name = \"%s\" would quantize nothing, because adapter "
                 "\"full\" trains every matrix",
                 quants[i % 2]);
        write_run(head, "");
        expect_refusal(2, 8, begins);
        snprintf(head, sizeof head,
                 "[quant]\nname = \"%s\"\n[adapter]\nname = \"lora\"\n"
                 "[optimizer]\nname = \"%s\"",
                 quants[i % 2], optimizers[i / 2]);
        write_run(head, "");
        cr_expect_eq(validate(), 0, "%s", said);
    }
}

/* ---- resuming with other settings ---- */

static lathe_status train_to(const char *optimizer, const char *scheduler, int steps)
{
    char head[160];
    lathe_run *run = NULL;
    lathe_train_result result;
    FILE *out = fopen("/dev/null", "w");
    const lathe_train_options options = {.out = out};
    snprintf(head, sizeof head, "[optimizer]\n%s\n[scheduler]\nname = \"%s\"", optimizer,
             scheduler);
    write_run(head, "[train]\nmax_steps = 9\nmicro_batch_size = 2\nprecision = \"fp32\"");
    char end[16];
    snprintf(end, sizeof end, "%d", steps);
    const lathe_override list[] = {{"train.stop_after", end}};
    lathe_status status = open_options(path, list, 1, LATHE_OPEN_TRAIN, &run);
    if (status == LATHE_OK)
        status = lathe_train(run, &options, &result);
    fclose(out);
    lathe_run_close(run);
    return status;
}

/* Inserts the folder for "%s" in the text. */
static void put_folder(const char *text, char *out, size_t bytes)
{
    const char *at = strstr(text, "%s");
    cr_assert_not_null(at);
    snprintf(out, bytes, "%.*s%s%s", (int)(at - text), text, folder, at + 2);
}

Test(optimizer_input, resuming_with_other_settings_is_refused, .timeout = 60)
{
    static const struct {
        const char *optimizer, *scheduler, *message;
    } rows[] = {
        {"name = \"lion\"", "cosine",
         "error: optimizer.name is \"lion\", but %s/out/step-00000002, from which the run would "
         "resume, was written with \"adamw\": set it back, or choose another checkpoint.dir"},
        {"name = \"adamw\"", "linear",
         "error: scheduler.name is \"linear\", but %s/out/step-00000002, from which the run would "
         "resume, was written with \"cosine\": set it back, or choose another checkpoint.dir"},
        {"name = \"adamw\"\nstate_dtype = \"bf16\"", "cosine",
         "%s/out/step-00000002/state/optimizer.safetensors: 'model.embed_tokens.weight.exp_avg' is "
         "f32[320,16], but the run needs bf16[320,16]; optimizer \"adamw\" had other settings: "
         "resume with the settings of the checkpoint, or start a new run from its weights with "
         "model.path"},
    };
    OK(train_to("name = \"adamw\"", "cosine", 2));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char want[1024];
        put_folder(rows[i].message, want, sizeof want);
        cr_expect_eq(train_to(rows[i].optimizer, rows[i].scheduler, 3), LATHE_E_CONFIG);
        cr_expect_not_null(strstr(lathe_error_message(), want), "\n got %s\nwant %s",
                           lathe_error_message(), want);
    }
    OK(train_to("name = \"adamw\"", "cosine", 3)); /* nothing was changed */
}

Test(optimizer_input, a_state_too_many_or_too_few_is_refused, .timeout = 60)
{
    OK(train_to("name = \"sgd\"\nmomentum = 0.9", "cosine", 2));
    cr_expect_eq(train_to("name = \"sgd\"", "cosine", 3), LATHE_E_CONFIG);
    cr_expect_not_null(
        strstr(lathe_error_message(), "states, but the run needs 0; optimizer \"sgd\""), "%s",
        lathe_error_message());
    char out[64];
    snprintf(out, sizeof out, "%s/out", folder);
    OK(lathe_dir_remove(out));
    OK(train_to("name = \"sgd\"", "cosine", 2));
    cr_expect_eq(train_to("name = \"sgd\"\nmomentum = 0.9", "cosine", 3), LATHE_E_CONFIG);
    cr_expect_not_null(
        strstr(lathe_error_message(), "has no 'model.embed_tokens.weight.momentum_buffer'"), "%s",
        lathe_error_message());
}

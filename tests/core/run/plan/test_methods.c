/* adapter.name = "auto": the first fine-tuning method whose plan fits is used. */
#include "plug/kind.h"
#include "run/plan/fit_search.h"
#include "run/plan/methods.h"
#include "support/small_run.h"

static char dir[64];

static void setup(void)
{
    strcpy(dir, "/tmp/lathe-methods-XXXXXX");
    make_folder(dir, 20000);
}

static void teardown(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(methods, .init = setup, .fini = teardown);

static void base(settings *s, const char *adapter)
{
    *s = (settings){.n = 0};
    set_data(s, dir);
    set_llama(s, 2, 128, 2, 2, 256);
    set(s, "data.seq_len=32");
    set(s, "train.micro_batch_size=1");
    set(s, "train.precision=fp32");
    set(s, "train.max_steps=1");
    set(s, "log.level=warn");
    set(s, "adapter.name=%s", adapter);
}

static void limit(settings *s, int64_t bytes)
{
    set(s, "train.memory_limit=%.17g", (double)bytes / 1073741824.0);
}

/* The memory that each method needs, whatever fits. */
static lathe_methods table_of(const settings *s)
{
    lathe_methods out;
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s->list);
    OK(lathe_methods_plan(run, 1, &out));
    lathe_run_close(run);
    return out;
}

static const char *value_of(const lathe_run *run, const char *section, const char *key)
{
    return lathe_config_string(run->config, section, key);
}

/* Whether the opened run has the settings of the row. */
static void expect_method(const lathe_run *run, const lathe_method_row *row, int recomputes)
{
    for (int32_t i = 0; i < row->n_set; i++) {
        char section[32];
        const size_t dot = strcspn(row->set[i].key, ".");
        snprintf(section, sizeof section, "%.*s", (int)dot, row->set[i].key);
        const char *key = row->set[i].key + dot + 1, *want = row->set[i].text;
        const int64_t number = row->set[i].number;
        const lathe_part *part = lathe_config_part(run->config, lathe_kind_id(section));
        if (strcmp(key, "name") == 0)
            cr_expect_str_eq(part->name, want);
        else if (strcmp(key, "alpha") == 0)
            cr_expect_eq(lathe_config_float(run->config, section, key), (double)number);
        else
            cr_expect_eq(lathe_config_int(run->config, section, key), number, "%s", key);
    }
    cr_expect_eq(strcmp(value_of(run, "train", "recompute"), "layer") == 0, recomputes);
}

static void train(lathe_run *run)
{
    FILE *sink = fopen("/dev/null", "w");
    lathe_train_result result = {0};
    const lathe_train_options options = {.out = sink};
    OK(lathe_train(run, &options, &result));
    cr_expect_eq(result.step, 1);
    fclose(sink);
}

static void remove_checkpoints(void)
{
    char out[96];
    snprintf(out, sizeof out, "%s/out", dir);
    OK(lathe_dir_remove(out));
}

/* With a limit of exactly what a method needs, that method is chosen if each before it needs more;
 * a run in it then stays within the limit. */
Test(methods, auto_chooses_as_the_table_says_and_stays_within_the_limit)
{
    settings s;
    base(&s, "auto");
    const lathe_methods table = table_of(&s);
    int64_t least = INT64_MAX;
    int tried = 0;
    cr_assert_eq(table.n, 7);
    for (int32_t i = 0; i < table.n; i++) {
        cr_assert(!table.rows[i].is_refused, "%s", table.rows[i].refusal);
        for (int layers = 0; layers <= 1; layers++) {
            const int64_t need = layers ? table.rows[i].peak_layers : table.rows[i].peak;
            if (need >= least)
                continue;
            least = need;
            base(&s, "auto");
            limit(&s, need);
            lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
            expect_method(run, &table.rows[i], layers);
            train(run);
            cr_expect(lathe_mem_total(&run->machine.peak) <= need, "method %d", i);
            lathe_run_close(run);
            remove_checkpoints();
            tried++;
        }
    }
    cr_expect_geq(tried, 5);
}

static void expect_text(const lathe_methods *table, const char *want, const char *unwanted)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_methods_text(table, &text);
    cr_expect_not_null(strstr(text.data, want), "%s", text.data);
    cr_expect_null(strstr(text.data, unwanted), "%s", text.data);
    lathe_buffer_fini(&text);
}

Test(methods, the_table_marks_a_choice_only_for_auto)
{
    settings s;
    base(&s, "lora");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    lathe_methods table;
    OK(lathe_methods_plan(run, 1, &table));
    expect_text(&table,
                "  the run uses adapter \"lora\", as the run file says; adapter.name = \"auto\" "
                "would choose full\n",
                "  chosen ");
    lathe_run_close(run);
    base(&s, "auto");
    run = open_run(LATHE_OPEN_PLAN, s.list);
    OK(lathe_methods_plan(run, 1, &table));
    expect_text(&table, "  chosen ", "the run uses");
    lathe_run_close(run);
}

/* lora over quantized weights is what qlora is. */
Test(methods, a_folder_of_quantized_weights_has_no_rows_of_qlora)
{
    settings s = {.n = 0};
    set_data(&s, dir);
    set(&s, "model.path=%s", LATHE_TEST_DATA "/golden/data/quantized/bnb_nf4");
    set(&s, "tokenizer.path=" LATHE_TEST_DATA "/golden/data/tokenizer/tiny_64.json");
    set(&s, "data.seq_len=16");
    set(&s, "train.max_steps=1");
    set(&s, "adapter.name=lora");
    const lathe_methods table = table_of(&s);
    cr_assert_eq(table.n, 5);
    cr_expect(table.rows[0].is_refused && table.rows[1].is_refused);
    cr_expect_eq(table.chosen, 2);
}

Test(methods, a_run_that_resumes_keeps_the_method_of_its_checkpoint)
{
    settings s;
    base(&s, "auto");
    const lathe_methods table = table_of(&s);
    limit(&s, table.rows[4].peak);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    train(run);
    lathe_run_close(run);
    base(&s, "auto"); /* now there is memory for every method */
    set(&s, "train.max_steps=2");
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_expect_eq(lathe_config_int(run->config, "adapter", "r"), 8);
    FILE *sink = fopen("/dev/null", "w");
    lathe_train_result result = {0};
    const lathe_train_options options = {.out = sink};
    OK(lathe_train(run, &options, &result));
    cr_expect_eq(result.step, 2);
    fclose(sink);
    lathe_run_close(run);
}

/* The peak of the first method with micro-batches of n rows. */
static int64_t peak_with(int n, const char *recompute)
{
    settings s;
    lathe_methods table;
    base(&s, "auto");
    set(&s, "train.micro_batch_size=%d", n);
    if (recompute)
        set(&s, "train.recompute=%s", recompute);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    OK(lathe_methods_plan(run, 0, &table));
    lathe_run_close(run);
    cr_assert_eq(table.chosen, 0);
    return table.rows[0].peak;
}

static lathe_run *open_split(int64_t bytes, int steps)
{
    settings s;
    base(&s, "auto");
    set(&s, "train.micro_batch_size=4");
    set(&s, "train.gradient_accumulation_steps=2");
    set(&s, "train.max_steps=%d", steps);
    if (bytes > 0)
        limit(&s, bytes);
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

/* Rows of a micro-batch and their number, whatever the memory, are 8 rows in a step. */
Test(methods, smaller_micro_batches_are_tried_before_a_method_is_given_up)
{
    const int64_t whole = peak_with(4, "layer"), half = peak_with(2, NULL),
                  least = peak_with(1, "layer");
    cr_assert(whole > half && half > least, "%lld %lld %lld", (long long)whole, (long long)half,
              (long long)least);
    const struct {
        int64_t bytes;
        int rows, recomputes;
    } cases[] = {{whole, 4, 1}, {whole - 1, 2, 0}, {half, 2, 0}, {least, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lathe_run *run = open_split(cases[i].bytes, 1);
        cr_expect_str_eq(run->parts.adapter.component->plugin->name, "full");
        cr_expect_eq(run->set.micro_batch_size, cases[i].rows, "case %zu: %d rows", i,
                     run->set.micro_batch_size);
        cr_expect_eq(run->set.gradient_accumulation_steps, 8 / cases[i].rows);
        cr_expect_eq(strcmp(value_of(run, "train", "recompute"), "layer") == 0,
                     cases[i].recomputes);
        lathe_methods again; /* the table of the opened run is that of its file */
        OK(lathe_methods_plan(run, 0, &again));
        cr_expect_eq(again.chosen, 0);
        cr_expect_eq(again.rows[0].split.rows, cases[i].rows == 4 ? 0 : cases[i].rows);
        train(run);
        cr_expect(lathe_mem_total(&run->machine.peak) <= cases[i].bytes);
        lathe_run_close(run);
        remove_checkpoints();
    }
    lathe_run *run = open_split(least - 1, 1);
    cr_expect_str_neq(run->parts.adapter.component->plugin->name, "full");
    lathe_run_close(run);
}

Test(methods, a_run_that_resumes_keeps_the_micro_batches_of_its_checkpoint)
{
    lathe_run *run = open_split(peak_with(1, "layer"), 1);
    train(run);
    lathe_run_close(run);
    run = open_split(0, 2); /* now there is memory for all rows at once */
    cr_expect_eq(run->set.micro_batch_size, 1);
    cr_expect_eq(run->set.gradient_accumulation_steps, 8);
    lathe_run_close(run);
}

/* Mismatched examples come from the same micro-batch: kto of two rows is not kto of one. */
Test(methods, micro_batches_that_matter_to_the_stage_are_kept)
{
    settings s;
    lathe_run *run = NULL;
    base(&s, "auto");
    set(&s, "stage.name=kto");
    set(&s, "train.micro_batch_size=4");
    set(&s, "train.memory_limit=0.0001");
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){
        "no method fits the memory; lower train.micro_batch_size or data.seq_len, or", NULL});
    set(&s, "stage.name=pretrain");
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){"no method fits the memory, even with "
                                       "train.micro_batch_size = 1; lower data.seq_len, or",
                                       NULL});
}

/* ---- the advice of a plan that does not fit ---- */

/* Rows of the micro-batches that the advice names; 0: it keeps those of the file. */
static int advised_rows(const lathe_run *run)
{
    static const char key[] = "--train.micro_batch_size ";
    lathe_fit fit;
    lathe_fit_check(run, &fit);
    cr_assert_gt(fit.need, fit.have);
    lathe_fit_search(run, &fit);
    for (int32_t i = 0; i < fit.n_options; i++)
        if (strncmp(fit.options[i].settings, key, strlen(key)) == 0)
            return atoi(fit.options[i].settings + strlen(key));
    return 0;
}

/* A model of one step, for distill. */
static void make_teacher(void)
{
    settings s;
    base(&s, "full");
    set(&s, "checkpoint.dir=%s/teacher", dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    train(run);
    lathe_run_close(run);
}

static lathe_run *open_stage(const char *stage, int rows, int64_t bytes)
{
    settings s;
    base(&s, "full");
    set(&s, "stage.name=%s", stage);
    set(&s, "train.micro_batch_size=%d", rows);
    set(&s, "train.recompute=none");
    if (strcmp(stage, "ppo") == 0) {
        set(&s, "reward.name=length");
        set(&s, "reward.tokens=8");
        set(&s, "stage.max_new_tokens=8");
    }
    if (strcmp(stage, "distill") == 0)
        set(&s, "teacher.path=%s/teacher/step-00000001", dir);
    if (bytes > 0)
        limit(&s, bytes);
    return open_run(LATHE_OPEN_PLAN, s.list);
}

static int64_t stage_peak(const char *stage, int rows)
{
    lathe_run *run = open_stage(stage, rows, 0);
    const int64_t peak = lathe_mem_total(&run->planned);
    lathe_run_close(run);
    return peak;
}

/* "auto" takes the micro-batches that the refusal of the same file advises, for each number of rows
 * and a limit that half of them meet. */
Test(methods, the_advice_takes_the_micro_batches_that_auto_takes, .timeout = 120)
{
    static const struct {
        const char *stage;
        int is_split, least; /* rows of a micro-batch that the stage takes */
    } stages[] = {{"pretrain", 1, 1}, {"sft", 1, 1}, {"dpo", 1, 1}, {"rm", 1, 1},
                  {"distill", 1, 1},  {"kto", 0, 2}, {"ppo", 0, 1}};
    make_teacher();
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        int n_split = 0;
        for (int rows = stages[i].least; rows <= 16; rows++) {
            const int half = rows / 2 > stages[i].least ? (rows + 1) / 2 : stages[i].least;
            const int64_t least = stage_peak(stages[i].stage, half);
            const int64_t whole = stage_peak(stages[i].stage, rows);
            lathe_methods table;
            if (whole <= least)
                continue; /* one row, or rows that cost nothing */
            lathe_run *run = open_stage(stages[i].stage, rows, least);
            OK(lathe_methods_plan(run, 0, &table));
            const int advised = advised_rows(run);
            cr_expect_eq(advised, table.rows[0].split.rows, "%s, %d rows: advice %d, auto %d",
                         stages[i].stage, rows, advised, table.rows[0].split.rows);
            cr_expect(advised == 0 || rows % advised == 0, "%s, %d rows: %d", stages[i].stage, rows,
                      advised);
            n_split += advised > 0;
            lathe_run_close(run);
        }
        cr_expect_eq(n_split > 0, stages[i].is_split, "%s: %d of 16 were split", stages[i].stage,
                     n_split);
    }
}

Test(methods, what_the_user_sets_is_kept)
{
    settings s;
    base(&s, "auto");
    set(&s, "quant.name=int8");
    set(&s, "train.recompute=none");
    const lathe_methods table = table_of(&s);
    cr_expect_eq(table.n, 5, "the methods with nf4 are left out");
    cr_expect(table.rows[0].is_refused);
    cr_expect_not_null(strstr(table.rows[0].refusal, "would quantize nothing"), "%s",
                       table.rows[0].refusal);
    for (int32_t i = 1; i < table.n; i++)
        cr_expect(table.rows[i].peak > 0 && table.rows[i].peak_layers == 0, "method %d", i);
    cr_expect_eq(table.chosen, 1);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    cr_expect_str_eq(run->parts.adapter.component->plugin->name, "freeze");
    cr_expect_str_eq(run->parts.quant.component->plugin->name, "int8");
    lathe_run_close(run);
}

Test(methods, the_table_ignores_the_keys_of_the_file_s_own_method)
{
    settings s;
    base(&s, "lora");
    set(&s, "adapter.r=4");
    set(&s, "adapter.dropout=0.1");
    const lathe_methods table = table_of(&s);
    for (int32_t i = 0; i < table.n; i++)
        cr_expect(!table.rows[i].is_refused, "%s", table.rows[i].refusal);
    cr_expect_eq(table.rows[0].n_trained, table_of(&s).rows[0].n_trained);
    cr_expect_gt(table.rows[0].n_trained, table.rows[1].n_trained);
}

Test(methods, nothing_that_fits_is_refused_with_the_table)
{
    settings s;
    lathe_run *run = NULL;
    base(&s, "auto");
    set(&s, "train.memory_limit=0.0001");
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){"--adapter.name", "no method fits the memory", "too large",
                                       "qlora r=8 alpha=8 nf4", "(train.memory_limit)", NULL});
}

Test(methods, keys_beside_auto_are_refused)
{
    settings s;
    lathe_run *run = NULL;
    base(&s, "auto");
    set(&s, "adapter.r=4");
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){
        "--adapter.r", "adapter.name = \"auto\" chooses the method and its settings", NULL});
}

/* An error that keeps every method from being planned is passed on as it is. */
Test(methods, a_model_that_is_wrong_is_refused_as_without_auto)
{
    settings s;
    lathe_run *run = NULL;
    base(&s, "auto");
    set(&s, "model.hidden_size=63");
    cr_assert_neq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_OK);
    expect_parts((const char *const[]){"hidden_size is 63", NULL});
}

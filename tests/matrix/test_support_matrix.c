/* docs/support.md: which families, methods, formats, stages and devices go together, found by
 * trying each pair as the registry lists them. A cell of the page is a step that was trained, on
 * this machine or on the emulated GPU, or a refusal before the run began. A new plugin gets its row
 * and its column by itself, and a cell that changes makes the test fail until the page says so. */
#include "lathe/adapter.h"
#include "lathe/stage.h"
#include "plug/kind.h"
#include "plug/registry.h"
#include "support/plugin_override.h"
#include "support/small_run.h"

#define PAGE LATHE_TEST_DATA "/../docs/support.md"
#define MADE LATHE_TEST_BUILD "/support.md"

enum { MAX = 96, MAX_WORDS = 512 };

/* ---- what there is ---- */

typedef struct plugins {
    const lathe_plugin *list[MAX];
    int32_t n;
} plugins;

/* The plugins of a kind, in the order of the registry. */
static plugins all_of(int32_t kind)
{
    plugins all = {.n = 0};
    lathe_registry *registry = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **found = NULL;
    int64_t n = 0;
    OK(lathe_registry_create(&registry));
    OK(lathe_registry_scan(registry, kind));
    OK(lathe_registry_list(registry, kind, &arena, &found, &n));
    cr_assert_lt(n, MAX);
    for (; all.n < n; all.n++)
        all.list[all.n] = found[all.n]->plugin; /* plugins stay loaded */
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
    return all;
}

static const lathe_field *field_of(const lathe_plugin *plugin, const char *key)
{
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (strcmp(plugin->fields[i].key, key) == 0)
            return &plugin->fields[i];
    return NULL;
}

/* ---- a cell ---- */

static char dir[32], base[64]; /* a folder in /tmp; a model in it with its tokenizer */

/* A member that is NULL: the family llama, the method full, no format, the stage pretrain, the CPU.
 */
typedef struct cell {
    const lathe_plugin *family, *method, *format, *stage;
    const char *device;
} cell;

static const char *name_or(const lathe_plugin *plugin, const char *otherwise)
{
    return plugin ? plugin->name : otherwise;
}

/* Where all heads come from one latent, those of keys are as many as those of queries. */
static int heads_or(const lathe_plugin *family, const char *key, int value)
{
    return strcmp(key, "num_key_value_heads") == 0 && field_of(family, "kv_lora_rank") ? 4 : value;
}

/* A small new model, whose widths are multiples of every format's block. */
static void set_family(settings *s, const lathe_plugin *family)
{
    static const struct {
        const char *key;
        int value;
    } sizes[] = {{"hidden_size", 64},
                 {"n_embd", 64},
                 {"d_model", 64},
                 {"head_dim", 16},
                 {"intermediate_size", 128},
                 {"ffn_hidden_size", 256},
                 {"moe_intermediate_size", 64},
                 {"num_hidden_layers", 2},
                 {"n_layer", 2},
                 {"n_layers", 2},
                 {"num_attention_heads", 4},
                 {"n_head", 4},
                 {"n_heads", 4},
                 {"num_key_value_heads", 2},
                 {"num_experts", 4},
                 {"num_local_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"n_routed_experts", 4},
                 {"moe_num_experts", 4},
                 {"shared_expert_intermediate_size", 64},
                 {"linear_num_key_heads", 2},
                 {"linear_num_value_heads", 4},
                 {"linear_key_head_dim", 16},
                 {"linear_value_head_dim", 16},
                 {"q_lora_rank", 64},
                 {"kv_lora_rank", 64},
                 {"qk_nope_head_dim", 16},
                 {"qk_rope_head_dim", 16},
                 {"v_head_dim", 16},
                 {"n_group", 1},
                 {"topk_group", 1},
                 {"first_k_dense_replace", 1},
                 {"mamba_n_heads", 4},
                 {"mamba_d_head", 32},
                 {"mamba_d_ssm", 128},
                 {"mamba_d_state", 16}};
    const lathe_field *type = field_of(family, "model_type");
    cr_assert(type && type->choices, "%s", family->name);
    set(s, "model.model_type=%.*s", (int)strcspn(type->choices, "|"), type->choices);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (field_of(family, sizes[i].key))
            set(s, "model.%s=%d", sizes[i].key, heads_or(family, sizes[i].key, sizes[i].value));
}

/* Records that suit the stage. */
static const char *data_of(const char *stage)
{
    static const struct {
        const char *stage, *file;
    } files[] = {{"sft", "answers.jsonl"}, {"distill", "answers.jsonl"}, {"rm", "pairs.jsonl"},
                 {"dpo", "pairs.jsonl"},   {"kto", "labels.jsonl"},      {"ppo", "prompts.jsonl"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(stage, files[i].stage) == 0)
            return files[i].file;
    return "corpus.txt";
}

static void set_stage(settings *s, const char *stage)
{
    set(s, "stage.name=%s", stage);
    set(s, "data.datasets=[{path = \"%s/%s\"}]", dir, data_of(stage));
    if (strcmp(stage, "ppo") == 0) {
        set(s, "reward.name=length");
        set(s, "reward.tokens=3");
        set(s, "stage.max_new_tokens=4");
    }
    if (strcmp(stage, "distill") == 0)
        set(s, "teacher.path=%s", base);
}

static void set_run(settings *s)
{
    set(s, "data.cache_dir=%s/cache", dir);
    set(s, "data.seq_len=16");
    set(s, "data.prefetch=0");
    set(s, "optimizer.lr=0.001");
    set(s, "train.micro_batch_size=2");
    set(s, "train.max_steps=1");
    set(s, "train.threads=1");
    set(s, "checkpoint.dir=%s/out", dir);
    set(s, "log.level=error");
    set(s, "log.progress=off");
}

/* Whether the method, with its default settings, trains beside a quantized base alone. */
static int needs_quantized(const lathe_plugin *method)
{
    static const lathe_plugin *asked;
    static int needs;
    if (!method || !LATHE_HAS((const lathe_adapter_v1 *)method->table, needs_quantized_base))
        return 0;
    if (asked != method) {
        settings s = {.n = 0};
        set(&s, "model.path=%s", base);
        set_stage(&s, "pretrain");
        set(&s, "adapter.name=%s", method->name);
        set(&s, "quant.name=nf4");
        set_run(&s);
        lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
        needs = ((const lathe_adapter_v1 *)method->table)
                    ->needs_quantized_base(run->parts.adapter.self);
        lathe_run_close(run);
        asked = method;
    }
    return needs;
}

static void configure(settings *s, const cell *c)
{
    if (c->family) {
        set_family(s, c->family);
        set(s, "tokenizer.path=%s", base);
    } else {
        set(s, "model.path=%s", base);
    }
    set_stage(s, name_or(c->stage, "pretrain"));
    set(s, "adapter.name=%s", name_or(c->method, "full"));
    if (c->method && field_of(c->method, "layers"))
        set(s, "adapter.layers=1");
    set(s, "quant.name=%s", name_or(c->format, needs_quantized(c->method) ? "nf4" : "none"));
    set(s, "device.name=%s", c->device ? c->device : "cpu");
    set_run(s);
}

static void drop_run(void)
{
    char out[64];
    snprintf(out, sizeof out, "%s/out", dir);
    OK(lathe_dir_remove(out));
}

/* A step of a stage that takes its batches from the data; others, such as ppo, make them in the
 * training loop. */
static double train_step(lathe_run *run)
{
    lathe_forward_result forward = {.size = sizeof forward};
    lathe_step_result step = {.size = sizeof step};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &forward));
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, &step));
    return step.loss;
}

static double train_loop(lathe_run *run)
{
    static char said[1 << 16];
    lathe_train_result result = {.step = 0};
    OK(train_said(run, said, sizeof said, &result));
    drop_run();
    return result.loss;
}

/* Returns NULL when a step trains, else the refusal. */
static const char *try_cell(const cell *c)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure(&s, c);
    if (open_run_status(LATHE_OPEN_TRAIN, s.list, &run) != LATHE_OK)
        return lathe_error_message();
    const int loops = c->stage && LATHE_HAS((const lathe_stage_v1 *)c->stage->table, iterate);
    const double loss = loops ? train_loop(run) : train_step(run);
    cr_expect(isfinite(loss), "a loss of %g", loss);
    lathe_run_close(run);
    return NULL;
}

/* ---- the page ---- */

typedef struct table {
    FILE *out;
    char refusals[26]
                 [MAX_WORDS]; /* of this table, called a, b, ... in the order in which they came */
    int32_t n_refusals;
} table;

/* Adds the words, with the test's own folder left out, unless they are there; returns their letter.
 */
static int letter_of(table *t, const char *refusal)
{
    char words[MAX_WORDS];
    int32_t k = 0;
    const char *place = strstr(refusal, dir);
    if (place)
        snprintf(words, sizeof words, "%.*s...%s", (int)(place - refusal), refusal,
                 place + strlen(dir));
    else
        snprintf(words, sizeof words, "%s", refusal);
    while (k < t->n_refusals && strcmp(t->refusals[k], words) != 0)
        k++;
    if (k == t->n_refusals) {
        cr_assert_lt(k, 26, "%s", words);
        strcpy(t->refusals[t->n_refusals++], words);
    }
    return 'a' + k;
}

static void write_cell(table *t, const cell *c)
{
    const char *refusal = try_cell(c);
    fprintf(t->out, refusal ? " %c |" : " yes |", refusal ? letter_of(t, refusal) : 0);
}

static void write_head(table *t, const char *title, const plugins *columns)
{
    fprintf(t->out, "\n### %s\n\n| |", title);
    for (int32_t j = 0; j < columns->n; j++)
        fprintf(t->out, " %s |", columns->list[j]->name);
    fprintf(t->out, "\n|---|");
    for (int32_t j = 0; j < columns->n; j++)
        fprintf(t->out, "---|");
    fprintf(t->out, "\n");
}

static void write_refusals(const table *t)
{
    for (int32_t k = 0; k < t->n_refusals; k++)
        fprintf(t->out, "%s- %c: %s\n", k ? "" : "\n", 'a' + k, t->refusals[k]);
}

/* The member of a cell that a table's rows or columns fill. */
typedef const lathe_plugin *cell_member;
#define MEMBER(c, offset) (*(cell_member *)(void *)((char *)(c) + (offset)))

/* A row for each of `rows` and a column for each of `columns`. */
static void write_table(FILE *out, const char *title, const cell *beside, size_t row,
                        const plugins *rows, size_t column, const plugins *columns)
{
    table *t = calloc(1, sizeof *t);
    t->out = out;
    write_head(t, title, columns);
    for (int32_t i = 0; i < rows->n; i++) {
        cell c = *beside;
        MEMBER(&c, row) = rows->list[i];
        fprintf(out, "| %s |", rows->list[i]->name);
        for (int32_t j = 0; j < columns->n; j++) {
            MEMBER(&c, column) = columns->list[j];
            write_cell(t, &c);
        }
        fprintf(out, "\n");
    }
    write_refusals(t);
    free(t);
}

static const lathe_plugin *named(const plugins *all, const char *name)
{
    for (int32_t i = 0; i < all->n; i++)
        if (strcmp(all->list[i]->name, name) == 0)
            return all->list[i];
    cr_assert(0, "no %s", name);
    return NULL;
}

#define FAMILY offsetof(cell, family)
#define METHOD offsetof(cell, method)
#define FORMAT offsetof(cell, format)
#define STAGE offsetof(cell, stage)

static void write_tables(FILE *out)
{
    const plugins families = all_of(LATHE_KIND_MODEL), methods = all_of(LATHE_KIND_ADAPTER);
    const plugins formats = all_of(LATHE_KIND_QUANT), stages = all_of(LATHE_KIND_STAGE);
    const cell plain = {.device = NULL}, lora = {.method = named(&methods, "lora")};
    write_table(out, "Families and methods", &plain, FAMILY, &families, METHOD, &methods);
    write_table(out, "Families and formats", &lora, FAMILY, &families, FORMAT, &formats);
    write_table(out, "Families and stages", &plain, FAMILY, &families, STAGE, &stages);
    write_table(out, "Methods and formats", &plain, METHOD, &methods, FORMAT, &formats);
    write_table(out, "Methods and stages", &plain, METHOD, &methods, STAGE, &stages);
    write_table(out, "Formats and stages", &lora, FORMAT, &formats, STAGE, &stages);
}

/* Lists the plugins of a kind that do not train on the emulated GPU, all else plain. */
static void write_gpu_line(table *t, const char *kind, const cell *beside, size_t member,
                           const plugins *all)
{
    int32_t n_trained = 0;
    for (int32_t i = 0; i < all->n; i++) {
        cell c = *beside;
        MEMBER(&c, member) = all->list[i];
        const char *refusal = try_cell(&c);
        if (refusal)
            fprintf(t->out, "- %s `%s`: %c\n", kind, all->list[i]->name, letter_of(t, refusal));
        n_trained += !refusal;
    }
    fprintf(t->out, "- %s: %d of %d train\n", kind, n_trained, all->n);
}

static void write_gpu(FILE *out)
{
    const plugins families = all_of(LATHE_KIND_MODEL), methods = all_of(LATHE_KIND_ADAPTER);
    const plugins formats = all_of(LATHE_KIND_QUANT), stages = all_of(LATHE_KIND_STAGE);
    const cell plain = {.device = "cuda"};
    const cell lora = {.device = "cuda", .method = named(&methods, "lora")};
    table *t = calloc(1, sizeof *t);
    t->out = out;
    write_gpu_line(t, "families", &plain, FAMILY, &families);
    write_gpu_line(t, "methods", &plain, METHOD, &methods);
    write_gpu_line(t, "formats, with LoRA,", &lora, FORMAT, &formats);
    write_gpu_line(t, "stages", &plain, STAGE, &stages);
    write_refusals(t);
    free(t);
}

static void put(const char *name, const char *record)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    cr_assert(f, "%s", path);
    for (int i = 0; i < 8; i++)
        fputs(record, f);
    fclose(f);
}

/* Makes the data, and a model with its tokenizer. */
static void prepare(void)
{
    settings s = {.n = 0};
    lathe_train_result result = {.step = 0};
    static char said[1 << 16];
    snprintf(dir, sizeof dir, "/tmp/lathe-support-XXXXXX");
    make_folder(dir, 1500);
    put("answers.jsonl", "{\"prompt\": \"the tool \", \"completion\": \"holds.\"}\n");
    put("pairs.jsonl",
        "{\"prompt\": \"the tool \", \"chosen\": \"holds.\", \"rejected\": \"turns.\"}\n");
    put("labels.jsonl",
        "{\"prompt\": \"the tool \", \"completion\": \"holds.\", \"label\": true}\n"
        "{\"prompt\": \"the tool \", \"completion\": \"turns.\", \"label\": false}\n");
    put("prompts.jsonl", "{\"prompt\": \"the tool \"}\n");
    const plugins families = all_of(LATHE_KIND_MODEL);
    set_family(&s, named(&families, "llama"));
    set(&s, "tokenizer.train={vocab_size = 280}");
    set_stage(&s, "pretrain");
    set_run(&s);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &result));
    snprintf(base, sizeof base, "%s/base", dir);
    cr_assert_eq(rename(result.checkpoint, base), 0, "%s", result.checkpoint);
    lathe_run_close(run);
    drop_run();
}

static void clean(void)
{
    OK(lathe_dir_remove(dir));
}

/* The page's text from its first "### " to "## CUDA", or from there to the end. */
static char *part_of(const char *path, int gpu)
{
    static char text[2][1 << 17];
    static int next;
    char *into = text[next++ % 2];
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s", path);
    into[fread(into, 1, sizeof text[0] - 1, f)] = '\0';
    fclose(f);
    char *cuda = strstr(into, "## CUDA"), *tables = strstr(into, "### ");
    cr_assert(cuda && tables && tables < cuda, "%s", path);
    *(gpu ? into : cuda) = '\0';
    return gpu ? strstr(cuda + 1, "- ") : tables;
}

Test(support_matrix, the_page_says_what_trains_and_what_is_refused, .init = prepare, .fini = clean)
{
    FILE *f = fopen(MADE, "w");
    cr_assert(f);
    write_tables(f);
    fprintf(f, "\n## CUDA\n\n");
    const int gpu = access(LATHE_TEST_BUILD "/tests/emulated/device/cuda.so", R_OK) == 0;
    if (gpu) {
        use_emulated_gpu(LATHE_TEST_BUILD);
        write_gpu(f);
    }
    cr_assert_eq(fclose(f), 0);
    cr_expect_str_eq(part_of(PAGE, 0), part_of(MADE, 0), "%s differs", MADE);
    if (gpu)
        cr_expect_str_eq(part_of(PAGE, 1), part_of(MADE, 1), "%s differs", MADE);
}

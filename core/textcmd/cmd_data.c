/* lathe data: describes a run's data, and shows its rows as the model will see them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/print.h"
#include "data/record_notes.h"
#include "data/shard_file.h"
#include "lathe/rng.h"
#include "opening/opening.h"
#include "records/layout.h"
#include "records/row_kind.h"
#include "run/iteration.h"
#include "run/run_state.h"
#include "textcmd/data_json.h"
#include "textcmd/sample_text.h"
#include "textcmd/text_commands.h"

static const lathe_option options[] = {
    {"--n", "N", "number of rows to show (default 2)"},
    {"--seed", "S",
     "choose the rows at random with this seed; otherwise the first rows of the training"},
    {"--split", "train|validation", "the split to show rows of (default train)"},
    {"--chars", "N", "maximum number of characters of a row (default 2000; 0: all)"},
    {"--json", NULL, "print one JSON object with the figures, without rows"},
};

/* ---- a folder of shards ---- */

static lathe_status put_shard(const char *path, const char *name, lathe_buffer *b, int64_t *bad)
{
    lathe_shard shard;
    lathe_shard_header h;
    int current = 0;
    lathe_status status = lathe__shard_peek(path, &h, &current);
    if (status == LATHE_OK && !current) {
        lathe_buffer_printf(b, "%-40s of another version; made again when it is needed\n", name);
        return LATHE_OK;
    }
    if (status == LATHE_OK)
        status = lathe__shard_open(path, 1, &shard);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK) {
        lathe_buffer_printf(b, "%-40s DAMAGED: %s\n", name, lathe_error_message());
        ++*bad;
        return LATHE_OK;
    }
    lathe_buffer_printf(
        b, "%-40s %9lld %12lld %12lld %6.2f  %s%s\n", name,
        (long long)(h.n_segments / lathe_row_kind_get(h.rows)->n_segments), (long long)h.n_tokens,
        (long long)h.source_bytes, h.n_tokens > 0 ? (double)h.text_bytes / (double)h.n_tokens : 0.0,
        lathe_row_kind_get(h.rows)->records, h.is_last ? ", last of its dataset" : "");
    lathe__shard_close(&shard);
    return LATHE_OK;
}

static lathe_status put_folder(const char *dir, lathe_buffer *b)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = 0, n_shards = 0, bad = 0;
    lathe_status status = lathe_dir_list(dir, &arena, &names, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        if (!lathe__shard_is_name(names[i]))
            continue;
        if (n_shards++ == 0)
            lathe_buffer_printf(b, "%-40s %9s %12s %12s %6s\n", "shard", "records", "tokens",
                                "from bytes", "B/tok");
        const char *path = lathe_path_join(&arena, dir, names[i]);
        status = path ? put_shard(path, names[i], b, &bad) : LATHE_E_NOMEM;
    }
    lathe_arena_fini(&arena);
    if (status == LATHE_OK && n_shards == 0)
        status =
            lathe_error(LATHE_E_CONFIG,
                        "%s: no shards in it; name a run file, or the data.cache_dir of one", dir);
    if (status == LATHE_OK && bad == 0)
        lathe_buffer_printf(b, "%lld shards, every SHA-256 agrees\n", (long long)n_shards);
    if (status == LATHE_OK && bad > 0)
        status = lathe_error(LATHE_E_CORRUPT, "%lld of %lld shards are damaged", (long long)bad,
                             (long long)n_shards);
    return status;
}

/* ---- a run ---- */

/* Tells what is left out of a dataset, and what is not written of it. */
static void put_causes(const lathe_shards *shards, const lathe_shards_set *set, lathe_buffer *b)
{
    for (int32_t why = 0; why < LATHE_N_LEFT; why++)
        if (set->counts.left[why].n > 0) {
            lathe_buffer_puts(b, "    left out: ");
            lathe_shards_put_left(shards, set, why, b);
            lathe_buffer_puts(b, "\n");
        }
    for (int32_t what = 0; what < LATHE_N_UNWRITTEN; what++)
        if (set->counts.unwritten[what].n > 0) {
            lathe_buffer_puts(b, "    ");
            lathe_shards_put_unwritten(shards, set, what, b);
            lathe_buffer_puts(b, "\n");
        }
    for (int32_t what = 0; what < LATHE_N_TOLD; what++)
        if (set->notes.told[what].n > 0 && !lathe_told_at_prepare(what)) {
            lathe_buffer_puts(b, "    ");
            lathe_shards_put_told(shards, set, what, b);
            lathe_buffer_puts(b, "\n");
        }
    if (set->notes.unread[0].name[0]) {
        lathe_buffer_puts(b, "    ");
        (void)lathe_shards_put_unread(set, b);
        lathe_buffer_puts(b, "\n");
    }
}

/* key: "datasets" or "validation". */
static lathe_status put_datasets(lathe_run *run, const char *key, const lathe_shards *shards,
                                 lathe_buffer *b)
{
    lathe_dataset *datasets = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_datasets_read(run->config, key, &run->arena, &datasets, &n));
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(shards));
    for (int64_t d = 0; d < n; d++) {
        const lathe_shards_set *set = lathe_shards_set_get(shards, d);
        lathe_buffer_printf(b, "  %-40s %9lld %-9s %11lld tokens", datasets[d].path,
                            (long long)(set->n_segments / kind->n_segments), kind->records,
                            (long long)set->n_tokens);
        if (set->weight != 1.0)
            lathe_buffer_printf(b, "  weight %g", set->weight);
        lathe_buffer_puts(b, "\n");
        if (set->counts.n_known > 0)
            lathe_buffer_printf(b, "    %lld %s\n", (long long)set->counts.n_known,
                                lathe_layout_known_text(lathe_shards_rows(shards)));
        if (set->counts.n_equal > 0) {
            lathe_buffer_printf(b, "    %lld %s: chosen and rejected are the same text",
                                (long long)set->counts.n_equal,
                                set->counts.n_equal == 1 ? "pair" : "pairs");
            lathe_data_put_places(shards, &set->counts.first_equal, 1, b);
            lathe_buffer_puts(b, set->counts.n_equal > 1 ? ", ...\n" : "\n");
        }
        put_causes(shards, set, b);
    }
    if (lathe_shards_left_out(shards))
        lathe_buffer_printf(b, "  %s\n", lathe_shards_left_out(shards));
    return b->status;
}

/* Tells of pairs and examples that do not fit in a row. The counts are those of both splits. */
static void put_long(const lathe_run *run, const lathe_loader_facts *f, const lathe_shards *shards,
                     lathe_buffer *b)
{
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(shards));
    if (f->n_left_out > 0) {
        lathe_buffer_printf(b, "  %lld %s left out, the prompt alone fills a row",
                            (long long)f->n_left_out,
                            f->n_left_out == 1 ? kind->record : kind->records);
        lathe_data_put_places(shards, f->left_out, f->n_left_out, b);
        lathe_buffer_puts(b, "\n");
    }
    if (f->n_same_cut > 0) {
        lathe_buffer_printf(b, "  %lld %s equal after the cut", (long long)f->n_same_cut,
                            f->n_same_cut == 1 ? kind->record : kind->records);
        lathe_data_put_places(shards, f->same_cut, f->n_same_cut, b);
        lathe_buffer_puts(b, "\n");
    }
    if (f->n_overlong > 0) {
        const char *fate =
            run->set.overlong == LATHE_OVERLONG_LEAVE_OUT ? "left out, longer than" : "cut after";
        lathe_buffer_printf(b, "  %lld %s %s %d tokens", (long long)f->n_overlong,
                            f->n_overlong == 1 ? kind->record : kind->records, fate,
                            run->set.seq_len);
        lathe_data_put_places(shards, f->overlong, f->n_overlong, b);
        lathe_buffer_puts(b, "\n");
    }
}

static void put_split(const lathe_run *run, const lathe_loader *loader, const lathe_shards *shards,
                      int trains, lathe_buffer *b)
{
    static const char *const packings[] = {"sequential", "multipack", "", "not packed"};
    const lathe_stage_v1 *stage = run->parts.stage.table;
    const lathe_row_kind *kind = lathe_row_kind_get(stage->rows);
    lathe_loader_facts f;
    lathe_loader_facts_get(loader, &f);
    lathe_buffer_printf(b, "  %lld %s, %lld tokens", (long long)f.n_documents,
                        f.n_documents == 1 ? kind->record : kind->records, (long long)f.n_tokens);
    if (f.text_bytes > 0 && f.n_overlong == 0) /* tokens that are cut off are not counted */
        lathe_buffer_printf(b, ", %.3f bytes per token", (double)f.text_bytes / (double)f.n_tokens);
    lathe_buffer_printf(b, "\n  %lld row%s of %d tokens", (long long)f.n_rows,
                        f.n_rows == 1 ? "" : "s", run->set.seq_len);
    if (!kind->is_padded)
        lathe_buffer_printf(b, ", %s, %.2f %% filled",
                            packings[lathe_packing(run->set.packing, stage->rows)], 100.0 * f.fill);
    lathe_buffer_puts(b, "\n");
    if (trains || run->data.validation_shards)
        put_long(run, &f, shards, b);
    if (!trains)
        return;
    if (lathe__run_iterates(run)) { /* the stage decides what a step takes */
        lathe_buffer_printf(b, "  an epoch: %lld prompt%s\n", (long long)f.n_places,
                            f.n_places == 1 ? "" : "s");
        return;
    }
    const int64_t accumulated = run->set.gradient_accumulation_steps;
    const int64_t n_steps = (lathe_loader_batches(loader, 1) + accumulated - 1) / accumulated;
    lathe_buffer_printf(
        b,
        "  an epoch: %lld row%s, %lld step%s; a step: %d micro-batch%s of %d row%s\n"
        "  the index of the rows takes %lld bytes of memory\n",
        (long long)f.n_places, f.n_places == 1 ? "" : "s", (long long)n_steps,
        n_steps == 1 ? "" : "s", run->set.gradient_accumulation_steps, accumulated == 1 ? "" : "es",
        run->set.micro_batch_size, run->set.micro_batch_size == 1 ? "" : "s",
        (long long)f.index_bytes);
}

static lathe_status put_summary(lathe_run *run, lathe_buffer *b)
{
    lathe_buffer_puts(b, "datasets\n");
    LATHE_TRY(put_datasets(run, "datasets", run->data.shards, b));
    lathe_buffer_puts(b, "training\n");
    put_split(run, run->data.loader, run->data.shards, 1, b);
    if (!run->data.validation)
        return b->status;
    lathe_buffer_puts(b, "validation\n");
    if (run->data.validation_shards)
        LATHE_TRY(put_datasets(run, "validation", run->data.validation_shards, b));
    put_split(run, run->data.validation,
              run->data.validation_shards ? run->data.validation_shards : run->data.shards, 0, b);
    return b->status;
}

/* Prints the stage's inputs of the batch's first row: "label 1". */
static void put_inputs(const lathe_run *run, const lathe_batch *batch, lathe_buffer *b)
{
    for (int32_t i = 0; i < run->data.n_columns; i++)
        if (run->data.inputs[i].per == LATHE_PER_ROW)
            lathe_buffer_printf(b, "%s %g\n", run->data.inputs[i].name,
                                (double)((const float *)batch->inputs[i])[0]);
}

/* Prints rows from the loader, each as the first row of a batch. */
static lathe_status put_rows(const lathe_run *run, lathe_loader *loader, int64_t n, int64_t seed,
                             const lathe_sample_style *style, lathe_buffer *b)
{
    const lathe_shards *shards = loader == run->data.validation && run->data.validation_shards
                                     ? run->data.validation_shards
                                     : run->data.shards;
    const int32_t eos = lathe_shards_eos(shards);
    const int32_t rows = lathe_shards_rows(shards);
    lathe_cursor cursor;
    lathe_loader_cursor(loader, &cursor);
    for (int64_t i = 0; i < n && i < cursor.rows_per_epoch; i++) {
        lathe_batch batch;
        cursor.index = i;
        if (seed >= 0) {
            const lathe_u32x4 word = lathe_rng_block((uint64_t)seed, 0, 0x64617461, (uint64_t)i);
            const uint64_t x = (uint64_t)word.v[0] << 32 | word.v[1];
            cursor.index = (int64_t)(x % (uint64_t)cursor.rows_per_epoch);
        }
        LATHE_TRY(lathe_loader_seek(loader, &cursor));
        LATHE_TRY(lathe_loader_next(loader, &batch));
        lathe_buffer_printf(b, "\n== row %lld of the epoch%s\n", (long long)cursor.index,
                            rows == LATHE_ROWS_PAIRS ? ", chosen" : "");
        put_inputs(run, &batch, b);
        LATHE_TRY(lathe_app_sample(run->data.tokenizer, &batch, 0, eos, style, b));
        if (rows != LATHE_ROWS_PAIRS)
            continue;
        lathe_buffer_printf(b, "== row %lld of the epoch, rejected\n", (long long)cursor.index);
        LATHE_TRY(lathe_app_sample(run->data.tokenizer, &batch, batch.n_rows / 2, eos, style, b));
    }
    return b->status;
}

static lathe_status put_run(const lathe_args *args, lathe_run *run, lathe_buffer *b)
{
    const char *split = lathe_args_value(args, "--split");
    const int validates = split && strcmp(split, "validation") == 0;
    const int is_masked = run->data.objective.stage.kind == LATHE_OBJECTIVE_MASKED;
    lathe_sample_style style = {.colour = isatty(STDOUT_FILENO), .is_masked = is_masked};
    int64_t n, seed;
    LATHE_TRY(lathe_args_int(args, "--n", 0, 1000000, 2, &n));
    LATHE_TRY(lathe_args_int(args, "--seed", 0, INT64_MAX, -1, &seed));
    LATHE_TRY(lathe_args_int(args, "--chars", 0, INT64_MAX, 2000, &style.max_chars));
    if (split && !validates && strcmp(split, "train") != 0)
        return lathe_error(LATHE_E_ARG, "--split is \"%s\", expected train or validation", split);
    if (validates && !run->data.validation)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: there is no validation split: data.validation, "
                           "data.validation_split and data.validation_count are unset",
                           lathe_config_path(run->config));
    LATHE_TRY(put_summary(run, b));
    if (n > 0)
        lathe_buffer_puts(b, is_masked      ? "\nTargets stand in {shown=target}.\n"
                             : style.colour ? "\nText without loss is dimmed.\n"
                                            : "\nText without loss stands in [- -].\n");
    return put_rows(run, validates ? run->data.validation : run->data.loader, n, seed, &style, b);
}

static int run_command(const lathe_args *args)
{
    lathe_run *run = NULL;
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_status status;
    const int as_json = lathe_args_value(args, "--json") != NULL;
    int64_t n_damaged = 0;
    if (lathe_path_is_dir(args->words[0])) {
        status = as_json ? lathe_data_json_folder(args->words[0], &text, &n_damaged)
                         : put_folder(args->words[0], &text);
    } else {
        status = lathe_run_open_mode(args->words[0], args->overrides, args->n_overrides,
                                     LATHE_OPEN_DATA, &run);
        if (status == LATHE_OK)
            status = as_json ? lathe_data_json_run(run, &text) : put_run(args, run, &text);
    }
    if (text.data && (status == LATHE_OK || !as_json))
        lathe_print_styled(stdout, text.data, text.len);
    if (n_damaged > 0)
        lathe_print_to(stderr, "lathe data: %lld shards are damaged\n", (long long)n_damaged);
    const int code = status != LATHE_OK ? lathe_args_fail(args, status)
                     : n_damaged > 0    ? LATHE_EXIT_FAILED
                                        : LATHE_EXIT_OK;
    lathe_buffer_fini(&text);
    lathe_run_close(run);
    return code;
}

const lathe_command lathe_cmd_data = {
    .name = "data",
    .arguments = "RUN.toml|DIR",
    .summary = "show the data of a run: figures, and rows as the model gets them",
    .details = "Prepares the data of RUN.toml as training does, prints the number of\n"
               "documents, tokens, rows and steps of an epoch, and shows rows with their\n"
               "documents, positions and loss mask. Tokens without loss are dimmed on a\n"
               "terminal and stand in [- -] elsewhere; masked tokens stand in {shown=target}.\n"
               "If DIR is a folder of tokenised shards (data.cache_dir), each shard is listed\n"
               "and checked against its SHA-256.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_models = 1,
    .computes = 1,
    .takes_overrides = 1,
    .run = run_command,
};

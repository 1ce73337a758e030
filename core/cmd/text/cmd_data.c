/* lathe data: describes a run's data, and shows its rows as the model will see them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/print.h"
#include "cmd/text/data_json.h"
#include "cmd/text/sample_text.h"
#include "cmd/text/text_commands.h"
#include "data/records/layout.h"
#include "data/records/row_kind.h"
#include "data/rows/record_notes.h"
#include "data/rows/shard_file.h"
#include "lathe/rng.h"
#include "run/api/data_view.h"
#include "run/open/opening.h"

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
    if (status != LATHE_OK)
        return status;
    if (n_shards == 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: no shards in it; name a run file, or the data.cache_dir of one",
                           dir);
    if (bad > 0)
        return lathe_error(LATHE_E_CORRUPT, "%lld of %lld shards are damaged", (long long)bad,
                           (long long)n_shards);
    lathe_buffer_printf(b, "%lld shards, every SHA-256 agrees\n", (long long)n_shards);
    return LATHE_OK;
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

static lathe_status put_datasets(const lathe_data_split *split, lathe_buffer *b)
{
    const lathe_shards *shards = split->shards;
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(shards));
    for (int64_t d = 0; d < split->n_datasets; d++) {
        const lathe_shards_set *set = lathe_shards_set_get(shards, d);
        lathe_buffer_printf(b, "  %-40s %9lld %-9s %11lld tokens", split->datasets[d].path,
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
static void put_long(const lathe_data_view *view, const lathe_loader_facts *f,
                     const lathe_shards *shards, lathe_buffer *b)
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
            view->overlong == LATHE_OVERLONG_LEAVE_OUT ? "left out, longer than" : "cut after";
        lathe_buffer_printf(b, "  %lld %s %s %d tokens", (long long)f->n_overlong,
                            f->n_overlong == 1 ? kind->record : kind->records, fate,
                            view->row_tokens);
        lathe_data_put_places(shards, f->overlong, f->n_overlong, b);
        lathe_buffer_puts(b, "\n");
    }
}

static void put_split(const lathe_data_view *view, const lathe_data_split *split, int trains,
                      lathe_buffer *b)
{
    static const char *const packings[] = {"sequential", "multipack", "", "not packed"};
    const lathe_row_kind *kind = lathe_row_kind_get(view->rows);
    lathe_loader_facts f;
    lathe_loader_facts_get(split->loader, &f);
    lathe_buffer_printf(b, "  %lld %s, %lld tokens", (long long)f.n_documents,
                        f.n_documents == 1 ? kind->record : kind->records, (long long)f.n_tokens);
    if (f.text_bytes > 0 && f.n_overlong == 0) /* tokens that are cut off are not counted */
        lathe_buffer_printf(b, ", %.3f bytes per token", (double)f.text_bytes / (double)f.n_tokens);
    lathe_buffer_printf(b, "\n  %lld row%s of %d tokens", (long long)f.n_rows,
                        f.n_rows == 1 ? "" : "s", view->row_tokens);
    if (!lathe_row_shape_get(view->rows)->is_padded)
        lathe_buffer_printf(b, ", %s, %.2f %% filled", packings[view->packing], 100.0 * f.fill);
    lathe_buffer_puts(b, "\n");
    if (split->is_own)
        put_long(view, &f, split->shards, b);
    if (!trains)
        return;
    if (view->is_iterated) { /* the stage decides what a step takes */
        lathe_buffer_printf(b, "  an epoch: %lld prompt%s\n", (long long)f.n_places,
                            f.n_places == 1 ? "" : "s");
        return;
    }
    const int64_t accumulated = view->n_micro;
    const int64_t n_steps =
        (lathe_loader_batches(split->loader, 1) + accumulated - 1) / accumulated;
    lathe_buffer_printf(
        b,
        "  an epoch: %lld row%s, %lld step%s; a step: %d micro-batch%s of %d row%s\n"
        "  the index of the rows takes %lld bytes of memory\n",
        (long long)f.n_places, f.n_places == 1 ? "" : "s", (long long)n_steps,
        n_steps == 1 ? "" : "s", view->n_micro, accumulated == 1 ? "" : "es", view->n_rows,
        view->n_rows == 1 ? "" : "s", (long long)f.index_bytes);
}

static lathe_status put_summary(const lathe_data_view *view, lathe_buffer *b)
{
    lathe_buffer_puts(b, "datasets\n");
    LATHE_TRY(put_datasets(&view->training, b));
    lathe_buffer_puts(b, "training\n");
    put_split(view, &view->training, 1, b);
    if (!view->validation.loader)
        return b->status;
    lathe_buffer_puts(b, "validation\n");
    if (view->validation.is_own)
        LATHE_TRY(put_datasets(&view->validation, b));
    put_split(view, &view->validation, 0, b);
    return b->status;
}

/* Prints the stage's inputs of the batch's first row: "label 1". */
static void put_inputs(const lathe_data_view *view, const lathe_batch *batch, lathe_buffer *b)
{
    for (int32_t i = 0; i < view->n_inputs; i++)
        if (view->inputs[i].per == LATHE_PER_ROW)
            lathe_buffer_printf(b, "%s %g\n", view->inputs[i].name,
                                (double)((const float *)batch->inputs[i])[0]);
}

/* Ends the title of a row: which of several answers it has. */
static void put_answer_name(const lathe_row_kind *kind, int32_t a, lathe_buffer *b)
{
    if (kind->n_answers > 1 && kind->answers != NULL)
        lathe_buffer_printf(b, ", %s", lathe_column_name(kind->answers[a]));
    else if (kind->n_answers > 1)
        lathe_buffer_printf(b, ", answer %d", a + 1);
    lathe_buffer_puts(b, "\n");
}

/* Prints rows from the loader, each as the first row of a batch. */
static lathe_status put_rows(const lathe_data_view *view, const lathe_data_split *split, int64_t n,
                             int64_t seed, const lathe_sample_style *style, lathe_buffer *b)
{
    lathe_loader *const loader = split->loader;
    const int32_t eos = lathe_shards_eos(split->shards);
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(split->shards));
    const lathe_row_shape *shape = lathe_row_shape_get(lathe_shards_rows(split->shards));
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
        for (int32_t a = 0; a < 1 || a < shape->n_answers; a++) {
            lathe_buffer_printf(b, "%s== row %lld of the epoch", a == 0 ? "\n" : "",
                                (long long)cursor.index);
            put_answer_name(kind, a, b);
            if (a == 0)
                put_inputs(view, &batch, b);
            LATHE_TRY(lathe_app_sample(view->tokenizer, &batch, a * (batch.n_rows / shape->n_rows),
                                       eos, style, b));
        }
    }
    return b->status;
}

static lathe_status put_run(const lathe_args *args, lathe_run *run, lathe_buffer *b)
{
    const char *split = lathe_args_value(args, "--split");
    const int validates = split && strcmp(split, "validation") == 0;
    lathe_data_view view;
    LATHE_TRY(lathe_run_data_view(run, &view));
    const int is_masked = view.is_masked;
    lathe_sample_style style = {.colour = isatty(STDOUT_FILENO), .is_masked = is_masked};
    int64_t n, seed;
    LATHE_TRY(lathe_args_int(args, "--n", 0, 1000000, 2, &n));
    LATHE_TRY(lathe_args_int(args, "--seed", 0, INT64_MAX, -1, &seed));
    LATHE_TRY(lathe_args_int(args, "--chars", 0, INT64_MAX, 2000, &style.max_chars));
    if (split && !validates && strcmp(split, "train") != 0)
        return lathe_error(LATHE_E_ARG, "--split is \"%s\", expected train or validation", split);
    if (validates && !view.validation.loader)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: there is no validation split: data.validation, "
                           "data.validation_split and data.validation_count are unset",
                           args->words[0]);
    LATHE_TRY(put_summary(&view, b));
    if (n > 0)
        lathe_buffer_puts(b, is_masked      ? "\nTargets stand in {shown=target}.\n"
                             : style.colour ? "\nText without loss is dimmed.\n"
                                            : "\nText without loss stands in [- -].\n");
    return put_rows(&view, validates ? &view.validation : &view.training, n, seed, &style, b);
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
        status = lathe_run_open_for(&(lathe_run_source){args->words[0], &args->edits, NULL},
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

/* Logs notes on a run's data when the run starts for the first time. */
#include "run/parts/data_notes.h"

#include "base/fs.h"
#include "base/log.h"
#include "data/records/row_kind.h"
#include "data/rows/record_notes.h"
#include "run/parts/iteration.h"

/* Notes are logged at the first start of a run only. */
static int is_first_start(const lathe_run *run)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *dir = run->set.checkpoint.dir;
    const char *record = dir ? lathe_path_join(&arena, dir, "run.json") : NULL;
    const int is_first = !lathe__run_trains(run) || record == NULL || !lathe_path_exists(record);
    lathe_arena_fini(&arena);
    return is_first;
}

/* Warns of a step that has some rows more than once. */
static void warn_repeated_rows(const lathe_run *run, int64_t n_places)
{
    const int64_t step = (int64_t)run->set.micro_batch_size * run->set.gradient_accumulation_steps;
    if (lathe__run_trains(run) && step > n_places && !lathe__run_iterates(run))
        lathe__run_warn(run, "train", "micro_batch_size",
                        "a step takes %lld rows, and the data has %lld: each step has rows more "
                        "than once",
                        (long long)step, (long long)n_places);
}

/* Warns of an input, true or false, that has the same value in every record: a stage such as kto
 * then learns from one side only. A dry run has read too few records to say so. */
static void warn_one_sided(const lathe_run *run, int64_t n_rows)
{
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(run->data.shards));
    if (!lathe_row_shape_get(lathe_shards_rows(run->data.shards))->is_padded ||
        !lathe__run_trains(run) || lathe__run_is_dry(run) || n_rows < 2)
        return;
    for (int32_t i = 0; i < run->data.n_inputs; i++) {
        const lathe_stage_input *input = &run->data.inputs[i];
        int64_t n_true = 0;
        if (!input->is_boolean)
            continue;
        for (int64_t r = 0; r < n_rows; r++)
            n_true += lathe_shards_input(run->data.shards, lathe_loader_record(run->data.loader, r),
                                         i) != 0.0;
        if (n_true == 0 || n_true == n_rows)
            lathe__run_warn(run, "data", "datasets",
                            "the column \"%s\" (%s) is %s in all %lld %s to train on: stage \"%s\" "
                            "learns from one side only",
                            input->name, input->doc, n_true ? "true" : "false", (long long)n_rows,
                            kind->records, run->parts.stage.component->plugin->name);
    }
}

void lathe__data_notes(const lathe_run *run)
{
    lathe_loader_facts facts;
    lathe_loader_facts_get(run->data.loader, &facts);
    warn_repeated_rows(run, facts.n_places);
    if (!is_first_start(run))
        return;
    warn_one_sided(run, facts.n_rows);
    if (facts.is_cut)
        lathe_log_alike(LATHE_LOG_INFO,
                        "the data is one document: validation takes its last tokens");
    if (lathe__run_only_reads_data(run)) /* lathe data prints them */
        return;
    lathe_data_note_left_out(run->data.shards);
    lathe_data_note_sets(run->data.shards);
    lathe_data_note_long(run->data.shards, run->data.loader, run->set.overlong);
}

void lathe__data_notes_validation(const lathe_run *run)
{
    if (lathe__run_only_reads_data(run) || !is_first_start(run))
        return;
    lathe_data_note_left_out(run->data.validation_shards);
    lathe_data_note_sets(run->data.validation_shards);
    lathe_data_note_long(run->data.validation_shards, run->data.validation, run->set.overlong);
}

lathe_status lathe__data_check_overlong(const lathe_run *run, const lathe_loader *loader,
                                        const lathe_shards *shards)
{
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(shards));
    lathe_buffer places = LATHE_BUFFER_INIT;
    lathe_loader_facts f;
    lathe_loader_facts_get(loader, &f);
    const int64_t n = f.n_overlong + f.n_left_out;
    int64_t first[LATHE_ROW_EXAMPLES];
    if (run->set.overlong != LATHE_OVERLONG_ERROR || n == 0)
        return LATHE_OK;
    for (int64_t i = 0, a = 0, b = 0; i < n && i < LATHE_ROW_EXAMPLES; i++)
        first[i] = b == f.n_overlong || (a < f.n_left_out && f.left_out[a] < f.overlong[b])
                       ? f.left_out[a++]
                       : f.overlong[b++];
    lathe_data_put_places(shards, first, n, &places);
    const lathe_status status = lathe__run_refuse(
        run, "data", "overlong",
        "%lld %s %s longer than a row of data.seq_len = %d tokens%s; set data.seq_len higher, or "
        "data.overlong to \"cut\" or \"leave_out\"",
        (long long)n, n == 1 ? kind->record : kind->records, n == 1 ? "is" : "are",
        run->set.seq_len, places.data ? places.data : "");
    lathe_buffer_fini(&places);
    return status;
}

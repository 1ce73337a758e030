/* Logs notes on a run's data. */
#include "run/data_notes.h"

#include "base/fs.h"
#include "base/log.h"
#include "records/layout.h"
#include "records/row_kind.h"

/* Notes are logged at the first start of a run only. */
static int is_first_start(const lathe_run *run)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *dir = run->set.checkpoint.dir;
    const char *record = dir ? lathe_path_join(&arena, dir, "run.json") : NULL;
    const int is_first =
        run->open.mode != LATHE_OPEN_TRAIN || !record || !lathe_path_exists(record);
    lathe_arena_fini(&arena);
    return is_first;
}

/* Logs the files and records of the data that are not used. */
static void tell_left_out(const lathe_shards *shards)
{
    const char *files = lathe_shards_left_out(shards);
    if (files)
        lathe_log(LATHE_LOG_WARN, "%s", files);
    for (int64_t d = 0; d < lathe_shards_sets(shards); d++) {
        const lathe_shards_set *set = lathe_shards_set_get(shards, d);
        for (int32_t why = 0; why < LATHE_N_LEFT; why++) {
            lathe_buffer text = LATHE_BUFFER_INIT;
            if (set->counts.left[why].n == 0)
                continue;
            lathe_shards_put_left(shards, set, why, &text);
            lathe_log(LATHE_LOG_WARN, "left out: %s", text.data ? text.data : "");
            lathe_buffer_fini(&text);
        }
    }
}

void lathe_data_put_places(const lathe_shards *shards, const int64_t *list, int64_t n,
                           lathe_buffer *out)
{
    const char *path;
    int64_t line, k = 0;
    for (; k < n && k < LATHE_ROW_EXAMPLES && lathe_shards_where(shards, list[k], &path, &line);
         k++)
        lathe_buffer_printf(out, "%s%s:%lld", k ? ", " : ": ", path, (long long)line);
    lathe_buffer_puts(out, k > 0 && k < n ? ", ..." : "");
}

static const char *path_of(const lathe_shards *shards, const lathe_shards_set *set)
{
    int64_t n = 0;
    const lathe_source *list = lathe_shards_sources(shards, &n);
    return set->first_source < n ? list[set->first_source].path : "the data";
}

/* Logs, for each dataset, the layout that was found and pairs without a preference. */
static void tell_sets(const lathe_shards *shards)
{
    for (int64_t d = 0; d < lathe_shards_sets(shards); d++) {
        const lathe_shards_set *set = lathe_shards_set_get(shards, d);
        lathe_buffer places = LATHE_BUFFER_INIT;
        if (set->counts.n_known > 0)
            lathe_log(LATHE_LOG_INFO, "%s: %s", path_of(shards, set),
                      lathe_layout_known_text(lathe_shards_rows(shards)));
        lathe_data_put_places(shards, &set->counts.first_equal, set->counts.n_equal > 0, &places);
        if (set->counts.n_equal > 0)
            lathe_log(
                LATHE_LOG_WARN,
                "%lld pair%s of %s prefer%s nothing, because chosen and rejected are the same "
                "text%s%s",
                (long long)set->counts.n_equal, set->counts.n_equal == 1 ? "" : "s",
                path_of(shards, set), set->counts.n_equal == 1 ? "s" : "",
                places.data ? places.data : "", set->counts.n_equal > 1 ? ", ..." : "");
        lathe_buffer_fini(&places);
    }
}

/* Logs the number n of records and the places of the first ones; does nothing if n is 0. one,
 * many: the text for one record and for several. */
static void tell_records(const lathe_shards *shards, const int64_t *list, int64_t n,
                         const char *one, const char *many)
{
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(shards));
    lathe_buffer places = LATHE_BUFFER_INIT;
    if (n == 0)
        return;
    lathe_data_put_places(shards, list, n, &places);
    lathe_log(LATHE_LOG_WARN, "%lld %s %s%s", (long long)n, n == 1 ? kind->record : kind->records,
              n == 1 ? one : many, places.data ? places.data : "");
    lathe_buffer_fini(&places);
}

/* Logs the records that do not fit in a row. */
static void tell_long(const lathe_run *run, const lathe_loader *loader, const lathe_shards *shards)
{
    lathe_loader_facts f;
    lathe_loader_facts_get(loader, &f);
    if (run->set.overlong == LATHE_OVERLONG_ERROR)
        return;
    tell_records(shards, f.left_out, f.n_left_out,
                 "is left out, because its prompt alone fills a row of data.seq_len tokens",
                 "are left out, because their prompts alone fill a row of data.seq_len tokens");
    if (run->set.overlong == LATHE_OVERLONG_LEAVE_OUT)
        tell_records(shards, f.overlong, f.n_overlong,
                     "is left out, because it is longer than data.seq_len tokens",
                     "are left out, because they are longer than data.seq_len tokens");
    else
        tell_records(shards, f.overlong, f.n_overlong, "is cut after data.seq_len tokens",
                     "are cut after data.seq_len tokens");
}

void lathe__data_notes(const lathe_run *run)
{
    lathe_loader_facts facts;
    lathe_loader_facts_get(run->data.loader, &facts);
    if (!is_first_start(run))
        return;
    if (facts.is_cut)
        lathe_log(LATHE_LOG_INFO, "the data is one document: validation takes its last tokens");
    if (run->open.mode != LATHE_OPEN_TRAIN) /* lathe data prints them */
        return;
    tell_left_out(run->data.shards);
    tell_sets(run->data.shards);
    tell_long(run, run->data.loader, run->data.shards);
}

void lathe__data_notes_validation(const lathe_run *run)
{
    if (run->open.mode == LATHE_OPEN_DATA || !is_first_start(run))
        return;
    tell_sets(run->data.validation_shards);
    tell_long(run, run->data.validation, run->data.validation_shards);
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

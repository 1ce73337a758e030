/* Logs notes on the records of prepared data. */
#include "data/rows/record_notes.h"

#include "base/log.h"
#include "data/records/layout.h"
#include "data/records/row_kind.h"

void lathe_data_note_left_out(const lathe_shards *shards)
{
    const char *files = lathe_shards_left_out(shards);
    if (files)
        lathe_log_alike(LATHE_LOG_WARN, "%s", files);
    for (int64_t d = 0; d < lathe_shards_sets(shards); d++) {
        const lathe_shards_set *set = lathe_shards_set_get(shards, d);
        for (int32_t why = 0; why < LATHE_N_LEFT; why++) {
            lathe_buffer text = LATHE_BUFFER_INIT;
            if (set->counts.left[why].n == 0)
                continue;
            lathe_shards_put_left(shards, set, why, &text);
            lathe_log_alike(LATHE_LOG_WARN, "left out: %s", text.data ? text.data : "");
            lathe_buffer_fini(&text);
        }
        for (int32_t what = 0; what < LATHE_N_UNWRITTEN; what++) {
            lathe_buffer text = LATHE_BUFFER_INIT;
            if (set->counts.unwritten[what].n == 0)
                continue;
            lathe_shards_put_unwritten(shards, set, what, &text);
            lathe_log(LATHE_LOG_WARN, "%s", text.data ? text.data : "");
            lathe_buffer_fini(&text);
        }
    }
}

void lathe_data_put_places(const lathe_shards *shards, const int64_t *list, int64_t n,
                           lathe_buffer *out)
{
    const lathe_source *source;
    char place[1024];
    int64_t line, k = 0;
    for (; k < n && k < LATHE_ROW_EXAMPLES && lathe_shards_where(shards, list[k], &source, &line);
         k++)
        lathe_buffer_printf(out, "%s%s", k ? ", " : ": ",
                            lathe_source_place_text(source, line, place, sizeof place));
    lathe_buffer_puts(out, k > 0 && k < n ? ", ..." : "");
}

static const char *path_of(const lathe_shards *shards, const lathe_shards_set *set)
{
    int64_t n = 0;
    const lathe_source *list = lathe_shards_sources(shards, &n);
    return set->first_source < n ? list[set->first_source].path : "the data";
}

/* Logs what is told of records that are used, and the fields that nothing reads. */
static void note_told(const lathe_shards *shards, const lathe_shards_set *set)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    for (int32_t what = 0; what < LATHE_N_TOLD; what++) {
        if (set->notes.told[what].n == 0 || lathe_told_at_prepare(what))
            continue;
        text.len = 0;
        lathe_shards_put_told(shards, set, what, &text);
        lathe_log_alike(what == LATHE_TOLD_CONTINUED ? LATHE_LOG_INFO : LATHE_LOG_WARN, "%s",
                        text.data ? text.data : "");
    }
    text.len = 0;
    if (set->notes.unread[0].name[0]) {
        const int means = lathe_shards_put_unread(set, &text);
        lathe_log_alike(means ? LATHE_LOG_WARN : LATHE_LOG_INFO, "%s: %s", path_of(shards, set),
                        text.data ? text.data : "");
    }
    lathe_buffer_fini(&text);
}

void lathe_data_note_sets(const lathe_shards *shards)
{
    for (int64_t d = 0; d < lathe_shards_sets(shards); d++) {
        const lathe_shards_set *set = lathe_shards_set_get(shards, d);
        const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(shards));
        lathe_buffer places = LATHE_BUFFER_INIT;
        if (set->counts.n_known > 0)
            lathe_log_alike(LATHE_LOG_INFO, "%s: %s", path_of(shards, set),
                            lathe_layout_known_text(lathe_shards_rows(shards)));
        lathe_data_put_places(shards, &set->counts.first_equal, set->counts.n_equal > 0, &places);
        if (set->counts.n_equal > 0)
            lathe_log_alike(LATHE_LOG_WARN, "%lld %s of %s prefer%s nothing, because %s%s%s",
                            (long long)set->counts.n_equal,
                            set->counts.n_equal == 1 ? kind->record : kind->records,
                            path_of(shards, set), set->counts.n_equal == 1 ? "s" : "",
                            kind->all_equal, places.data ? places.data : "",
                            set->counts.n_equal > 1 ? ", ..." : "");
        lathe_buffer_fini(&places);
        note_told(shards, set);
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
    lathe_log_alike(LATHE_LOG_WARN, "%lld %s %s%s", (long long)n,
                    n == 1 ? kind->record : kind->records, n == 1 ? one : many,
                    places.data ? places.data : "");
    lathe_buffer_fini(&places);
}

void lathe_data_note_long(const lathe_shards *shards, const lathe_loader *loader, int32_t overlong)
{
    lathe_loader_facts f;
    lathe_loader_facts_get(loader, &f);
    if (overlong == LATHE_OVERLONG_ERROR)
        return;
    tell_records(shards, f.left_out, f.n_left_out,
                 "is left out, because its prompt alone fills a row of data.seq_len tokens",
                 "are left out, because their prompts alone fill a row of data.seq_len tokens");
    if (overlong == LATHE_OVERLONG_LEAVE_OUT)
        tell_records(shards, f.overlong, f.n_overlong,
                     "is left out, because it is longer than data.seq_len tokens",
                     "are left out, because they are longer than data.seq_len tokens");
    else
        tell_records(shards, f.overlong, f.n_overlong, "is cut after data.seq_len tokens",
                     "are cut after data.seq_len tokens");
    if (overlong == LATHE_OVERLONG_CUT)
        tell_records(shards, f.same_cut, f.n_same_cut,
                     "prefers nothing once it is cut, because its rows differ only after "
                     "data.seq_len tokens",
                     "prefer nothing once they are cut, because their rows differ only after "
                     "data.seq_len tokens");
}

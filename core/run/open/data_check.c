/* Checks the datasets against the stage before they are tokenised: the kind of each, its columns,
 * its first record. */
#include "run/open/data_check.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "data/records/record_json.h"
#include "data/records/record_reader.h"
#include "data/records/row_kind.h"
#include "run/parts/reward_records.h"
#include "run/state/run_state.h"

/* One dataset and its place in the file. */
typedef struct place {
    const lathe_run *run;
    const char *key; /* "data.datasets" */
    int64_t index;
} place;

static const char *stage_name(const lathe_instance *stage)
{
    return stage->component ? stage->component->plugin->name : "pretrain";
}

static lathe_status check_columns(const place *p, const lathe_dataset *set, int32_t type,
                                  int32_t rows)
{
    char inner[64];
    for (int32_t k = 0; k < 2 * LATHE_N_COLUMNS; k++) {
        const int is_format = k >= LATHE_N_COLUMNS;
        const int32_t c = k % LATHE_N_COLUMNS;
        if (is_format ? set->formats[c] == NULL : set->columns[c] == NULL)
            continue;
        (void)snprintf(inner, sizeof inner, "%s.%s", is_format ? "format" : "columns",
                       lathe_column_name(c));
        if (type == LATHE_DATASET_TEXT)
            return lathe__run_refuse_in(p->run, p->key, p->index, inner,
                                        "%s: %s no effect on plain text, whose files are "
                                        "documents: set type = \"jsonl\", \"json\" or \"csv\", or "
                                        "take %s out",
                                        p->key, is_format ? "format has" : "columns have",
                                        is_format ? "format" : "columns");
        if (lathe_row_kind_get(rows)->need[c] == LATHE_COLUMN_UNUSED)
            return lathe__run_refuse_in(
                p->run, p->key, p->index, inner, "%s: %s has no effect: stage \"%s\" reads %s",
                p->key, inner, stage_name(&p->run->parts.stage), lathe_row_kind_get(rows)->columns);
    }
    if (set->messages && (type == LATHE_DATASET_CSV || type == LATHE_DATASET_TEXT))
        return lathe__run_refuse_in(p->run, p->key, p->index, "columns.messages",
                                    "%s: columns.messages has no effect on %s: conversations are "
                                    "read from type = \"jsonl\" or \"json\"",
                                    p->key, type == LATHE_DATASET_CSV ? "CSV" : "plain text");
    if (set->as_chat > 0 && (rows == LATHE_ROWS_PACKED || type == LATHE_DATASET_TEXT))
        return lathe__run_refuse_in(p->run, p->key, p->index, "chat",
                                    "%s: chat has no effect on documents, which have no prompt and "
                                    "no answer: take it out, or choose a stage such as sft",
                                    p->key);
    const lathe_status status = lathe_layouts_check(set, rows, inner);
    if (status == LATHE_OK || status == LATHE_E_NOMEM)
        return status;
    return lathe__run_refuse_in(p->run, p->key, p->index, inner, "%s.%s", p->key,
                                lathe_error_message());
}

/* Asks the rewards of the run whether they can use the record. */
static lathe_status check_rewards(const place *p, const lathe_reader *reader,
                                  const lathe_record *record, int32_t rows)
{
    const lathe_run *run = p->run;
    lathe_buffer json = LATHE_BUFFER_INIT;
    if (run->rewards == NULL || !lathe_row_kind_get(rows)->has_records)
        return LATHE_OK;
    lathe_status status = lathe_record_json(reader, record, &json);
    if (status == LATHE_OK)
        status = lathe__reward_check_record(run, &reader->sources->list[record->file],
                                            lathe_record_at(reader->sources, record), json.data,
                                            json.len);
    lathe_buffer_fini(&json);
    return status;
}

/* Reads the first record. If it lacks a column, the message names the file and the columns that it
 * has. */
static lathe_status check_record(const place *p, const lathe_dataset *set,
                                 const lathe_sources *sources, int32_t rows)
{
    const lathe_source_place begin = {.line = 1};
    lathe_reader reader;
    lathe_fields fields;
    memset(&fields, 0, sizeof fields);
    lathe_status status = lathe_reader_init(&reader, set, sources, rows, &begin);
    lathe_status rewarded = LATHE_OK;
    reader.cut_text = 1;
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_reader_batch(&reader, 1)) != LATHE_OK)
        goto out;
    if (reader.n > 0 && (status = lathe_fields_read(&fields, &reader, &reader.list[0])) != LATHE_OK)
        goto out;
    if (reader.n > 0)
        rewarded = check_rewards(p, &reader, &reader.list[0], rows);
out:
    lathe_fields_fini(&fields);
    lathe_reader_fini(&reader);
    if (status == LATHE_OK)
        return rewarded;
    if (status == LATHE_E_NOMEM)
        return status;
    return lathe__run_refuse_said(p->run, p->key, p->index, "path");
}

static lathe_status check_set(const place *p, const lathe_dataset *set, int32_t rows,
                              lathe_arena *arena)
{
    lathe_sources sources;
    const lathe_status status = lathe_sources_list(set, arena, &sources);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK)
        return lathe__run_refuse_said(p->run, p->key, p->index, "path");
    if (rows != LATHE_ROWS_PACKED && sources.type == LATHE_DATASET_TEXT)
        return lathe__run_refuse_in(
            p->run, p->key, p->index, set->type == LATHE_DATASET_AUTO ? "path" : "type",
            "stage \"%s\" reads %s, with the columns %s, and %s is plain "
            "text: give files of type jsonl, json or csv, or of a reader plugin (Parquet)%s%s",
            stage_name(&p->run->parts.stage), lathe_row_kind_get(rows)->records,
            lathe_row_kind_get(rows)->columns, set->path, sources.left_out ? "; " : "",
            sources.left_out ? sources.left_out : "");
    LATHE_TRY(check_columns(p, set, sources.type, rows));
    return check_record(p, set, &sources, rows);
}

/* Adds the first error of each dataset. key: "datasets" or "validation". */
static lathe_status check_list(const lathe_run *run, const char *key, lathe_arena *arena)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    const char *full = lathe_arena_printf(arena, "data.%s", key);
    const int32_t rows = lathe_rows_of(stage);
    lathe_stage_input inputs[LATHE_MAX_STAGE_INPUTS];
    lathe_dataset *sets = NULL;
    int64_t n = 0;
    lathe_status first = LATHE_OK;
    if (full == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_datasets_read(run->config, key, arena, &sets, &n));
    const int32_t n_inputs = lathe_stage_columns(stage, inputs);
    for (int64_t i = 0; i < n && (first == LATHE_OK || run->open.diags); i++) {
        const place p = {run, full, i};
        sets[i].inputs = inputs;
        sets[i].n_inputs = n_inputs;
        const lathe_status status = check_set(&p, &sets[i], rows, arena);
        first = first != LATHE_OK ? first : status;
    }
    return first;
}

lathe_status lathe__data_check(lathe_run *run)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *validation = run->set.validation;
    lathe_status status = LATHE_OK;
    if (run->set.datasets && lathe__run_reads_datasets(run))
        status = check_list(run, "datasets", &arena);
    if (validation && (status == LATHE_OK || run->open.diags)) {
        const lathe_status other = check_list(run, "validation", &arena);
        status = status != LATHE_OK ? status : other;
    }
    lathe_arena_fini(&arena);
    return status;
}

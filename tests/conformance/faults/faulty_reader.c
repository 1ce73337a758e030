/* Reads files that begin with "RECS\n" and have a text on each further line, with one fault. A
 * record has the text and its length; the offset of a record is that of the next line. */
#define FAULT_N_FIELDS (IS(has_keys) ? 2 : 0)
#include "fault.h"

#include "lathe/reader.h"

typedef struct opened {
    const lathe_host *host;
    char *text;
    int64_t n, at;
    int has_text, has_length, has_ended, n_read;
    char record[512];
} opened;

static opened *latest;

static lathe_status load(instance *x, const lathe_reader_file *file, opened *o)
{
    o->text = calloc(1, (size_t)file->bytes + 1);
    if (IS(moves_the_offset))
        o->n = read(file->fd, o->text, (size_t)file->bytes);
    else
        o->n = pread(file->fd, o->text, (size_t)file->bytes, 0);
    if (IS(crashes_on_short_files) && o->n < 20)
        crash();
    if (o->n < 5 || memcmp(o->text, "RECS\n", 5) != 0)
        return IS(fails_without_a_message) ? LATHE_E_PARSE
                                           : lathe_fail(x->host, LATHE_E_PARSE, "not RECS");
    return LATHE_OK;
}

static void close_file(void *self)
{
    opened *o = self;
    if (o == NULL)
        return;
    free(o->text);
    free(o);
}

static lathe_status open_file(void *self, const lathe_reader_file *file, void **out)
{
    instance *x = self;
    misbehave(x->host);
    opened *o = calloc(1, sizeof *o);
    latest = o;
    o->host = x->host;
    const lathe_status status = load(x, file, o);
    if (status != LATHE_OK) {
        close_file(o);
        return status;
    }
    o->at = file->offset == 0 || IS(restarts_at_the_beginning) ? 5 : file->offset;
    if (IS(skips_a_record_when_it_continues) && file->offset > 0)
        o->at += (int64_t)strcspn(o->text + o->at, "\n") + 1;
    o->has_text = o->has_length = file->wants_all;
    for (int32_t i = 0; i < file->n_columns; i++) {
        o->has_text |= strcmp(file->columns[i], "text") == 0;
        o->has_length |= strcmp(file->columns[i], "length") == 0 && !IS(loses_a_chosen_column);
        if (IS(refuses_other_columns) && file->columns[i][0] == 'a') {
            close_file(o);
            return lathe_fail(x->host, LATHE_E_CONFIG, "no such column");
        }
    }
    if (IS(closes_the_descriptor))
        close(file->fd);
    *out = o;
    return LATHE_OK;
}

static const char *column(const void *self, int32_t i)
{
    static const char *const names[] = {"text", "length"};
    (void)self;
    if (IS(column_hangs))
        hang();
    if (IS(names_columns_for_ever) && i >= 0)
        return names[i % 2];
    return i < (IS(hides_a_column) ? 1 : 2) ? names[i] : NULL;
}

static lathe_status next(void *self, lathe_reader_row *out)
{
    opened *o = IS(reads_the_latest_file) ? latest : self;
    *out = (lathe_reader_row){0};
    const int64_t n = (int64_t)strcspn(o->text + o->at, "\n");
    if (IS(never_ends) && o->at >= o->n)
        o->at = 5;
    if (o->at >= o->n) {
        if (IS(begins_again_after_the_end))
            o->at = 5;
        return LATHE_OK;
    }
    if (IS(drops_the_last_record) && o->at + n + 1 >= o->n)
        return LATHE_OK;
    if (n > 100)
        return lathe_fail(o->host, LATHE_E_PARSE, "a line of more than 100 bytes");
    for (int64_t i = 0; i < n; i++)
        if (o->text[o->at + i] < ' ' || strchr("\"\\", o->text[o->at + i]) != NULL)
            return lathe_fail(o->host, LATHE_E_PARSE, "line with a byte that is no letter");
    strcpy(o->record, "{");
    if (o->has_text)
        sprintf(o->record + 1, "\"text\": \"%.*s\"%s", (int)n, o->text + o->at,
                o->has_length ? ", " : "");
    if (o->has_length)
        sprintf(o->record + strlen(o->record), "\"length\": %d", (int)n);
    if (!IS(writes_half_an_object))
        strcat(o->record, "}");
    o->at += n + 1;
    *out = (lathe_reader_row){o->record, (int64_t)strlen(o->record), o->at};
    if (IS(offset_of_zero))
        out->offset = 0;
    return LATHE_OK;
}

static const lathe_reader_magic magics[] = {
    {"RECS", "RECS\n", IS(magic_of_no_bytes) ? 0 : 5, 0},
};

static const lathe_reader_v1 table = {
    .size = IS(table_too_short) ? 16 : sizeof table,
    .revision = LATHE_READER_REVISION,
    .suffixes = IS(suffix_without_a_period) ? "recs" : ".recs .records",
    .magics = magics,
    .n_magics = 1,
    .open = open_file,
    .column = column,
    .next = IS(null_next) ? NULL : next,
    .close = close_file,
};

FAULTY_PLUGIN(LATHE_KIND_READER, LATHE_READER_REVISION, &table);

/* Reads prompts from a file of JSON lines. Memory: the longest line. */
#include "app/prompt_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/log.h"
#include "dialog/chat_record.h"
#include "records/record_keys.h"
#include "run/named_adapters.h"
#include "run/run_state.h"

/* Refuses a file that begins with bytes that no text has, such as Parquet. */
static lathe_status check_is_text(const lathe_prompt_file *f)
{
    unsigned char head[16];
    const size_t n = fread(head, 1, sizeof head, f->file);
    for (size_t i = 0; i < n; i++)
        if (iscntrl(head[i]) && !isspace(head[i]))
            return lathe_error(LATHE_E_CONFIG,
                               "%s: expected JSON lines, and this is a binary file (byte %zu is "
                               "0x%02x); prompts of Parquet, Arrow or compressed files must be "
                               "written as lines first: {\"prompt\": \"text\"}",
                               f->path, i, head[i]);
    if (ferror(f->file) || fseeko(f->file, 0, SEEK_SET) != 0)
        return lathe_error(LATHE_E_IO, "%s: cannot read: %s", f->path, strerror(errno));
    return LATHE_OK;
}

lathe_status lathe_prompt_file_open(const char *path, lathe_run *run, lathe_prompt_file *out)
{
    struct stat st;
    *out = (lathe_prompt_file){.path = path, .run = run, .adapter = -1, .usual_adapter = -1};
    if (run && run->named)
        out->usual_adapter = run->named->used;
    if (stat(path, &st) != 0)
        return lathe_error(LATHE_E_IO, "%s: cannot read: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) /* a file that is read again to resume */
        return lathe_error(LATHE_E_CONFIG, "%s: expected a regular file of JSON lines", path);
    out->file = fopen(path, "re");
    if (!out->file)
        return lathe_error(LATHE_E_IO, "%s: cannot read: %s", path, strerror(errno));
    const lathe_status status = check_is_text(out);
    if (status != LATHE_OK)
        lathe_prompt_file_close(out);
    return status;
}

static void forget(lathe_prompt_file *f)
{
    free(f->prompt);
    json_decref(f->id);
    f->prompt = NULL;
    f->ids.n = 0;
    f->id = NULL;
}

void lathe_prompt_file_close(lathe_prompt_file *f)
{
    forget(f);
    free(f->text);
    lathe_ids_fini(&f->ids);
    lathe_encoder_destroy(f->encoder);
    if (f->file)
        (void)fclose(f->file);
    memset(f, 0, sizeof *f);
}

lathe_status lathe_prompt_file_seek(lathe_prompt_file *f, int64_t start, int64_t line)
{
    forget(f);
    f->line = line - 1;
    f->end = start;
    return fseeko(f->file, start, SEEK_SET) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_IO, "%s: cannot read: %s", f->path, strerror(errno));
}

lathe_status lathe_prompt_file_rewind(lathe_prompt_file *f)
{
    return lathe_prompt_file_seek(f, 0, 1);
}

/* Reads the next line that is not empty. *out_bytes -1: the file has ended. */
static lathe_status next_line(lathe_prompt_file *f, int64_t *out_bytes)
{
    for (;;) {
        const ssize_t n = getline(&f->text, &f->room, f->file);
        *out_bytes = n;
        f->start = f->end;
        f->end += n > 0 ? n : 0;
        if (n < 0)
            return ferror(f->file)
                       ? lathe_error(LATHE_E_IO, "%s: cannot read: %s", f->path, strerror(errno))
                       : LATHE_OK;
        f->line++;
        for (ssize_t i = 0; i < n; i++)
            if (!isspace((unsigned char)f->text[i]))
                return LATHE_OK;
    }
}

lathe_status lathe_prompt_file_skip(lathe_prompt_file *f, int64_t n)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < n && bytes >= 0; i++)
        LATHE_TRY(next_line(f, &bytes));
    return LATHE_OK;
}

static lathe_status wrong(const char *place)
{
    return lathe_error(LATHE_E_CONFIG,
                       "%s: expected {\"prompt\": \"text\"}, {\"messages\": [...]}, {\"ids\": [1, "
                       "2]} or a text",
                       place);
}

static lathe_status take_ids(lathe_prompt_file *f, const char *place, const json_t *list)
{
    const size_t n = json_array_size(list);
    LATHE_TRY(lathe_ids_reserve(&f->ids, (int64_t)n));
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return lathe_error(LATHE_E_CONFIG, "%s: \"ids\" holds a value that is no token id",
                               place);
        f->ids.data[f->ids.n++] = (int32_t)value;
    }
    return n > 0 ? LATHE_OK : lathe_error(LATHE_E_CONFIG, "%s: \"ids\" is empty", place);
}

static lathe_status take_text(lathe_prompt_file *f, const char *place, const char *text)
{
    f->prompt = strdup(text);
    return f->prompt ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "%s", place);
}

/* Names the keys of a line that have no effect, of the first line that has any. A prompt's own
 * parts are worth a warning; other keys describe it. */
static void note_unread(lathe_prompt_file *f, const char *place, json_t *row,
                        const lathe_record_uses *uses)
{
    const uint32_t parts = LATHE_RECORD_IS_TALK | LATHE_RECORD_IS_SYSTEM | LATHE_RECORD_IS_BESIDE |
                           LATHE_RECORD_IS_ALPACA;
    lathe_buffer list = LATHE_BUFFER_INIT;
    const char *key;
    json_t *value;
    int means = 0;
    if (f->has_noted)
        return;
    json_object_foreach(row, key, value)
    {
        const int64_t n = (int64_t)strlen(key);
        const lathe_json_string name = {key, n, n, 0, 0};
        if (json_is_null(value) || lathe_record_is_used(uses, &name))
            continue;
        lathe_buffer_puts(&list, list.len > 0 ? ", " : "");
        lathe_buffer_json_string(&list, key);
        means |= (lathe_record_key_where(key) & parts) != 0;
    }
    f->has_noted = list.len > 0;
    if (list.len > 0 && list.status == LATHE_OK)
        lathe_log(means ? LATHE_LOG_WARN : LATHE_LOG_INFO, "%s: nothing reads %s", place,
                  list.data);
    lathe_buffer_fini(&list);
}

static lathe_status take_messages(lathe_prompt_file *f, const char *place, json_t *row,
                                  lathe_record_uses *uses)
{
    const lathe_chat_template *chat = NULL;
    json_t *messages = json_object_get(row, LATHE_RECORD_MESSAGES);
    lathe_chat_use_row(row, uses);
    LATHE_TRY(lathe_chat_add_system(place, row, messages, uses));
    LATHE_TRY(lathe_app_chat_template(f->run, place, &chat));
    if (!f->encoder)
        LATHE_TRY(lathe_encoder_create(f->run->data.tokenizer, &f->encoder));
    return lathe_app_chat_prompt(chat, place, row, f->encoder, &f->ids);
}

/* Takes the adapter that the line names. */
static lathe_status take_adapter(lathe_prompt_file *f, const char *place, const json_t *row)
{
    const json_t *name = json_object_get(row, "adapter");
    if (name && !f->run->named && !f->has_warned) {
        lathe_log(LATHE_LOG_WARN,
                  "%s: \"adapter\" has no effect: the command has no --adapter NAME=FOLDER", place);
        f->has_warned = 1;
    }
    if (!f->run->named || !name || json_is_null(name))
        return LATHE_OK;
    if (!json_is_string(name))
        return lathe_error(LATHE_E_CONFIG, "%s: \"adapter\" is no text; expected a name", place);
    const lathe_status status =
        lathe__named_adapters_find(f->run->named, json_string_value(name), &f->adapter);
    return status == LATHE_OK ? LATHE_OK
                              : lathe_error_context(LATHE_E_CONFIG, "%s: \"adapter\"", place);
}

/* The prompt of an object: its ids, its text, or its messages. */
static lathe_status take_object(lathe_prompt_file *f, const char *place, json_t *row,
                                lathe_record_uses *uses)
{
    json_t *ids = json_object_get(row, "ids"), *prompt = json_object_get(row, "prompt");
    f->id = json_incref(lathe_record_take(row, uses, "id"));
    lathe_record_use(uses, "adapter");
    if (json_is_array(ids)) {
        lathe_record_use(uses, "ids");
        return take_ids(f, place, ids);
    }
    if (json_is_string(prompt) || json_is_array(prompt))
        lathe_record_use(uses, "prompt");
    else
        lathe_record_use(uses, LATHE_RECORD_MESSAGES);
    if (json_is_string(prompt))
        return take_text(f, place, json_string_value(prompt));
    if (json_is_array(prompt)) {
        const json_t *other = json_object_get(row, LATHE_RECORD_MESSAGES);
        if (other == NULL || json_is_null(other)) /* else they are unread */
            lathe_record_use(uses, LATHE_RECORD_MESSAGES);
        if (json_object_set(row, LATHE_RECORD_MESSAGES, prompt) != 0)
            return lathe_error(LATHE_E_NOMEM, "%s", place);
    }
    return json_is_array(json_object_get(row, LATHE_RECORD_MESSAGES))
               ? take_messages(f, place, row, uses)
               : wrong(place);
}

static lathe_status take_prompt(lathe_prompt_file *f, const char *place, json_t *row)
{
    lathe_record_uses uses = {.n = 0};
    f->adapter = f->usual_adapter;
    LATHE_TRY(take_adapter(f, place, row));
    if (json_is_string(row))
        return take_text(f, place, json_string_value(row));
    LATHE_TRY(take_object(f, place, row, &uses));
    note_unread(f, place, row, &uses);
    return LATHE_OK;
}

lathe_status lathe_prompt_file_next(lathe_prompt_file *f, int32_t *out_more)
{
    char place[4096 + 32];
    int64_t bytes = 0;
    json_t *row = NULL;
    forget(f);
    *out_more = 0;
    LATHE_TRY(next_line(f, &bytes));
    if (bytes < 0)
        return LATHE_OK;
    (void)snprintf(place, sizeof place, "%.4096s:%lld", f->path, (long long)f->line);
    /* Files from Windows may begin with a byte order mark. */
    const int64_t mark = f->line == 1 && strncmp(f->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    const int64_t n_nan = lathe_json_count_nan(f->text + mark, bytes - mark);
    char *clean = n_nan > 0 ? malloc((size_t)(bytes + n_nan)) : NULL;
    if (n_nan > 0 && !clean)
        return lathe_error(LATHE_E_NOMEM, "%s", place);
    const int64_t n =
        clean ? lathe_json_nulls_for_nan(f->text + mark, bytes - mark, clean) : bytes - mark;
    lathe_status status = lathe_json_load_line(place, clean ? clean : f->text + mark, n, 0, &row);
    free(clean);
    if (status == LATHE_OK)
        status = take_prompt(f, place, row);
    json_decref(row);
    *out_more = status == LATHE_OK;
    return status;
}

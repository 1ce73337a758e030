/* Reads prompts from a file of JSON lines. Memory: the longest line. */
#include "cmd/main/prompt_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/json/json_walk.h"
#include "base/log.h"
#include "data/conversation/chat_record.h"
#include "data/records/record_keys.h"
#include "run/parts/named_adapters.h"
#include "session/session_state.h"

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

lathe_status lathe_prompt_file_open(const char *path, lathe_session *session,
                                    lathe_prompt_file *out)
{
    struct stat st;
    *out =
        (lathe_prompt_file){.path = path, .session = session, .adapter = -1, .usual_adapter = -1};
    if (session)
        out->named = lathe__run_named(lathe_session_run(session));
    if (out->named)
        out->usual_adapter = out->named->used;
    if (stat(path, &st) != 0)
        return lathe_error(LATHE_E_IO, "%s: cannot read: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) /* a file that is read again to resume */
        return lathe_error(LATHE_E_CONFIG, "%s: expected a regular file of JSON lines", path);
    LATHE_TRY(lathe_file_stream(path, &out->file));
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

static lathe_status wrong(void)
{
    return lathe_error(
        LATHE_E_CONFIG,
        "expected {\"prompt\": \"text\"}, {\"messages\": [...]}, {\"ids\": [1, 2]} or "
        "a text");
}

static lathe_status take_ids(lathe_prompt_file *f, const json_t *list)
{
    const size_t n = json_array_size(list);
    LATHE_TRY(lathe_ids_reserve(&f->ids, (int64_t)n));
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return lathe_error(LATHE_E_CONFIG, "\"ids\" holds a value that is no token id");
        f->ids.data[f->ids.n++] = (int32_t)value;
    }
    return n > 0 ? LATHE_OK : lathe_error(LATHE_E_CONFIG, "\"ids\" is empty");
}

static lathe_status take_text(lathe_prompt_file *f, const char *text)
{
    f->prompt = strdup(text);
    return f->prompt ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "the prompt");
}

/* Names the keys of a line that have no effect, of the first line that has any. A prompt's own
 * parts are worth a warning; other keys describe it. */
static void note_unread(lathe_prompt_file *f, json_t *row, const lathe_record_uses *uses)
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
        lathe_log(means ? LATHE_LOG_WARN : LATHE_LOG_INFO, "%s:%lld: nothing reads %s", f->path,
                  (long long)f->line, list.data);
    lathe_buffer_fini(&list);
}

static lathe_status take_messages(lathe_prompt_file *f, json_t *row, lathe_record_uses *uses)
{
    json_t *messages = json_object_get(row, LATHE_RECORD_MESSAGES);
    lathe_session_ids ids;
    lathe_chat_use_row(row, uses);
    LATHE_TRY(lathe_chat_add_system(row, messages, uses));
    LATHE_TRY(lathe__session_render_row(f->session, "", row, &ids));
    LATHE_TRY(lathe_ids_reserve(&f->ids, ids.n));
    memcpy(f->ids.data, ids.ids, (size_t)ids.n * sizeof *ids.ids);
    f->ids.n = ids.n;
    return LATHE_OK;
}

/* Takes the adapter that the line names. */
static lathe_status take_adapter(lathe_prompt_file *f, const json_t *row)
{
    const json_t *name = json_object_get(row, "adapter");
    if (name && !f->named && !f->has_warned) {
        lathe_log(LATHE_LOG_WARN,
                  "%s:%lld: \"adapter\" has no effect: the command has no --adapter NAME=FOLDER",
                  f->path, (long long)f->line);
        f->has_warned = 1;
    }
    if (!f->named || !name || json_is_null(name))
        return LATHE_OK;
    if (!json_is_string(name))
        return lathe_error(LATHE_E_CONFIG, "\"adapter\" is no text; expected a name");
    const lathe_status status =
        lathe__named_adapters_find(f->named, json_string_value(name), &f->adapter);
    return status == LATHE_OK ? LATHE_OK : lathe_error_context(LATHE_E_CONFIG, "\"adapter\"");
}

/* The prompt of an object: its ids, its text, or its messages. */
static lathe_status take_object(lathe_prompt_file *f, json_t *row, lathe_record_uses *uses)
{
    json_t *ids = json_object_get(row, "ids"), *prompt = json_object_get(row, "prompt");
    f->id = json_incref(lathe_record_take(row, uses, "id"));
    lathe_record_use(uses, "adapter");
    if (json_is_array(ids)) {
        lathe_record_use(uses, "ids");
        return take_ids(f, ids);
    }
    if (json_is_string(prompt) || json_is_array(prompt))
        lathe_record_use(uses, "prompt");
    else
        lathe_record_use(uses, LATHE_RECORD_MESSAGES);
    if (json_is_string(prompt))
        return take_text(f, json_string_value(prompt));
    if (json_is_array(prompt)) {
        const json_t *other = json_object_get(row, LATHE_RECORD_MESSAGES);
        if (other == NULL || json_is_null(other)) /* else they are unread */
            lathe_record_use(uses, LATHE_RECORD_MESSAGES);
        if (json_object_set(row, LATHE_RECORD_MESSAGES, prompt) != 0)
            return lathe_error(LATHE_E_NOMEM, "the prompt");
    }
    return json_is_array(json_object_get(row, LATHE_RECORD_MESSAGES)) ? take_messages(f, row, uses)
                                                                      : wrong();
}

static lathe_status take_prompt(lathe_prompt_file *f, json_t *row)
{
    lathe_record_uses uses = {.n = 0};
    f->adapter = f->usual_adapter;
    LATHE_TRY(take_adapter(f, row));
    if (json_is_string(row))
        return take_text(f, json_string_value(row));
    LATHE_TRY(take_object(f, row, &uses));
    note_unread(f, row, &uses);
    return LATHE_OK;
}

lathe_status lathe_prompt_file_next(lathe_prompt_file *f, int32_t *out_more)
{
    int64_t bytes = 0;
    json_t *row = NULL;
    forget(f);
    *out_more = 0;
    LATHE_TRY(next_line(f, &bytes));
    if (bytes < 0)
        return LATHE_OK;
    /* Files from Windows may begin with a byte order mark. */
    const int64_t mark = f->line == 1 && strncmp(f->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    const int64_t n_nan = lathe_json_count_nan(f->text + mark, bytes - mark);
    char *clean = n_nan > 0 ? malloc((size_t)(bytes + n_nan)) : NULL;
    if (n_nan > 0 && !clean)
        return lathe_error_in(LATHE_E_NOMEM, f->path, f->line, 0, "a copy of the line");
    const int64_t n =
        clean ? lathe_json_nulls_for_nan(f->text + mark, bytes - mark, clean) : bytes - mark;
    lathe_status status =
        lathe_json_load_line(f->path, f->line, clean ? clean : f->text + mark, n, 0, &row);
    free(clean);
    if (status == LATHE_OK)
        status = take_prompt(f, row);
    if (status != LATHE_OK)
        status = lathe_error_in_record(status, f->path, NULL, f->line);
    json_decref(row);
    *out_more = status == LATHE_OK;
    return status;
}

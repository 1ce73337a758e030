/* Reports errors and warnings with their place in the configuration. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "plug/kind.h"
#include "run/run_state.h"

/* "run.toml:4:1: text", as a warning in the log. */
static void log_warning(const lathe_place *place, const char *text)
{
    lathe_buffer line = LATHE_BUFFER_INIT;
    if (place->line > 0)
        lathe_buffer_printf(&line, "%s:%d:%d: ", place->file, place->line, place->column);
    lathe_buffer_puts(&line, text);
    lathe_log(LATHE_LOG_WARN, "%s", line.data ? line.data : text);
    lathe_buffer_fini(&line);
}

static lathe_status add_at(lathe_diags *collected, int32_t severity, const lathe_place *place,
                           const char *text)
{
    lathe_diags own = {0}, *const diags = collected ? collected : &own;
    if (diags == &own && severity == LATHE_DIAG_WARNING) {
        log_warning(place, text);
        return LATHE_OK;
    }
    lathe_diags_add(diags, severity, place, NULL, "%s", text);
    const lathe_status status = severity == LATHE_DIAG_ERROR ? lathe_diags_status(diags) : LATHE_OK;
    lathe_diags_fini(&own);
    return status;
}

static lathe_status add(const lathe_run *run, int32_t severity, const char *section,
                        const char *key, const char *text)
{
    const lathe_place place = lathe_config_where(run->config, section, key);
    return add_at(run->open.diags, severity, &place, text);
}

void lathe__run_log_warnings(const lathe_diags *diags)
{
    for (int64_t i = 0; i < diags->n; i++)
        if (diags->items[i].severity == LATHE_DIAG_WARNING)
            log_warning(&diags->items[i].place, diags->items[i].message);
}

lathe_status lathe__run_refuse_in(const lathe_run *run, const char *key, int64_t index,
                                  const char *inner, const char *format, ...)
{
    char text[2048], section[32];
    const size_t n = strcspn(key, ".");
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)snprintf(section, sizeof section, "%.*s", (int)n, key);
    const lathe_place place =
        lathe_config_where_in(run->config, section, key + n + 1, index, inner);
    return add_at(run->open.diags, LATHE_DIAG_ERROR, &place, text);
}

lathe_status lathe__run_refuse(const lathe_run *run, const char *section, const char *key,
                               const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return add(run, LATHE_DIAG_ERROR, section, key, text);
}

void lathe__run_warn(const lathe_run *run, const char *section, const char *key, const char *format,
                     ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)add(run, LATHE_DIAG_WARNING, section, key, text);
}

/* Returns the text after "optimizer sgd: ", which lathe_instance_init adds. */
static const char *after_name(const char *text, const char *section)
{
    const size_t n = strlen(section);
    const char *colon = strncmp(text, section, n) == 0 && text[n] == ' ' ? strchr(text, ':') : NULL;
    return colon && colon[1] == ' ' ? colon + 2 : text;
}

/* Returns the place of the key with which the plugin's message begins, if the file sets it;
 * otherwise of "name". */
static lathe_place place_of_part(const lathe_config *config, int32_t kind, const char *text)
{
    const char *section = lathe_kind_name(kind), *why;
    const char *name = lathe_config_part(config, kind)->name;
    char key[64];
    size_t n = 0;
    why = after_name(text, section);
    if (strncmp(why, name, strlen(name)) == 0 && strncmp(why + strlen(name), ": ", 2) == 0)
        why += strlen(name) + 2; /* the plugin's own message begins with its name, too */
    while (n + 1 < sizeof key &&
           (islower((unsigned char)why[n]) || isdigit((unsigned char)why[n]) || why[n] == '_'))
        n++;
    (void)snprintf(key, sizeof key, "%.*s", (int)n, why);
    const lathe_value *value = lathe_config_get(config, section, key);
    const int is_written = value && value->is_explicit;
    return lathe_config_where(config, section, is_written ? key : "name");
}

lathe_status lathe__run_refuse_part(const lathe_run *run, int32_t kind)
{
    const char *text = lathe_error_message();
    const lathe_place place = place_of_part(run->config, kind, text);
    return add_at(run->open.diags, LATHE_DIAG_ERROR, &place, text);
}

void lathe__run_warn_part(const lathe_run *run, int32_t kind, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const lathe_place place = place_of_part(run->config, kind, text);
    (void)add_at(run->open.diags, LATHE_DIAG_WARNING, &place, text);
}

/* Reports errors and warnings with their place in the configuration. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "plug/kind.h"
#include "run/state/run_state.h"

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

/* inner, key: see lathe_diag; NULL: none. */
static lathe_status add_about(lathe_diags *collected, int32_t severity, const lathe_place *place,
                              const lathe_place *inner, const char *key, const char *text)
{
    lathe_diags own = {0}, *const diags = collected ? collected : &own;
    if (diags == &own && severity == LATHE_DIAG_WARNING) {
        log_warning(place, text);
        return LATHE_OK;
    }
    lathe_diags_add(diags, severity, place, NULL, "%s", text);
    if (inner != NULL)
        lathe_diags_inner(diags, inner);
    if (key != NULL)
        lathe_diags_about(diags, key);
    const lathe_status status = severity == LATHE_DIAG_ERROR ? lathe_diags_status(diags) : LATHE_OK;
    lathe_diags_fini(&own);
    return status;
}

static lathe_status add_at(lathe_diags *collected, int32_t severity, const lathe_place *place,
                           const char *text)
{
    return add_about(collected, severity, place, NULL, NULL, text);
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

lathe_status lathe__run_refuse_said(const lathe_run *run, const char *key, int64_t index,
                                    const char *inner)
{
    char section[32];
    const size_t n = strcspn(key, ".");
    const char *about = lathe_error_key();
    const lathe_place said = lathe_error_place();
    (void)snprintf(section, sizeof section, "%.*s", (int)n, key);
    const lathe_place place =
        lathe_config_where_in(run->config, section, key + n + 1, index, inner);
    return add_about(run->open.diags, LATHE_DIAG_ERROR, &place, &said,
                     about[0] != '\0' ? about : NULL, lathe_error_message());
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

lathe_status lathe__run_refuse_part(const lathe_run *run, int32_t kind)
{
    const lathe_place place =
        lathe_config_where_key(run->config, lathe_kind_name(kind), lathe_error_key(), "name");
    return add_at(run->open.diags, LATHE_DIAG_ERROR, &place, lathe_error_message());
}

void lathe__run_warn_part(const lathe_run *run, int32_t kind, const char *key, const char *format,
                          ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const lathe_place place =
        lathe_config_where_key(run->config, lathe_kind_name(kind), key, "name");
    (void)add_at(run->open.diags, LATHE_DIAG_WARNING, &place, text);
}

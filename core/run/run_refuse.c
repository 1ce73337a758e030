/* Refusals and warnings with the place in the configuration that they are about. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "plug/kind.h"
#include "run/run_state.h"

static lathe_status add(const lathe_run *run, int32_t severity, const char *section,
                        const char *key, const char *text)
{
    lathe_diags own = {0}, *const diags = run->diags ? run->diags : &own;
    lathe_buffer line = LATHE_BUFFER_INIT;
    lathe_config_add(run->config, diags, severity, section, key, "%s", text);
    const lathe_status status = lathe_diags_status(diags);
    if (diags == &own && severity == LATHE_DIAG_WARNING) {
        const lathe_place place = lathe_config_where(run->config, section, key);
        if (place.line > 0)
            lathe_buffer_printf(&line, "%s:%d:%d: ", place.file, place.line, place.column);
        lathe_buffer_puts(&line, text);
        lathe_log(LATHE_LOG_WARN, "%s", line.data ? line.data : text);
    }
    lathe_buffer_fini(&line);
    lathe_diags_fini(&own);
    return status;
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

/* Behind "optimizer sgd: ", which lathe_instance_init puts in front. */
static const char *behind_name(const char *text, const char *section)
{
    const size_t n = strlen(section);
    const char *colon = strncmp(text, section, n) == 0 && text[n] == ' ' ? strchr(text, ':') : NULL;
    return colon && colon[1] == ' ' ? colon + 2 : text;
}

lathe_status lathe__run_refuse_part(const lathe_run *run, int32_t kind)
{
    const char *section = lathe_kind_name(kind), *text = lathe_error_message(), *why;
    char key[64];
    size_t n = 0;
    why = behind_name(text, section);
    while (n + 1 < sizeof key &&
           (islower((unsigned char)why[n]) || isdigit((unsigned char)why[n]) || why[n] == '_'))
        n++;
    (void)snprintf(key, sizeof key, "%.*s", (int)n, why);
    const lathe_value *value = lathe_config_get(run->config, section, key);
    const int is_written = value && value->is_explicit;
    return lathe__run_refuse(run, section, is_written ? key : "name", "%s", text);
}

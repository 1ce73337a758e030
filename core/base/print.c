/* Prints: the only way by which text reaches standard output and standard error. */
#include "base/print.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/printable.h"

void lathe_print_raw(FILE *to, const char *bytes, int64_t n)
{
    if (n > 0)
        (void)fwrite(bytes, 1, (size_t)n, to);
}

void lathe_print_bytes(FILE *to, const char *text, int64_t n)
{
    lathe_buffer out = LATHE_BUFFER_INIT;
    (void)lathe_buffer_printable(&out, text, n, INT64_MAX);
    if (out.status == LATHE_OK) {
        lathe_print_raw(to, out.data, out.len);
    } else {
        char head[512], small[512]; /* without memory, the text is shown cut */
        (void)snprintf(head, sizeof head, "%.*s", n < 511 ? (int)n : 511, text);
        lathe_printable_copy(small, sizeof small, head);
        lathe_print_raw(to, small, (int64_t)strlen(small));
    }
    lathe_buffer_fini(&out);
}

void lathe_print_styled(FILE *to, const char *text, int64_t n)
{
    int64_t from = 0;
    for (int64_t i = 0; i + 3 <= n; i++) {
        const int is_dim = memcmp(text + i, LATHE_DIM, 3) == 0;
        if (!is_dim && memcmp(text + i, LATHE_PLAIN, 3) != 0)
            continue;
        lathe_print_bytes(to, text + from, i - from);
        lathe_print_raw(to, is_dim ? "\x1b[2m" : "\x1b[0m", 4);
        from = i + 3;
        i += 2;
    }
    lathe_print_bytes(to, text + from, n - from);
}

void lathe_print_output(FILE *to, const char *bytes, int64_t n)
{
    if (isatty(fileno(to)))
        lathe_print_bytes(to, bytes, n);
    else
        lathe_print_raw(to, bytes, n);
}

void lathe_print_text(FILE *to, const char *text)
{
    if (text != NULL)
        lathe_print_bytes(to, text, (int64_t)strlen(text));
}

void lathe_print_list(FILE *to, const char *format, va_list args)
{
    char small[1024];
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(small, sizeof small, format, args);
    if (n >= 0 && n < (int)sizeof small) {
        lathe_print_bytes(to, small, n);
    } else {
        lathe_buffer text = LATHE_BUFFER_INIT;
        lathe_buffer_vprintf(&text, format, again);
        lathe_print_bytes(to, text.status == LATHE_OK ? text.data : small,
                          text.status == LATHE_OK ? text.len : (int64_t)strlen(small));
        lathe_buffer_fini(&text);
    }
    va_end(again);
}

void lathe_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    lathe_print_list(stdout, format, args);
    va_end(args);
}

void lathe_print_to(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    lathe_print_list(to, format, args);
    va_end(args);
}

void lathe_print_json(FILE *to, const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags);
    lathe_print_text(to, text != NULL ? text : "null");
    lathe_print_raw(to, "\n", 1);
    free(text);
}

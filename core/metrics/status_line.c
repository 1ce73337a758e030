/* A status line of figures, shortened until it fits the terminal. */
#include "metrics/status_line.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/print.h"
#include "base/printable.h"

void lathe_status_line_add(lathe_status_line *line, int32_t rank, const char *format, ...)
{
    char given[sizeof line->text[0]];
    va_list args;
    if (line->n == LATHE_STATUS_FIGURES)
        return;
    va_start(args, format);
    (void)vsnprintf(given, sizeof given, format, args);
    va_end(args);
    lathe_printable_copy(line->text[line->n], sizeof line->text[0], given); /* its width counts */
    line->rank[line->n++] = rank;
}

void lathe_status_line_add_time(lathe_status_line *line, int32_t rank, const char *name,
                                double seconds)
{
    const double s = isfinite(seconds) && seconds > 0.0 ? floor(seconds + 0.5) : 0.0;
    const int64_t whole = s < 1e15 ? (int64_t)s : (int64_t)1e15;
    const long long days = whole / 86400, hours = whole / 3600;
    if (days > 999)
        lathe_status_line_add(line, rank, "%s >999d", name);
    else if (days >= 4)
        lathe_status_line_add(line, rank, "%s %lldd %lldh", name, days, hours % 24);
    else if (hours > 0)
        lathe_status_line_add(line, rank, "%s %lld:%02lld:%02lld", name, hours,
                              (long long)(whole / 60 % 60), (long long)(whole % 60));
    else
        lathe_status_line_add(line, rank, "%s %02lld:%02lld", name, (long long)(whole / 60),
                              (long long)(whole % 60));
}

void lathe_status_line_add_eta(lathe_status_line *line, int32_t rank, double seconds)
{
    lathe_status_line_add_time(line, rank, "ETA", seconds);
}

/* Columns taken by all figures of this rank or higher, with the gaps between them. */
static int32_t width_of(const lathe_status_line *line, int32_t rank)
{
    int32_t width = 0;
    for (int32_t i = 0; i < line->n; i++)
        if (line->rank[i] >= rank)
            width += (width > 0 ? 2 : 0) + (int32_t)strlen(line->text[i]);
    return width;
}

void lathe_status_line_print(const lathe_status_line *line, int32_t columns, FILE *out)
{
    int32_t least = 0, max = 0, printed = 0;
    for (int32_t i = 0; i < line->n; i++)
        max = line->rank[i] > max ? line->rank[i] : max;
    while (columns > 0 && least < max && width_of(line, least) >= columns)
        least++;
    for (int32_t i = 0; i < line->n; i++) {
        const char *gap = printed > 0 ? "  " : "";
        const int32_t room = columns > 0 ? columns - 1 - printed - (int32_t)strlen(gap) : INT32_MAX;
        const int32_t n = (int32_t)strlen(line->text[i]);
        if (line->rank[i] < least || room <= 0)
            continue;
        lathe_print_to(out, "%s%.*s", gap, room, line->text[i]);
        printed += (int32_t)strlen(gap) + (n < room ? n : room);
    }
}

int32_t lathe_terminal_columns(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *text = getenv("COLUMNS");
    const long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n < 10000 ? (int32_t)n : 80;
}

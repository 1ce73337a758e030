/* What mpirun itself says on its outputs, and what of it `lathe launch` passes on. */
#include "app/launch_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_DASHES = 60, SHORT_BOX = 600, PARAGRAPHS = 3 };

void lathe_launch_words_init(lathe_launch_words *words)
{
    memset(words, 0, sizeof *words);
    words->killed_rank = words->exited_rank = -1;
}

static int is_dashes(const char *line)
{
    const size_t n = strspn(line, "-");
    return n >= LEAST_DASHES && line[n] == '\0';
}

/* The number after a text of the box; -1: it is not there. */
static int32_t number_after(const char *box, const char *text)
{
    const char *at = strstr(box, text);
    int value = -1;
    if (at == NULL || sscanf(at + strlen(text), "%d", &value) != 1)
        return -1;
    return value;
}

/* "Process name: [[1718,1],3]" -> 3 */
static int32_t rank_of_name(const char *box)
{
    const char *at = strstr(box, "Process name:");
    int rank = -1;
    if (at == NULL || sscanf(at, "Process name: [[%*d,%*d],%d]", &rank) != 1)
        return -1;
    return rank;
}

/* Copies a text with single spaces for its line breaks and spaces, because boxes break their lines.
 */
static void join_words(const char *text, char *out)
{
    for (int gap = 0; *text != '\0'; text++) {
        const int is_gap = isspace((unsigned char)*text) != 0;
        if (!is_gap || !gap)
            *out++ = is_gap ? ' ' : *text;
        gap = is_gap;
    }
    *out = '\0';
}

/* Notes what a box says about the end of processes. Returns 0 if it is about something else. */
static int takes(lathe_launch_words *w)
{
    char box[LATHE_BOX_BYTES];
    static const char *const known[] = {
        "Primary job terminated normally, but", "MPI_ABORT was invoked on rank",
        "exiting without calling \"finalize\"", "improperly called \"finalize\""};
    join_words(w->box, box);
    const int32_t killed = number_after(box, "noticed that process rank");
    if (killed >= 0 && strstr(box, "exited on signal") != NULL) {
        if (w->killed_rank < 0) {
            w->killed_rank = killed;
            w->signal = number_after(box, "exited on signal");
        }
        return 1;
    }
    if (strstr(box, "one or more processes exited with non-zero status") != NULL) {
        if (w->exited_rank < 0) {
            w->exited_rank = rank_of_name(box);
            w->code = number_after(box, "Exit code:");
        }
        return 1;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(box, known[i]) != NULL)
            return 1;
    return 0;
}

/* Prints the box as one line: all of it, or its first paragraphs if it is long. */
static void put_box(const lathe_launch_words *w, FILE *to)
{
    const int is_long = w->n > SHORT_BOX;
    int32_t paragraphs = 1, gap = 0;
    (void)fputs("lathe launch: mpirun: ", to);
    for (int64_t i = 0; i < w->n; i++) {
        const char c = w->box[i];
        if (c == '\n' && w->box[i + 1] == '\n' && ++paragraphs > PARAGRAPHS && is_long)
            break;
        if (isspace((unsigned char)c)) {
            gap = 1;
            continue;
        }
        if (gap)
            (void)putc(' ', to);
        gap = 0;
        (void)putc(c, to);
    }
    (void)putc('\n', to);
}

static void end_box(lathe_launch_words *w, FILE *to)
{
    w->in_box = 0;
    w->left_out = takes(w);
    if (w->left_out || w->n == 0)
        return;
    w->n_told++;
    put_box(w, to);
}

/* Lines outside a box that say nothing more than one that was left out. */
static int repeats(const lathe_launch_words *w, const char *line)
{
    const char *const text = strstr(line, "] ");
    int n;
    if (strncmp(line, "[warn] Epoll ", 13) == 0) /* libevent, of a pipe of a rank that has ended */
        return 1;
    if (sscanf(line, "%d total process", &n) == 1 &&
        (strstr(line, " failed to start") || strstr(line, " killed")))
        return 1;
    return w->left_out && line[0] == '[' && text != NULL &&
           (strstr(text, "sent help message") != NULL ||
            strstr(text, "orte_base_help_aggregate") != NULL);
}

void lathe_launch_words_line(lathe_launch_words *w, const char *line, FILE *to)
{
    const int64_t n = (int64_t)strlen(line);
    if (is_dashes(line)) {
        if (w->in_box) {
            end_box(w, to);
            return;
        }
        w->in_box = 1;
        w->n = 0;
        w->box[0] = '\0';
        return;
    }
    if (w->in_box && w->n + n + 2 > LATHE_BOX_BYTES) /* no box is so long: it was none */
        end_box(w, to);
    if (w->in_box) {
        memcpy(w->box + w->n, line, (size_t)n);
        w->n += n;
        w->box[w->n++] = '\n';
        w->box[w->n] = '\0';
        return;
    }
    if (repeats(w, line) || line[0] == '\0')
        return;
    w->n_told++;
    (void)fprintf(to, "%s\n", line);
}

void lathe_launch_words_end(lathe_launch_words *w, FILE *to)
{
    if (w->in_box)
        end_box(w, to);
}

/* Filters the output of mpirun. */
#include "cmd/main/launch_output.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/print.h"

enum { MIN_DASHES = 60, SHORT_BOX = 600, PARAGRAPHS = 3 };

void lathe_launch_output_init(lathe_launch_output *output)
{
    memset(output, 0, sizeof *output);
    output->killed_rank = output->exited_rank = -1;
}

static int is_dashes(const char *line)
{
    const size_t n = strspn(line, "-");
    return n >= MIN_DASHES && line[n] == '\0';
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

/* Makes one line of the n bytes of a box, with single spaces, because boxes break their lines. */
static void join_lines(const char *text, int64_t n, char *out)
{
    char *const begin = out;
    for (int64_t i = 0; i < n; i++) {
        const int is_gap = isspace((unsigned char)text[i]) != 0;
        if (!is_gap || (out > begin && out[-1] != ' '))
            *out++ = is_gap ? ' ' : text[i];
    }
    if (out > begin && out[-1] == ' ')
        out--;
    *out = '\0';
}

/* Notes what a box, as one line, says about the end of processes. Returns 0 if it is about
 * something else. */
static int note_end(lathe_launch_output *w, const char *box)
{
    static const char *const known[] = {
        "Primary job terminated normally, but", "MPI_ABORT was invoked on rank",
        "exiting without calling \"finalize\"", "improperly called \"finalize\""};
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

/* Bytes of the box that are passed on: all of it, or its first paragraphs if it is long. */
static int64_t wanted_bytes(const lathe_launch_output *w)
{
    int64_t i = 0;
    for (int32_t paragraphs = 1; w->n > SHORT_BOX && i < w->n; i++)
        if (w->box[i] == '\n' && w->box[i + 1] == '\n' && ++paragraphs > PARAGRAPHS)
            return i;
    return w->n;
}

static void keep(lathe_launch_output *w, const char *text, lathe_launch_vagueness says)
{
    if (says <= w->vague_says)
        return;
    w->vague_says = says;
    (void)snprintf(w->vague, sizeof w->vague, "%s", text);
}

static void end_box(lathe_launch_output *w, FILE *to)
{
    char text[LATHE_BOX_BYTES];
    w->in_box = 0;
    join_lines(w->box, w->n, text);
    if (text[0] == '\0' || note_end(w, text))
        return;
    join_lines(w->box, wanted_bytes(w), text);
    if (strncmp(text, "It looks like ", 14) == 0) {
        keep(w, text, LATHE_LAUNCH_CALL_FAILED);
        return;
    }
    if (strcmp(text, w->last) == 0)
        return;
    (void)snprintf(w->last, sizeof w->last, "%s", text);
    w->n_told++;
    lathe_print_to(to, "lathe launch: mpirun: %s\n", text);
}

/* Lines outside a box that say nothing. */
static int is_noise(const char *line)
{
    static const char *const texts[] = {"sent help message", "orte_base_help_aggregate"};
    int n;
    /* SIGCONT, after a rank has held mpirun (failure_report.h). The line begins with the name by
     * which mpirun was started: mpirun, mpiexec or orterun. */
    const char *const forwarding = strstr(line, ": Forwarding signal 18 to job");
    if (line[0] == '\0' || (forwarding && !memchr(line, ' ', (size_t)(forwarding - line))) ||
        strncmp(line, "[warn] Epoll ", 13) == 0) /* libevent, of a pipe of a rank that has ended */
        return 1;
    if (sscanf(line, "%d total process", &n) == 1 &&
        (strstr(line, " failed to start") || strstr(line, " killed")))
        return 1;
    for (size_t i = 0; line[0] == '[' && i < sizeof texts / sizeof *texts; i++)
        if (strstr(line, texts[i]) != NULL)
            return 1;
    return 0;
}

/* Classifies a line of mpirun outside a box: some only repeat that an error happened, which another
 * message explains. */
static lathe_launch_vagueness vagueness(const char *line)
{
    if (line[0] == '[' && strstr(line, " ORTE_ERROR_LOG: ") != NULL)
        return LATHE_LAUNCH_OWN_ERROR;
    if (strncmp(line, "*** ", 4) == 0 ||
        (line[0] == '[' && (strstr(line, "] *** ") != NULL ||
                            strstr(line, "Local abort before MPI_INIT completed") != NULL)))
        return LATHE_LAUNCH_ABORTED;
    return LATHE_LAUNCH_NOT_VAGUE;
}

void lathe_launch_output_line(lathe_launch_output *w, const char *line, FILE *to)
{
    const int64_t n = (int64_t)strlen(line);
    if (is_dashes(line)) {
        if (w->is_cut) {
            w->is_cut = 0;
            return;
        }
        if (w->in_box) {
            end_box(w, to);
            return;
        }
        w->in_box = 1;
        w->n = 0;
        w->box[0] = '\0';
        return;
    }
    if (w->in_box && w->n + n + 2 > LATHE_BOX_BYTES) {
        end_box(w, to);
        w->is_cut = 1;
    }
    if (w->in_box) {
        memcpy(w->box + w->n, line, (size_t)n);
        w->n += n;
        w->box[w->n++] = '\n';
        w->box[w->n] = '\0';
        return;
    }
    if (is_noise(line))
        return;
    const lathe_launch_vagueness says = vagueness(line);
    if (says != LATHE_LAUNCH_NOT_VAGUE) {
        keep(w, line, says);
        return;
    }
    w->n_told++;
    lathe_print_to(to, "%s\n", line);
}

void lathe_launch_output_end(lathe_launch_output *w, FILE *to)
{
    if (w->in_box)
        end_box(w, to);
    if (w->n_told > 0 || w->vague_says == LATHE_LAUNCH_NOT_VAGUE)
        return;
    w->n_told++;
    if (w->vague_says == LATHE_LAUNCH_OWN_ERROR)
        lathe_print_to(
            to,
            "lathe launch: mpirun failed and lost its explanation, which another try may "
            "show; it says only: %s\n",
            w->vague);
    else
        lathe_print_to(to, "lathe launch: mpirun: %s\n", w->vague);
}

/* A reward by a program of the user's: a line of JSON for each completion goes to its standard
 * input, and a line with a number comes back.
 *
 *   {"prompt": "...", "completion": "...", "n_tokens": 12, "record": {...}}
 *
 * The program is started with the first batch and runs until the end of the run.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"

#include "lathe/kit/instance.h"
#include "lathe/kit/record.h"
#include "lathe/reward.h"

typedef struct command {
    const lathe_host *host;
    const lathe_value *words;
    child process;
    int32_t has_answered;  /* 1: it has given a number */
    _Atomic pid_t running; /* process group that cancel() kills; 0: none */
} command;

static const lathe_field fields[] = {
    {"command", LATHE_T_STRING_LIST, LATHE_FIELD_REQUIRED, NULL, LATHE_NO_RANGE, NULL, NULL,
     "program and arguments, found as a shell finds it, run in the current folder; no shell reads "
     "the words"},
};

/* ---- settings ---- */

/* Whether posix_spawnp() will find the program. */
static int is_found(const char *program)
{
    const char *path = getenv("PATH");
    char candidate[4096];
    if (strchr(program, '/') != NULL)
        return access(program, X_OK) == 0;
    for (path = path != NULL ? path : "/bin:/usr/bin"; *path != '\0';) {
        const size_t n = strcspn(path, ":");
        (void)snprintf(candidate, sizeof candidate, "%.*s/%s", (int)n, path, program);
        if (access(candidate, X_OK) == 0)
            return 1;
        path += n + (path[n] == ':');
    }
    return 0;
}

/* Programs that take a script as their first argument that is no option, and read it from the
 * current folder. */
static int runs_scripts(const char *program)
{
    static const char *const names[] = {"python", "perl", "ruby", "Rscript"};
    const char *slash = strrchr(program, '/'), *name = slash != NULL ? slash + 1 : program;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) == 0 && strspn(name + n, "0123456789.") == strlen(name + n))
            return 1;
    }
    return 0;
}

/* The current folder, for messages. */
static const char *here(char out[PATH_MAX])
{
    return getcwd(out, PATH_MAX) != NULL ? out : "the current folder";
}

/* Refuses a script that is not there: the program would only say so in the middle of a run. */
static lathe_status check_script(const lathe_host *host, const lathe_value *words)
{
    char folder[PATH_MAX];
    if (words->n < 2 || words->strs[1][0] == '-' || !runs_scripts(words->strs[0]) ||
        access(words->strs[1], F_OK) == 0)
        return LATHE_OK;
    return lathe_fail_at(host, LATHE_E_CONFIG, "command",
                         "%s has no file '%s' to run: the command runs in %s, and relative "
                         "paths in it begin there, not at the run file",
                         words->strs[0], words->strs[1], here(folder));
}

static lathe_status command_read(const lathe_host *host, command *out, const lathe_value *values)
{
    const lathe_value *words = &values[0];
    if (words->n == 0 || words->strs[0][0] == '\0')
        return lathe_fail_at(host, LATHE_E_CONFIG, "command",
                             "command is empty; expected a program and its arguments, such as "
                             "[\"python3\", \"reward.py\"]");
    if (!is_found(words->strs[0]))
        return lathe_fail_at(host, LATHE_E_CONFIG, "command", "there is no program '%s'%s",
                             words->strs[0],
                             strchr(words->strs[0], '/') != NULL
                                 ? " that may be run; a relative path begins in the current folder"
                                 : " in the folders of PATH");
    LATHE_TRY(check_script(host, words));
    out->words = words;
    out->process = (child){.in = -1, .out = -1, .err = -1, .leash = -1};
    return LATHE_OK;
}

LATHE_INSTANCE_MADE(command, command_read)

static void command_destroy(void *self)
{
    command *x = self;
    if (x == NULL)
        return;
    child_stop(&x->process);
    x->host->free(x);
}

/* ---- scoring ---- */

static lathe_status start(command *x)
{
    if (x->process.pid != 0)
        return LATHE_OK;
    char **words = calloc((size_t)x->words->n + 1, sizeof *words);
    if (words == NULL)
        return lathe_fail(x->host, LATHE_E_NOMEM, "no memory for %lld words",
                          (long long)x->words->n);
    for (int64_t i = 0; i < x->words->n; i++)
        words[i] = (char *)(uintptr_t)x->words->strs[i]; /* posix_spawn changes none */
    const int error = child_start(&x->process, words);
    free(words);
    if (error != 0)
        return lathe_fail(x->host, LATHE_E_IO, "'%s' does not start: %s", x->words->strs[0],
                          strerror(error));
    atomic_store(&x->running, x->process.pid);
    return LATHE_OK;
}

/* The line of an item, which the caller frees; NULL: no memory. A record may be written over
 * several lines; its control characters are all between its values, and become blanks. */
static char *make_line(const lathe_reward_item *item, int64_t *out_n)
{
    const int64_t max = 6 * (item->prompt_bytes + item->completion_bytes) + item->record_bytes;
    char *line = malloc((size_t)max + 128);
    int64_t n = 0;
    if (line == NULL)
        return NULL;
    n += sprintf(line + n, "{\"prompt\": ");
    n += lathe_record_quote(item->prompt, item->prompt_bytes, line + n);
    n += sprintf(line + n, ", \"completion\": ");
    n += lathe_record_quote(item->completion, item->completion_bytes, line + n);
    n += sprintf(line + n, ", \"n_tokens\": %d, \"record\": ", item->n_tokens);
    for (int64_t i = 0; i < item->record_bytes; i++)
        line[n++] = (unsigned char)item->record[i] < ' ' ? ' ' : item->record[i];
    n += sprintf(line + n, "%s}\n", item->record_bytes > 0 ? "" : "{}");
    *out_n = n;
    return line;
}

/* The numbers of a batch that have come back. */
typedef struct answers {
    double *out;
    int32_t n, n_wanted;
    int32_t is_wrong, n_too_many;
    char wrong[CHILD_LINE]; /* the first line that is no number */
} answers;

/* number NULL: no score */
static int take_answer(answers *a, const double *number)
{
    if (a->n == a->n_wanted) {
        a->n_too_many++;
        return 1;
    }
    if (number != NULL)
        a->out[a->n] = *number;
    else
        lathe_reward_no_score(&a->out[a->n]);
    a->n++;
    return a->n == a->n_wanted;
}

static int take_line(void *arg, const char *text)
{
    answers *a = arg;
    char *end = NULL;
    const double number = strtod(text, &end);
    const size_t blank = strspn(text, " \t");
    if (strncmp(text + blank, "null", 4) == 0 &&
        text[blank + 4 + strspn(text + blank + 4, " \t")] == '\0')
        return take_answer(a, NULL);
    if (end == text || end[strspn(end, " \t")] != '\0') {
        if (!a->is_wrong)
            (void)snprintf(a->wrong, sizeof a->wrong, "%s", text);
        a->is_wrong = 1;
        return 1;
    }
    return take_answer(a, &number);
}

static lathe_status fail_of(command *x, const answers *a, int got)
{
    char end[2 * CHILD_LINE], folder[PATH_MAX];
    if (a->is_wrong)
        return lathe_fail(x->host, LATHE_E_PARSE,
                          "'%s' printed the line '%s', expected a number, or null for no score",
                          x->words->strs[0], a->wrong);
    if (a->n_too_many > 0)
        return lathe_fail(x->host, LATHE_E_PARSE,
                          "'%s' printed more lines than it was given; expected one number for each "
                          "line",
                          x->words->strs[0]);
    if (got >= 0)
        return LATHE_OK;
    child_end_text(&x->process, end, sizeof end);
    atomic_store(&x->running, 0);
    if (x->has_answered || a->n > 0)
        return lathe_fail(x->host, LATHE_E_IO, "the command '%s' %s", x->words->strs[0], end);
    return lathe_fail(x->host, LATHE_E_IO,
                      "the command '%s' %s; it gave no number, and ran in %s, where relative paths "
                      "in it begin",
                      x->words->strs[0], end, here(folder));
}

static lathe_status command_score(void *self, const lathe_reward_item *items, int32_t n,
                                  double *out)
{
    command *x = self;
    answers a = {.out = out, .n_wanted = n};
    LATHE_TRY(start(x));
    if (child_has_output(&x->process)) {
        answers early = {.n_wanted = 0};
        LATHE_TRY(fail_of(x, &early, child_exchange(&x->process, "", 0, 1, take_line, &early)));
    }
    for (int32_t i = 0; i < n; i++) {
        int64_t bytes = 0;
        char *line = make_line(&items[i], &bytes);
        if (line == NULL)
            return lathe_fail(x->host, LATHE_E_NOMEM, "no memory for a line of %lld bytes",
                              (long long)items[i].completion_bytes);
        const int got =
            child_exchange(&x->process, line, bytes, i + 1 == n && a.n < n, take_line, &a);
        free(line);
        if (a.n > i + 1)
            a.n_too_many++; /* an answer before its question */
        LATHE_TRY(fail_of(x, &a, got));
    }
    x->has_answered |= a.n > 0;
    return LATHE_OK;
}

/* Ends the program and what it has started. */
static void command_cancel(void *self)
{
    command *x = self;
    const pid_t group = atomic_load(&x->running);
    if (group > 0)
        child_kill(group);
}

static const lathe_reward_v1 command_table = {
    .size = (uint32_t)sizeof command_table,
    .revision = LATHE_REWARD_REVISION,
    .score = command_score,
    .cancel = command_cancel,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(command),
    .kind = LATHE_KIND_REWARD,
    .revision = LATHE_REWARD_REVISION,
    .version = "1.0.0",
    .summary = "a program of the user's that answers each completion with a number",
    .source = "ours",
    .license = "Apache-2.0",
};

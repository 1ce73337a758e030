/* Records and compares the programs of rewards. */
#include "checkpoint/state/reward_programs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"

#define MAX_HASHED ((int64_t)1 << 30) /* bytes; about half a second */

/* A key of plugins whose words are a program and its arguments. */
static const char command_key[] = "command";

/* A file that a word of a command names. */
typedef struct program {
    const char *reward; /* the label of the reward */
    int32_t word;
    int64_t bytes;
    char path[PATH_MAX]; /* absolute */
    char sha256[65];     /* "": too large */
} program;

/* The words of a reward's command; NULL: it is no program. */
static const lathe_value *command_of(const lathe_config_reward *reward)
{
    const lathe_part *part = &reward->part;
    const lathe_plugin *plugin = part->component ? part->component->plugin : NULL;
    for (int32_t i = 0; plugin && part->values && i < plugin->n_fields; i++)
        if (part->values[i].type == LATHE_T_STRING_LIST &&
            strcmp(plugin->fields[i].key, command_key) == 0)
            return &part->values[i];
    return NULL;
}

/* Takes the file at a path. Returns 0 if there is no regular file that can be read. */
static int take_file(const char *path, program *out)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || realpath(path, out->path) == NULL)
        return 0;
    out->bytes = (int64_t)st.st_size;
    out->sha256[0] = '\0';
    if (out->bytes <= MAX_HASHED && lathe_sha256_file(out->path, out->sha256) != LATHE_OK) {
        lathe_error_clear();
        return 0;
    }
    return 1;
}

/* Takes a program that a shell would find in PATH. */
static int take_from_path(const char *name, program *out)
{
    const char *path = getenv("PATH");
    char candidate[PATH_MAX];
    for (path = path ? path : "/bin:/usr/bin"; *path != '\0';) {
        const size_t n = strcspn(path, ":");
        const int len = snprintf(candidate, sizeof candidate, "%.*s/%s", (int)n, path, name);
        if (len > 0 && (size_t)len < sizeof candidate && access(candidate, X_OK) == 0)
            return take_file(candidate, out);
        path += n + (path[n] == ':');
    }
    return 0;
}

/* Calls `take` with each file of each command. */
static lathe_status each_program(const lathe_config *config,
                                 lathe_status (*take)(void *arg, const program *p), void *arg)
{
    int32_t n = 0;
    const lathe_config_reward *list = lathe_config_rewards(config, &n);
    program *p = calloc(1, sizeof *p);
    lathe_status status = p ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "the programs of rewards");
    for (int32_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_value *words = command_of(&list[i]);
        int n_files = 0;
        p->reward = list[i].label;
        for (int64_t k = 0; words && k < words->n && status == LATHE_OK; k++) {
            p->word = (int32_t)k;
            /* without a slash, the first word is looked for in PATH alone */
            if ((k > 0 || strchr(words->strs[0], '/')) && take_file(words->strs[k], p)) {
                status = take(arg, p);
                n_files++;
            }
        }
        p->word = 0;
        if (words && words->n > 0 && n_files == 0 && status == LATHE_OK &&
            take_from_path(words->strs[0], p))
            status = take(arg, p);
    }
    free(p);
    return status;
}

static lathe_status put_one(void *arg, const program *p)
{
    lathe_buffer *out = arg;
    const int is_first = out->len == 0 || out->data[out->len - 1] == '[';
    lathe_buffer_puts(out, is_first ? "{\"reward\": " : ", {\"reward\": ");
    lathe_buffer_json_string(out, p->reward);
    lathe_buffer_printf(out, ", \"key\": \"%s\", \"word\": %d, \"path\": ", command_key, p->word);
    lathe_buffer_json_string(out, p->path);
    lathe_buffer_printf(out, ", \"bytes\": %lld", (long long)p->bytes);
    if (p->sha256[0] != '\0')
        lathe_buffer_printf(out, ", \"sha256\": \"%s\"", p->sha256);
    lathe_buffer_puts(out, "}");
    return out->status;
}

lathe_status lathe__programs_put(const lathe_config *config, lathe_buffer *out)
{
    lathe_buffer list = LATHE_BUFFER_INIT;
    lathe_status status = each_program(config, put_one, &list);
    if (status == LATHE_OK && list.len > 0)
        lathe_buffer_printf(out, ", \"programs\": [%s]", list.data);
    lathe_buffer_fini(&list);
    return status == LATHE_OK ? out->status : status;
}

/* ---- comparing ---- */

typedef struct comparison {
    const json_t *recorded;
    lathe_buffer *out;
} comparison;

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The record of the word with the same file name; NULL: there is none. */
static const json_t *record_of(const json_t *list, const program *p)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *reward = json_string_value(json_object_get(one, "reward"));
        const char *path = json_string_value(json_object_get(one, "path"));
        if (reward && path && strcmp(reward, p->reward) == 0 &&
            json_integer_value(json_object_get(one, "word")) == p->word &&
            strcmp(name_of(path), name_of(p->path)) == 0)
            return one;
    }
    return NULL;
}

static lathe_status compare_one(void *arg, const program *p)
{
    enum { SHOWN = 8 }; /* digits of a hash */
    const comparison *c = arg;
    const json_t *was = record_of(c->recorded, p);
    const char *sha256 = json_string_value(json_object_get(was, "sha256"));
    const long long bytes = (long long)json_integer_value(json_object_get(was, "bytes"));
    const int is_hashed = sha256 && p->sha256[0] != '\0';
    if (was == NULL || (is_hashed ? strcmp(sha256, p->sha256) == 0 : bytes == p->bytes))
        return LATHE_OK;
    lathe_buffer_printf(c->out, "%s%s has changed ", c->out->len > 0 ? ", " : "", p->path);
    if (is_hashed)
        lathe_buffer_printf(c->out, "(SHA-256 %.*s... then, %.*s... now)", SHOWN, sha256, SHOWN,
                            p->sha256);
    else
        lathe_buffer_printf(c->out, "(%lld bytes then, %lld now)", bytes, (long long)p->bytes);
    return c->out->status;
}

lathe_status lathe__programs_compare(const lathe_config *config, const json_t *meta,
                                     lathe_buffer *out)
{
    comparison c = {json_object_get(meta, "programs"), out};
    return c.recorded ? each_program(config, compare_one, &c) : LATHE_OK;
}

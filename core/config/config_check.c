/* Checks that go beyond the schemas: files that must exist, and keys that depend on each other. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/model_path.h"
#include "config/config_state.h"
#include "plug/schema_check.h"

/* Whether the path is a file or a folder, or a pattern that matches something. */
static int is_found(const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **paths = NULL;
    int64_t n = 0;
    if (lathe_path_exists(path))
        return 1;
    if (strpbrk(path, "*?[") != NULL && lathe_path_glob(path, &arena, &paths, &n) != LATHE_OK)
        n = 0;
    lathe_arena_fini(&arena);
    return n > 0;
}

/* Severity of a missing file: an error; a warning for a run on another machine, which may have it.
 */
static int32_t missing(uint32_t kinds)
{
    return kinds & LATHE_CONFIG_ELSEWHERE ? LATHE_DIAG_WARNING : LATHE_DIAG_ERROR;
}

static const char *not_here(uint32_t kinds)
{
    return kinds & LATHE_CONFIG_ELSEWHERE ? "; it is checked where the run starts" : "";
}

/* A hint for a path that looks like the name of a model on the Hugging Face Hub; none for a run on
 * another machine, where the folder may exist. */
static const char *hint_for(const lathe_config *config, const char *path, uint32_t kinds,
                            char hint[LATHE_HUB_HINT])
{
    return kinds & LATHE_CONFIG_ELSEWHERE
               ? ""
               : lathe_hub_hint_of(lathe_config_written(config, path), path, hint, LATHE_HUB_HINT);
}

/* Checks every dataset's path; errors have its place in the file. */
static void check_datasets(const lathe_config *config, const char *key, uint32_t kinds,
                           lathe_diags *diags)
{
    const lathe_toml_node *sets = lathe_toml_find(lathe_toml_find(config->root, "data"), key);
    if (sets == NULL || (sets->kind != LATHE_TOML_ARRAY && sets->kind != LATHE_TOML_TABLE))
        return;
    const int64_t n = sets->kind == LATHE_TOML_ARRAY ? sets->n_children : 1;
    for (int64_t i = 0; i < n; i++) {
        const lathe_toml_node *set = sets->kind == LATHE_TOML_ARRAY ? sets->children[i] : sets;
        const lathe_toml_node *path = lathe_toml_find(set, "path");
        struct stat info;
        if (path == NULL || path->s == NULL)
            continue;
        const lathe_place place = lathe_value_place(config->path, path);
        if (stat(path->s, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                            "data.%s: %s is %s; expected a regular file or a folder: data is read "
                            "more than once, so write it to a file first",
                            key, path->s, lathe_mode_text(info.st_mode));
        if (is_found(path->s))
            continue;
        lathe_diags_add(diags, missing(kinds), &place, NULL,
                        strpbrk(path->s, "*?[") ? "data.%s: no file matches the pattern %s%s"
                                                : "data.%s: no such file or folder: %s%s",
                        key, path->s, not_here(kinds));
    }
}

/* Refuses a path if its first existing part is not a folder, or is a folder without write
 * permission. */
static void check_folder(const lathe_config *config, const char *section, const char *key,
                         lathe_diags *diags)
{
    const char *path = lathe_config_string(config, section, key);
    char part[PATH_MAX], target[PATH_MAX];
    if (path == NULL || path[0] == '\0' || strlen(path) >= sizeof part)
        return;
    (void)snprintf(part, sizeof part, "%s", path);
    for (char *slash; !lathe_path_exists(part); *slash = '\0') {
        const ssize_t n = readlink(part, target, sizeof target - 1);
        if (n >= 0) {
            lathe_config_add(config, diags, LATHE_DIAG_ERROR, section, key,
                             "%s.%s = \"%s\": %s is a link to %.*s, which does not exist: create "
                             "that folder, or remove the link",
                             section, key, path, part, (int)n, target);
            return;
        }
        if ((slash = strrchr(part, '/')) == NULL || slash == part) {
            (void)snprintf(part, sizeof part, slash == part ? "/" : ".");
            break;
        }
    }
    if (!lathe_path_is_dir(part))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, section, key,
                         "%s.%s = \"%s\": %s is a file, expected a folder", section, key, path,
                         part);
    else if (access(part, W_OK | X_OK) != 0)
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, section, key,
                         "%s.%s = \"%s\": the folder %s cannot be written: %s", section, key, path,
                         part, strerror(errno));
}

static void check_model(const lathe_config *config, const char *section, const char *path,
                        uint32_t kinds, lathe_diags *diags)
{
    char hint[LATHE_HUB_HINT];
    if (lathe_path_is_model(path))
        return;
    if (lathe_path_exists(path))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, section, "path",
                         "%s.path: a file, expected a folder or a GGUF file: %s", section, path);
    else
        lathe_config_add(config, diags, missing(kinds), section, "path",
                         "%s.path: no such folder or GGUF file: %s%s%s", section, path,
                         hint_for(config, path, kinds, hint), not_here(kinds));
}

static void check_stored(const lathe_config *config, uint32_t kinds, lathe_diags *diags)
{
    const char *stored = lathe_config_string(config, "teacher", "stored");
    if (stored == NULL || stored[0] == '\0' || lathe_path_is_dir(stored))
        return;
    if (lathe_path_exists(stored))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "teacher", "stored",
                         "teacher.stored: a file, expected a folder: %s", stored);
    else
        lathe_config_add(config, diags, missing(kinds), "teacher", "stored",
                         "teacher.stored: no such folder: %s; lathe logprobs makes it%s", stored,
                         not_here(kinds));
}

/* Checks what training and evaluation read beside the model. */
static void check_data(const lathe_config *config, uint32_t kinds, lathe_diags *diags)
{
    const char *teacher = lathe_config_string(config, "teacher", "path");
    if (teacher != NULL)
        check_model(config, "teacher", teacher, kinds, diags);
    check_stored(config, kinds, diags);
    check_datasets(config, "datasets", kinds, diags);
    check_datasets(config, "validation", kinds, diags);
    if (!(kinds & LATHE_CONFIG_ELSEWHERE))
        check_folder(config, "data", "cache_dir", diags);
}

void lathe_config_check_files(const lathe_config *config, uint32_t kinds, lathe_diags *diags)
{
    const char *model = lathe_config_string(config, "model", "path");
    const char *tokenizer = lathe_config_string(config, "tokenizer", "path");
    const char *resume = lathe_config_string(config, "checkpoint", "resume");
    const char *chat = lathe_config_string(config, "data", "chat_template");
    char hint[LATHE_HUB_HINT];
    if (model != NULL)
        check_model(config, "model", model, kinds, diags);
    if (tokenizer != NULL && strcmp(tokenizer, "bytes") != 0 && !lathe_path_exists(tokenizer))
        lathe_config_add(config, diags, missing(kinds), "tokenizer", "path",
                         "tokenizer.path: no such file or folder: %s%s%s", tokenizer,
                         hint_for(config, tokenizer, kinds, hint), not_here(kinds));
    if (resume != NULL && strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0 &&
        strcmp(resume, "restart") != 0 && !lathe_path_is_dir(resume))
        lathe_config_add(
            config, diags, missing(kinds), "checkpoint", "resume",
            "checkpoint.resume: no such folder: %s; expected auto, never, restart, the folder "
            "of a checkpoint, or one of checkpoints%s",
            resume[0] != '\0' ? resume : "\"\"", not_here(kinds));
    if (chat != NULL && !lathe_path_exists(chat))
        lathe_config_add(config, diags, missing(kinds), "data", "chat_template",
                         "data.chat_template: no such file or folder: %s%s", chat, not_here(kinds));
    if (kinds & LATHE_CONFIG_DATA)
        check_data(config, kinds, diags);
}

/* Going back to a checkpoint needs checkpoints during the run, not only at the end. */
static void check_rewind(const lathe_config *config, const char *key, lathe_diags *diags)
{
    const char *policy = lathe_config_string(config, "train", key);
    const char *dir = lathe_config_string(config, "checkpoint", "dir");
    if (policy == NULL || strcmp(policy, "rewind") != 0)
        return;
    if (dir == NULL || dir[0] == '\0')
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "train", key,
                         "train.%s = \"rewind\" needs checkpoint.dir: there would be no "
                         "checkpoint to go back to",
                         key);
    else if (lathe_config_int(config, "checkpoint", "every") == 0 &&
             !(lathe_config_float(config, "checkpoint", "every_epochs") > 0.0) &&
             !(lathe_config_float(config, "checkpoint", "every_minutes") > 0.0))
        lathe_config_add(
            config, diags, LATHE_DIAG_ERROR, "train", key,
            "train.%s = \"rewind\" needs checkpoint.every (or every_minutes, every_epochs): the "
            "run cannot go back to a checkpoint that is written only at its end",
            key);
}

/* Checks where checkpoints are written and which metric selects the best ones. */
static void check_checkpoints(const lathe_config *config, int evaluates, lathe_diags *diags)
{
    const char *dir = lathe_config_string(config, "checkpoint", "dir");
    const char *metric = lathe_config_string(config, "checkpoint", "best_metric");
    const int has_metric = metric != NULL && metric[0] != '\0';
    if (dir != NULL && dir[0] == '\0')
        lathe_config_add(
            config, diags, LATHE_DIAG_ERROR, "checkpoint", "dir",
            "checkpoint.dir is empty: the run would train and save nothing; expected a "
            "folder, such as \"out\"");
    if (lathe_config_int(config, "checkpoint", "keep_best") == 0)
        return;
    if (!has_metric)
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "checkpoint", "keep_best",
                         "checkpoint.keep_best needs checkpoint.best_metric");
    else if (strncmp(metric, "eval_", 5) == 0 && !evaluates)
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "checkpoint", "keep_best",
                         "checkpoint.keep_best depends on %s, but the run evaluates nothing: set "
                         "data.validation, data.validation_split or data.validation_count, or "
                         "another checkpoint.best_metric",
                         metric);
}

/* Whether the run file has the key, but with a value that the schema refused. Such a value counts
 * as unset, and a second error that calls the key missing would mislead. */
static int is_refused(const lathe_config *config, const char *section, const char *key)
{
    const lathe_toml_node *node = lathe_toml_find(lathe_toml_find(config->root, section), key);
    return node != NULL && !lathe_config_is_set(config, section, key);
}

void lathe_config_check_model(const lathe_config *config, lathe_diags *diags)
{
    if (!lathe_config_is_set(config, "model", "path") &&
        !lathe_config_is_set(config, "model", "adapter") &&
        !lathe_config_is_set(config, "model", "model_type") &&
        !is_refused(config, "model", "path") && !is_refused(config, "model", "model_type"))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "model", "path",
                         "model.path or model.model_type is required");
    if (lathe_config_is_set(config, "model", "path") &&
        lathe_config_is_set(config, "model", "model_type"))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "model", "model_type",
                         "model.path and model.model_type exclude each other");
    if (lathe_config_is_set(config, "model", "adapter") &&
        lathe_config_is_set(config, "model", "model_type"))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "model", "model_type",
                         "model.adapter and model.model_type exclude each other");
}

void lathe_config_check_train(const lathe_config *config, uint32_t kinds, lathe_diags *diags)
{
    const char *datasets = lathe_config_string(config, "data", "datasets");
    const int has_split = lathe_config_float(config, "data", "validation_split") > 0.0;
    const int has_count = lathe_config_int(config, "data", "validation_count") > 0;
    const int has_sets = lathe_config_is_set(config, "data", "validation");
    if ((datasets == NULL && !is_refused(config, "data", "datasets")) ||
        (datasets != NULL && strcmp(datasets, "[]") == 0))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "data", "datasets",
                         "data.datasets is required to train: datasets = [{ path = \"...\" }]");
    if (lathe_config_is_set(config, "tokenizer", "path") &&
        lathe_config_is_set(config, "tokenizer", "train"))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "tokenizer", "train",
                         "tokenizer.path and tokenizer.train exclude each other");
    if (has_split && has_sets)
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "data", "validation_split",
                         "data.validation_split and data.validation exclude each other");
    if (has_count && (has_split || has_sets))
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "data", "validation_count",
                         "data.validation_count and %s exclude each other",
                         has_split ? "data.validation_split" : "data.validation");
    if (lathe_config_int(config, "train", "eval_every") > 0 && !has_split && !has_count &&
        !has_sets)
        lathe_config_add(config, diags, LATHE_DIAG_WARNING, "train", "eval_every",
                         "train.eval_every has nothing to evaluate: data.validation_split, "
                         "data.validation_count and data.validation are unset");
    if (!(kinds & LATHE_CONFIG_ELSEWHERE))
        check_folder(config, "checkpoint", "dir", diags);
    check_checkpoints(config, has_split || has_count || has_sets, diags);
    check_rewind(config, "on_spike", diags);
    check_rewind(config, "on_nonfinite", diags);
}

/* Checks the checkpoint to resume from against the run.
 *
 * The files decide whether it matches: plugins, the model and its parameters, the position in the
 * data, the optimizer's state. The old configuration (in the manifest) and the new one show which
 * key of the run file is the cause: the error is reported at that key and names both values.
 */
#include "run/resume/resume_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/checkpoint_branch.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/checkpoint_info.h"
#include "checkpoint/state/parents.h"
#include "checkpoint/state/reward_programs.h"
#include "checkpoint/state/train_state.h"
#include "config/config_changes.h"
#include "run/resume/resume_model.h"
#include "run/resume/resume_refusal.h"
#include "run/state/run_saved.h"

static const char *text_of(const lathe_buffer *b)
{
    return b->data ? b->data : "?";
}

/* Whether a status means that the checkpoint belongs to another run, not that it is damaged. */
static int is_refusal(lathe_status status)
{
    return status == LATHE_E_CONFIG || status == LATHE_E_STATE || status == LATHE_E_SHAPE;
}

/* Whether a status means damage: resuming then tries the checkpoint before. */
static int is_damage(lathe_status status)
{
    return status == LATHE_E_CORRUPT || status == LATHE_E_PARSE || status == LATHE_E_IO ||
           status == LATHE_E_NOT_FOUND;
}

/* Whether a key that the checkpoint did not know has its default: the plugin got a new key. */
static int is_new_default(const lathe_resuming *r, const char *name, const json_t *change)
{
    char section[64], key[64];
    lathe__resume_split_name(name, section, key);
    const lathe_value *value = lathe_config_get(r->run->config, section, key);
    return json_is_null(json_object_get(change, "from")) && value && !value->is_explicit;
}

/* ---- plugins ---- */

static lathe_status check_plugins(lathe_resuming *r)
{
    const char *name;
    json_t *change;
    json_object_foreach(r->changes, name, change)
    {
        const char *dot = strchr(name, '.');
        if (dot == NULL || strcmp(dot, ".plugin") != 0 ||
            !(lathe_change_effect(name) & LATHE_CHANGE_FIXED))
            continue;
        json_t *from = json_object_get(change, "from"), *to = json_object_get(change, "to");
        json_t *none = json_string("none"); /* such as no quantization */
        char section[64], key[64];
        (void)json_object_set_new(r->told, name, json_true());
        lathe__resume_split_name(name, section, key);
        const lathe_status status = lathe__resume_refuse_value(
            r, section, key, json_is_null(from) ? none : from, json_is_null(to) ? none : to, "");
        json_decref(none);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}

/* ---- tokens ---- */

/* Refuses other tokens or rows than those that the run added: ids would mean other tokens, or the
 * matrices have other rows. */
static lathe_status check_tokens(lathe_resuming *r)
{
    static const char *const names[] = {"tokenizer.add_tokens", "tokenizer.add_plain",
                                        "tokenizer.add_init", "tokenizer.add_seed",
                                        "tokenizer.pad_to_multiple_of"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *change = json_object_get(r->changes, names[i]);
        if (change && !is_new_default(r, names[i], change))
            LATHE_TRY(lathe__resume_refuse_change(r, names[i], change, ""));
    }
    return LATHE_OK;
}

/* ---- the model ---- */

/* Refuses changed keys of [model] that make a different model: those among the named differences of
 * the two models, or all of them if none is. */
static lathe_status refuse_model_keys(lathe_resuming *r, const json_t *differences)
{
    const char *name;
    json_t *change;
    int named = 0;
    json_object_foreach(r->changes, name, change) named |=
        json_object_get(differences, name) != NULL;
    json_object_foreach(r->changes, name, change)
    {
        if (strncmp(name, "model.", 6) == 0 && (lathe_change_effect(name) & LATHE_CHANGE_FIXED) &&
            (!named || json_object_get(differences, name)))
            LATHE_TRY(lathe__resume_refuse_change(r, name, change, ""));
    }
    return LATHE_OK;
}

/* Refuses another tokenizer, if it decides the vocabulary size because [model] does not set it. */
static lathe_status refuse_tokenizer(lathe_resuming *r)
{
    static const char *const names[] = {"tokenizer.train", "tokenizer.path"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *change = json_object_get(r->changes, names[i]);
        if (change)
            LATHE_TRY(lathe__resume_refuse_change(r, names[i], change, ""));
    }
    return LATHE_OK;
}

/* Refuses another model when no key of [model] changed: its folder or the vocabulary did. */
static lathe_status refuse_model(lathe_resuming *r, const json_t *differences)
{
    lathe_buffer list = LATHE_BUFFER_INIT;
    const char *name, *path = r->run->set.model_path;
    json_t *change;
    int n = 0;
    if (json_object_get(differences, "model.vocab_size"))
        LATHE_TRY(refuse_tokenizer(r));
    if (r->n_refused > 0)
        return LATHE_OK;
    json_object_foreach((json_t *)(uintptr_t)differences, name, change)
    {
        lathe_buffer_printf(&list, "%s%s ", n++ ? ", " : "", name + strlen("model."));
        lathe_change_put(change, &list);
    }
    r->n_refused++;
    const lathe_status status = lathe__run_refuse(
        r->run, "model", path ? "path" : "model_type",
        "%s%s the run's model is not that of %s, from which the run would resume: %s; restore it, "
        "or %s",
        path ? path : "", path ? "/config.json:" : "the configuration changed:", r->dir,
        text_of(&list), lathe__resume_way_out(&r->run->set.checkpoint));
    lathe_buffer_fini(&list);
    return status == LATHE_E_CONFIG ? LATHE_OK : status;
}

static lathe_status check_model(lathe_resuming *r)
{
    json_t *differences = NULL;
    LATHE_TRY(lathe__resume_model_changes(r->run, r->dir, &differences));
    lathe_status status = LATHE_OK;
    if (json_object_size(differences) > 0) {
        status = refuse_model_keys(r, differences);
        if (status == LATHE_OK && r->n_refused == 0)
            status = refuse_model(r, differences);
    }
    json_decref(differences);
    if (status != LATHE_OK || r->n_refused > 0)
        return status;
    status = lathe__resume_model_check(&r->run->model, &r->run->params, r->dir);
    return is_refusal(status) || status == LATHE_E_NOT_FOUND
               ? lathe__resume_refuse_said(r, "model",
                                           r->run->set.model_path ? "path" : "model_type", "")
               : status;
}

static lathe_status check_adapter(lathe_resuming *r)
{
    const lathe_status status = lathe__resume_adapter_check(r->run, r->dir);
    return is_refusal(status) || status == LATHE_E_NOT_FOUND
               ? lathe__resume_refuse_section(r, "adapter", "name")
               : status;
}

/* Checks the frozen weights that the run reads: a base, a reference, a teacher, a reward model. */
static lathe_status check_base(lathe_resuming *r)
{
    const char *section, *key;
    const lathe_status status =
        lathe__checkpoint_check_base(lathe__run_saved(r->run), r->meta, &section, &key);
    return is_refusal(status) ? lathe__resume_refuse_model(r, section, key) : status;
}

/* ---- the data ---- */

/* The seed of the data's order: data.seed, or else train.seed. */
static json_t *data_seed(const json_t *config)
{
    json_t *own = json_object_get(json_object_get(config, "data"), "seed");
    return own ? own : json_object_get(json_object_get(config, "train"), "seed");
}

static lathe_status refuse_seed(lathe_resuming *r)
{
    const json_t *was = data_seed(r->before), *is = data_seed(r->now);
    char hint[96];
    if (was == NULL || json_equal(was, is))
        return LATHE_OK;
    if (lathe_config_is_set(r->run->config, "data", "seed"))
        return lathe__resume_refuse_value(r, "data", "seed", was, is, "");
    if (json_object_get(json_object_get(r->before, "data"), "seed"))
        return lathe__resume_refuse_value(r, "data", "seed", was, NULL, "");
    (void)snprintf(hint, sizeof hint, "set data.seed = %lld to keep the order of the data, ",
                   (long long)json_integer_value(was));
    return lathe__resume_refuse_value(r, "train", "seed", was, is, hint);
}

static lathe_status refuse_data(lathe_resuming *r)
{
    char said[1024];
    const char *name;
    json_t *change;
    (void)snprintf(said, sizeof said, "%s", lathe_error_message());
    LATHE_TRY(refuse_seed(r));
    json_object_foreach(r->changes, name, change)
    {
        if ((lathe_change_effect(name) & LATHE_CHANGE_DATA) && strcmp(name, "data.datasets") != 0)
            LATHE_TRY(lathe__resume_refuse_change(r, name, change, ""));
    }
    change = json_object_get(r->changes, "data.datasets");
    if (r->n_refused > 0)
        return change ? lathe__resume_refuse_change(r, "data.datasets", change, "") : LATHE_OK;
    lathe_buffer list = LATHE_BUFFER_INIT;
    if (change) { /* the message names the file that is new, missing or changed */
        lathe_buffer_puts(&list, "data.datasets ");
        lathe_change_put(change, &list);
    }
    (void)lathe_error(LATHE_E_STATE, "%s", said);
    const lathe_status status =
        lathe__resume_refuse_said(r, "data", "datasets", list.data ? list.data : "");
    lathe_buffer_fini(&list);
    return status;
}

/* ---- the state ---- */

/* Run.json names a plugin that is not the run's, where the manifest has no configuration: "... with
 * optimizer adamw". */
static lathe_status refuse_part(lathe_resuming *r)
{
    char kind[32];
    (void)snprintf(kind, sizeof kind, "%s", lathe_error_section());
    return kind[0] ? lathe__resume_refuse_said(r, kind, "name", "")
                   : lathe__resume_refuse_said(r, "checkpoint", "resume", "");
}

/* Refuses another precision in the middle of a step: the sums so far were computed in the old
 * one. */
static lathe_status refuse_precision(lathe_resuming *r)
{
    lathe_buffer list = LATHE_BUFFER_INIT;
    const json_t *change = json_object_get(r->changes, "train.precision");
    if (change) {
        lathe_buffer_puts(&list, "train.precision ");
        lathe_change_put(change, &list);
    }
    const lathe_status status =
        lathe__resume_refuse_said(r, "train", "precision", list.data ? list.data : "");
    lathe_buffer_fini(&list);
    return status;
}

static lathe_status check_state(lathe_resuming *r)
{
    int32_t what = LATHE_STATE_PARTS;
    const lathe_status status = lathe__train_state_check(lathe__run_saved(r->run), r->dir, &what);
    if (!is_refusal(status))
        return status;
    if (what == LATHE_STATE_DATA)
        return refuse_data(r);
    if (what == LATHE_STATE_PRECISION)
        return refuse_precision(r);
    if (what == LATHE_STATE_SLOTS)
        return lathe__resume_refuse_section(r, "optimizer", "name");
    return what == LATHE_STATE_STAGE ? lathe__resume_refuse_section(r, "stage", "name")
                                     : refuse_part(r);
}

/* ---- the training objective ---- */

/* Refuses changes of the training objective, or of what the model computes with the trained
 * weights. */
static lathe_status check_objective(lathe_resuming *r)
{
    const char *name;
    json_t *change;
    json_object_foreach(r->changes, name, change)
    {
        char hint[160];
        if (!(lathe_change_effect(name) & LATHE_CHANGE_OBJECTIVE) ||
            lathe_config_allows_change(r->run->config, name) || is_new_default(r, name, change))
            continue;
        (void)snprintf(
            hint, sizeof hint,
            "set checkpoint.allow_changed = [\"%s\"] to continue with another objective, ", name);
        LATHE_TRY(lathe__resume_refuse_change(r, name, change, hint));
    }
    return LATHE_OK;
}

/* ---- changes that are allowed ---- */

/* Whether both values are the same file or folder under two names; this is not reported. */
static int is_same_path(const json_t *change)
{
    const char *from = json_string_value(json_object_get(change, "from"));
    const char *to = json_string_value(json_object_get(change, "to"));
    char *a = from ? realpath(from, NULL) : NULL, *b = to ? realpath(to, NULL) : NULL;
    const int is_same = a && b && strcmp(a, b) == 0;
    free(a);
    free(b);
    return is_same;
}

/* Whether a key that names a model, which was relative to the folder in which the run was started
 * then, means the folder with which the run began: the manifest has its whole path. */
static int is_same_model(const lathe_resuming *r, const char *name, const json_t *change)
{
    static const char *const roles[][2] = {{"model.path", "model"},
                                           {"model.adapter", "adapter"},
                                           {"model.reference_adapter", "reference_adapter"},
                                           {"teacher.path", "teacher"},
                                           {"reward.model", "reward"}};
    const char *to = json_string_value(json_object_get(change, "to")), *was = NULL;
    const json_t *parents = json_object_get(r->meta, "parents");
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(name, roles[i][0]) == 0)
            was =
                json_string_value(json_object_get(lathe__parent_of(parents, roles[i][1]), "path"));
    char *real = was && to ? realpath(to, NULL) : NULL;
    const int is_same = real && strcmp(real, was) == 0;
    free(real);
    return is_same;
}

/* Whether a change is named in the warning about changes. After a refusal those of plugins and
 * models count, too, unless they were refused. */
static int is_to_tell(const lathe_resuming *r, const char *name, const json_t *change)
{
    const int32_t quiet = LATHE_CHANGE_QUIET | (r->n_refused == 0 ? LATHE_CHANGE_FIXED : 0);
    return !(lathe_change_effect(name) & quiet) && !is_same_path(change) &&
           !is_same_model(r, name, change) && !is_new_default(r, name, change) &&
           json_object_get(r->told, name) == NULL;
}

static lathe_status warn_of_changes(lathe_resuming *r)
{
    lathe_buffer list = LATHE_BUFFER_INIT;
    char section[64] = "", key[64] = "", other_section[64], other_key[64];
    const char *name;
    json_t *change;
    int n = 0;
    json_object_foreach(r->changes, name, change)
    {
        if (!is_to_tell(r, name, change))
            continue;
        if (n == 0)
            lathe__resume_split_name(name, section, key);
        lathe__resume_split_name(name, other_section, other_key);
        lathe_buffer_printf(&list, "%s%s.%s ", n++ ? ", " : "", other_section, other_key);
        lathe_change_put(change, &list);
    }
    if (n > 0)
        lathe__run_warn(r->run, section, key,
                        r->n_refused > 0
                            ? "further settings differ from those that %s was written with: %s"
                            : "the run resumes from %s with other settings than it was written "
                              "with: %s",
                        r->dir, text_of(&list));
    const lathe_status status = list.status;
    lathe_buffer_fini(&list);
    return status;
}

/* Warns of a program of a reward that was edited. It is no refusal, as for a reward model's
 * weights: the commonest edit mends a program that has failed, most edits change no score, and what
 * it imports is not compared. Its name and arguments are settings, which check_objective compares.
 */
static lathe_status warn_of_programs(lathe_resuming *r)
{
    lathe_buffer list = LATHE_BUFFER_INIT;
    const lathe_status status = lathe__programs_compare(r->run->config, r->meta, &list);
    if (status == LATHE_OK && list.len > 0)
        lathe__run_warn(r->run, "reward", "command",
                        "reward.command: %s since %s was written; the run goes on with the scores "
                        "of the new file",
                        text_of(&list), r->dir);
    lathe_buffer_fini(&list);
    return status;
}

/* Warns if the step in whose middle the checkpoint was written has more micro-batches than a step
 * has now: no further one is added to it. */
static lathe_status warn_of_open_step(lathe_resuming *r)
{
    const int32_t n = r->run->set.gradient_accumulation_steps;
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, r->dir, "state/run.json");
    json_t *state = NULL;
    const lathe_status status = path ? lathe_json_load_file(path, &state) : LATHE_E_NOMEM;
    const json_int_t done =
        json_integer_value(json_object_get(json_object_get(state, "accumulated"), "backwards"));
    if (status == LATHE_OK && done > n)
        lathe__run_warn(r->run, "train", "gradient_accumulation_steps",
                        "%s is in the middle of a step, with %lld micro-batches, and "
                        "train.gradient_accumulation_steps is %d now: that step ends with the "
                        "%lld, and the steps after it have %d",
                        r->dir, (long long)done, n, (long long)done, n);
    json_decref(state);
    lathe_arena_fini(&arena);
    return status;
}

/* ---- one checkpoint ---- */

static lathe_status read_configurations(lathe_resuming *r)
{
    LATHE_TRY(lathe_checkpoint_meta(r->dir, &r->meta));
    json_t *before = json_object_get(r->meta, "config");
    r->before = json_is_object(before) ? json_incref(before) : NULL;
    LATHE_TRY(lathe_config_object(r->run->config, &r->now));
    r->changes = r->before ? lathe_config_changes(r->before, r->now) : json_object();
    r->told = json_object();
    return r->changes && r->told ? LATHE_OK
                                 : lathe_error(LATHE_E_NOMEM, "no memory to compare settings");
}

/* Makes all checks, ordered so that a cause is reported before its consequences: what follows a
 * refusal looks at the settings alone, so that all changed keys are named at once. */
static lathe_status check_all(lathe_resuming *r)
{
    static const struct {
        lathe_status (*check)(lathe_resuming *);
        int of_settings;
    } checks[] = {{check_plugins, 1},    {check_tokens, 1},    {check_model, 0},
                  {check_adapter, 0},    {check_objective, 1}, {check_base, 0},
                  {check_state, 0},      {warn_of_changes, 1}, {warn_of_programs, 1},
                  {warn_of_open_step, 0}};
    LATHE_TRY(read_configurations(r));
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (r->n_refused == 0 || checks[i].of_settings)
            LATHE_TRY(checks[i].check(r));
    return LATHE_OK;
}

static lathe_status check_one(lathe_run *run, const char *dir)
{
    lathe_resuming r = {.run = run, .dir = dir};
    lathe_status status = check_all(&r);
    if (status == LATHE_OK && r.n_refused > 0)
        status = LATHE_E_CONFIG;
    json_decref(r.before);
    json_decref(r.now);
    json_decref(r.changes);
    json_decref(r.meta);
    json_decref(r.told);
    run->checkpoints.resume_checked = is_damage(status) ? NULL : dir;
    return status;
}

/* ---- the checkpoint to check ---- */

/* Checks a checkpoint; if it is damaged, adds the first line of the reason. */
static lathe_status check_or_note(lathe_run *run, const char *dir, lathe_buffer *damage)
{
    const lathe_status status = check_one(run, dir);
    if (is_damage(status)) {
        char line[512];
        lathe_buffer_puts(damage, damage->len > 0 ? "; " : "");
        lathe_buffer_puts(damage, lathe_error_line(line, sizeof line));
    }
    return status;
}

/* Checks the newest checkpoint of the folder whose files are not obviously damaged. latest: NULL
 * if the pointer names none that exists. */
static lathe_status check_folder(lathe_run *run, const char *folder, const char *latest,
                                 const lathe_checkpoint_entry *list, int64_t n)
{
    lathe_buffer damage = LATHE_BUFFER_INIT;
    lathe_status status = latest ? check_or_note(run, latest, &damage) : LATHE_E_CORRUPT;
    for (int64_t i = n - 1; i >= 0 && is_damage(status); i--)
        if (latest == NULL || strcmp(latest, list[i].path) != 0)
            status = check_or_note(run, list[i].path, &damage);
    if (is_damage(status)) /* do not suggest removing the only copy of the trained weights */
        status =
            lathe__run_refuse(run, "checkpoint", "dir",
                              "%s: all of its checkpoints are damaged: %s; nothing was changed: "
                              "restore one of these files from a copy, or choose another "
                              "checkpoint.dir to begin a new run (lathe checkpoint verify %s "
                              "lists every damaged file)",
                              folder, damage.data ? damage.data : "?", folder);
    lathe_buffer_fini(&damage);
    return status;
}

/* Checks the checkpoints of the run's folder. It is not an error if there is none. */
static lathe_status check_newest(lathe_run *run, const char *folder)
{
    lathe_checkpoint_entry *list = NULL;
    const char *latest = NULL;
    int64_t n = 0;
    if (lathe_checkpoint_resolve(&run->arena, folder, &latest) != LATHE_OK) {
        lathe_error_clear(); /* resuming takes the newest checkpoint that is whole */
        latest = NULL;
    }
    if (latest)
        LATHE_TRY(lathe_checkpoint_ahead(folder, latest, &run->arena, &latest));
    LATHE_TRY(lathe_checkpoint_list(folder, &run->arena, &list, &n));
    if (n > 0)
        return check_folder(run, folder, latest, list, n);
    if (latest == NULL)
        return LATHE_OK;
    const lathe_status status = check_one(run, latest);
    if (!is_damage(status))
        return status;
    lathe_error_clear(); /* it is no checkpoint */
    return LATHE_OK;
}

lathe_status lathe_resume_find(lathe_run *run, const char **out_dir)
{
    const char *resume = run->set.checkpoint.resume;
    const int32_t is_auto = resume && strcmp(resume, "auto") == 0;
    *out_dir = NULL;
    if (is_auto)
        resume = run->set.checkpoint.dir;
    if (lathe_resume_begins_anew(resume) || !lathe_path_is_dir(resume))
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_resolve(&run->arena, resume, out_dir));
    return is_auto ? lathe_checkpoint_ahead(resume, *out_dir, &run->arena, out_dir) : LATHE_OK;
}

lathe_status lathe_resume_meta(lathe_run *run, const char **out_dir, json_t **out_meta)
{
    *out_dir = NULL;
    *out_meta = NULL;
    lathe_status found = lathe_resume_find(run, out_dir);
    if (found == LATHE_OK && *out_dir)
        found = lathe_checkpoint_meta(*out_dir, out_meta);
    if (found != LATHE_OK && found != LATHE_E_NOMEM)
        lathe_error_clear();
    return found == LATHE_E_NOMEM ? found : LATHE_OK;
}

lathe_status lathe__resume_check(lathe_run *run)
{
    const char *resume = run->set.checkpoint.resume, *dir = NULL;
    if (lathe_resume_begins_anew(resume))
        return LATHE_OK;
    if (strcmp(resume, "auto") == 0)
        return run->set.checkpoint.dir && lathe_path_is_dir(run->set.checkpoint.dir)
                   ? check_newest(run, run->set.checkpoint.dir)
                   : LATHE_OK;
    if (!lathe_path_is_dir(resume))
        return LATHE_OK; /* refused with the configuration */
    if (lathe_checkpoint_resolve(&run->arena, resume, &dir) != LATHE_OK)
        return lathe__run_refuse(run, "checkpoint", "resume", "%s", lathe_error_message());
    const lathe_status status = check_one(run, dir);
    return is_damage(status)
               ? lathe__run_refuse(run, "checkpoint", "resume", "checkpoint.resume = \"%s\": %s",
                                   resume, lathe_error_message())
               : status;
}

lathe_status lathe__resume_check_loaded(lathe_run *run, const char *dir)
{
    if (!lathe__run_trains(run) || lathe__run_takes_batches(run) ||
        (run->checkpoints.resume_checked && strcmp(run->checkpoints.resume_checked, dir) == 0))
        return LATHE_OK;
    return check_one(run, dir);
}

/* Reads the file of a pipeline. */
#include "cmd/pipeline/pipeline_file.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/toml.h"

enum { MAX_STEPS = 64, MAX_WORDS = 3 };

/* Keys that name a model's folder, and may be "@NAME". */
static const char *const model_keys[] = {"model.path", "teacher.path", "reward.model"};
#define N_MODEL_KEYS (sizeof model_keys / sizeof model_keys[0])

/* Keys of overrides that are paths, with a word that is none. */
static const struct {
    const char *key, *words[MAX_WORDS];
} path_keys[] = {
    {"model.path", {NULL, NULL}},         {"teacher.path", {NULL, NULL}},
    {"teacher.stored", {NULL, NULL}},     {"reward.model", {NULL, NULL}},
    {"tokenizer.path", {"bytes", NULL}},  {"data.cache_dir", {NULL, NULL}},
    {"data.datasets.path", {NULL, NULL}}, {"data.validation.path", {NULL, NULL}},
    {"checkpoint.dir", {NULL, NULL}},     {"checkpoint.resume", {"auto", "never", "restart"}}};

typedef struct reading {
    lathe_arena *arena;
    lathe_diags *diags;
    lathe_pipeline *out;
    const lathe_edits *more;
} reading;

static lathe_place place_of(const reading *r, const lathe_toml_node *node, int of_key)
{
    const int use_key = of_key && node->key_line > 0;
    return (lathe_place){.file = r->out->path,
                         .line = use_key ? node->key_line : node->line,
                         .column = use_key ? node->key_column : node->column};
}

/* ---- values ---- */

int32_t lathe_pipeline_is_key(const char *written, const char *key)
{
    /* up to the last name they are the same, but for a number before it */
    const char *a = strrchr(written, '.'), *b = strrchr(key, '.');
    if (!a || !b || strcmp(a, b) != 0)
        return 0;
    size_t n = (size_t)(a - written);
    const size_t n_key = (size_t)(b - key);
    if (n > n_key + 1 && written[n_key] == '.' &&
        strspn(written + n_key + 1, "0123456789") == n - n_key - 1)
        n = n_key;
    return n == n_key && strncmp(written, key, n) == 0;
}

/* A path relative to the pipeline's file, as one for the current folder. */
static const char *join(const reading *r, const char *path)
{
    const char *slash = strrchr(r->out->path, '/');
    if (path[0] == '/' || path[0] == '@' || path[0] == '\0' || !slash)
        return path;
    return lathe_arena_printf(r->arena, "%.*s/%s", (int)(slash - r->out->path), r->out->path, path);
}

static int is_word(const char *text, const char *const words[MAX_WORDS])
{
    for (int i = 0; i < MAX_WORDS; i++)
        if (words[i] && strcmp(text, words[i]) == 0)
            return 1;
    return 0;
}

static int is_path(const char *key, const char *value)
{
    for (size_t i = 0; i < sizeof path_keys / sizeof path_keys[0]; i++)
        if (lathe_pipeline_is_key(key, path_keys[i].key))
            return !is_word(value, path_keys[i].words);
    return 0;
}

/* Makes the paths inside a table of datasets paths for the current folder. */
static lathe_status move_paths(const reading *r, lathe_toml_node *node)
{
    for (int64_t i = 0; i < node->n_children; i++) {
        lathe_toml_node *child = node->children[i];
        const int is_moved =
            child->kind == LATHE_TOML_STRING && child->key && strcmp(child->key, "path") == 0;
        if (is_moved && !(child->s = join(r, child->s)))
            return LATHE_E_NOMEM;
        LATHE_TRY(move_paths(r, child));
    }
    return LATHE_OK;
}

/* ---- one step ---- */

/* Adds one override; a string that is a path becomes one for the current folder. */
static lathe_status add_override(reading *r, lathe_pipeline_step *step, const char *key,
                                 const lathe_toml_node *node)
{
    lathe_toml_node moved = *node;
    if (node->kind == LATHE_TOML_STRING && is_path(key, node->s) && !(moved.s = join(r, node->s)))
        return LATHE_E_NOMEM;
    step->places[step->edits.n] = place_of(r, node, 1);
    lathe_toml_node *added = lathe_edits_node(&step->edits, LATHE_BY_COMMAND, key, &moved);
    if (!added)
        return LATHE_E_NOMEM;
    return strncmp(key, "data.", 5) == 0 ? move_paths(r, added) : LATHE_OK;
}

/* The number of overrides that a table holds. */
static int64_t count(const lathe_toml_node *table)
{
    int64_t n = 0;
    for (int64_t i = 0; table && i < table->n_children; i++) {
        const lathe_toml_node *child = table->children[i];
        n += child->kind == LATHE_TOML_TABLE ? child->n_children + 1 : 1;
    }
    return n;
}

/* overrides = { "train.max_steps" = 4 }, or { train = { max_steps = 4 } }. */
static lathe_status read_overrides(reading *r, const lathe_toml_node *table,
                                   const lathe_toml_node *file, lathe_pipeline_step *step)
{
    const lathe_toml_node *rewards = lathe_toml_find(file, "reward");
    const int64_t room =
        count(table) + r->more->n + (int64_t)N_MODEL_KEYS + (rewards ? rewards->n_children : 0);
    step->places = lathe_arena_alloc(r->arena, room * (int64_t)sizeof *step->places);
    if (!step->places)
        return LATHE_E_NOMEM;
    memset(step->places, 0, (size_t)room * sizeof *step->places);
    for (int64_t i = 0; table && i < table->n_children; i++) {
        const lathe_toml_node *child = table->children[i];
        if (strchr(child->key, '.')) {
            LATHE_TRY(add_override(r, step, child->key, child));
            continue;
        }
        for (int64_t k = 0; child->kind == LATHE_TOML_TABLE && k < child->n_children; k++) {
            const lathe_toml_node *inner = child->children[k];
            const char *key = lathe_arena_printf(r->arena, "%s.%s", child->key, inner->key);
            if (!key)
                return LATHE_E_NOMEM;
            LATHE_TRY(add_override(r, step, key, inner));
        }
        const lathe_place place = place_of(r, child, 1);
        if (child->kind != LATHE_TOML_TABLE)
            lathe_diags_add(
                r->diags, LATHE_DIAG_ERROR, &place, NULL,
                "overrides: '%s' is no key of a run file; expected \"section.key\", such "
                "as \"train.max_steps\"",
                child->key);
    }
    lathe_edits_take(&step->edits, r->more, 0);
    return step->edits.status;
}

/* Among the first n_steps. */
static int32_t find_step(const lathe_pipeline *p, int32_t n_steps, const char *name, size_t n)
{
    for (int32_t i = 0; i < n_steps; i++)
        if (strlen(p->steps[i].name) == n && strncmp(p->steps[i].name, name, n) == 0)
            return i;
    return -1;
}

/* The override of a key; -1: none. The last one counts. */
static int32_t find_override(const lathe_pipeline_step *step, const char *key)
{
    for (int32_t i = step->edits.n; i-- > 0;)
        if (strcmp(step->edits.list[i].key, key) == 0)
            return i;
    return -1;
}

lathe_place lathe_pipeline_place(const lathe_pipeline_step *step, const lathe_place *place)
{
    const int is_override = place->line == 0 && place->file && strncmp(place->file, "--", 2) == 0;
    const int32_t at = is_override ? find_override(step, place->file + 2) : -1;
    return at >= 0 && step->places[at].line > 0 ? step->places[at] : *place;
}

/* Records that an override is "@NAME". */
static lathe_status add_use(reading *r, lathe_pipeline_step *step, int32_t at, const char *written)
{
    const size_t n = strcspn(written + 1, "/");
    const int32_t found = find_step(r->out, (int32_t)(step - r->out->steps), written + 1, n);
    const char *rest = written + 1 + n;
    if (found < 0) {
        lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &step->place, NULL,
                        "step \"%s\": %s = \"%s\" names no earlier step of this pipeline",
                        step->name, step->edits.list[at].key, written);
        return LATHE_OK;
    }
    if (rest[0] && strcmp(rest, "/average") != 0) {
        lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &step->place, NULL,
                        "step \"%s\": %s = \"%s\"; expected \"@%.*s\", the final checkpoint, or "
                        "\"@%.*s/average\", its averaged weights",
                        step->name, step->edits.list[at].key, written, (int)n, written + 1, (int)n,
                        written + 1);
        return LATHE_OK;
    }
    step->uses[step->n_uses++] = (lathe_pipeline_use){at, found, rest, written};
    return LATHE_OK;
}

/* Records that the value of a key is "@NAME", in the step's overrides, or else in its run file
 * (`value`; NULL: it is not there). */
static lathe_status find_use(reading *r, const char *key, const lathe_toml_node *value,
                             lathe_pipeline_step *step)
{
    int32_t at = find_override(step, key);
    const lathe_toml_node *found = at >= 0 ? step->edits.list[at].value : value;
    if (!found || found->kind != LATHE_TOML_STRING || found->s[0] != '@')
        return LATHE_OK;
    const char *text = lathe_arena_strdup(r->arena, found->s);
    if (!text)
        return LATHE_E_NOMEM;
    if (at < 0) {
        at = step->edits.n;
        step->places[at] =
            (lathe_place){.file = step->run, .line = value->line, .column = value->column};
        lathe_edits_text(&step->edits, LATHE_BY_COMMAND, key, text);
        LATHE_TRY(step->edits.status);
    }
    return add_use(r, step, at, text);
}

/* Finds the keys of the step that are "@NAME". */
static lathe_status find_uses(reading *r, const lathe_toml_node *file, lathe_pipeline_step *step)
{
    const lathe_toml_node *rewards = lathe_toml_find(file, "reward");
    const int64_t n_rewards =
        rewards && rewards->kind == LATHE_TOML_ARRAY ? rewards->n_children : 0;
    const int64_t room = (int64_t)N_MODEL_KEYS + n_rewards;
    step->uses = lathe_arena_alloc(r->arena, room * (int64_t)sizeof *step->uses);
    if (!step->uses)
        return LATHE_E_NOMEM;
    for (size_t i = 0; i < N_MODEL_KEYS; i++) {
        const char *dot = strchr(model_keys[i], '.');
        const char *section = lathe_arena_strndup(r->arena, model_keys[i], dot - model_keys[i]);
        if (!section)
            return LATHE_E_NOMEM;
        LATHE_TRY(find_use(r, model_keys[i],
                           lathe_toml_find(lathe_toml_find(file, section), dot + 1), step));
    }
    for (int64_t i = 0; i < n_rewards; i++) {
        const char *key = lathe_arena_printf(r->arena, "reward.%lld.model", (long long)i);
        if (!key)
            return LATHE_E_NOMEM;
        LATHE_TRY(find_use(r, key, lathe_toml_find(rewards->children[i], "model"), step));
    }
    return LATHE_OK;
}

lathe_status lathe_pipeline_config(const lathe_pipeline_step *step, const lathe_edits *edits,
                                   lathe_diags *diags, lathe_config **out)
{
    return lathe_config_make(step->inputs->file, edits, 0, step->inputs->registry, diags, out);
}

/* Whether the step searches plugins elsewhere than the others may. */
static int names_plugins(const lathe_pipeline_step *step, const lathe_toml_node *file)
{
    for (int32_t i = 0; i < step->edits.n; i++)
        if (strncmp(step->edits.list[i].key, "plugins.", 8) == 0)
            return 1;
    return lathe_toml_find(file, "plugins") != NULL;
}

/* Gives the step its plugins: those of all steps, if it names no folders and pins of its own. */
static lathe_status take_plugins(reading *r, lathe_pipeline_step *step, const lathe_toml_node *file)
{
    if (names_plugins(step, file))
        return lathe_registry_create(&step->inputs->registry);
    if (!r->out->registry)
        LATHE_TRY(lathe_registry_create(&r->out->registry));
    lathe_run_inputs_use(step->inputs, r->out->registry);
    return LATHE_OK;
}

/* Reads checkpoint.dir of the run. Errors of the run file are found by lathe_pipeline_check_files.
 */
static lathe_status find_dir(reading *r, lathe_pipeline_step *step)
{
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    const lathe_status status = lathe_pipeline_config(step, &step->edits, &diags, &config);
    if (status == LATHE_OK) {
        const char *dir = lathe_config_string(config, "checkpoint", "dir");
        step->dir = dir && dir[0] ? lathe_arena_strdup(r->arena, dir) : NULL;
        if (!step->dir)
            lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &step->place, NULL,
                            "step \"%s\": its checkpoint.dir is empty, so that nothing would be "
                            "kept of it",
                            step->name);
    }
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    lathe_error_clear();
    return status == LATHE_E_NOMEM ? status : LATHE_OK;
}

static const char *text_of(reading *r, const lathe_toml_node *table, const char *key,
                           const lathe_place *place)
{
    const lathe_toml_node *node = lathe_toml_find(table, key);
    if (node && node->kind == LATHE_TOML_STRING && node->s[0])
        return node->s;
    lathe_diags_add(r->diags, LATHE_DIAG_ERROR, place, NULL,
                    "a step without %s; expected %s = \"...\"", key, key);
    return NULL;
}

/* Refuses names with characters that "@NAME/..." could not hold, and names that are taken. */
static void check_name(reading *r, const char *name, const lathe_place *place)
{
    if (name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") !=
                    strlen(name))
        lathe_diags_add(r->diags, LATHE_DIAG_ERROR, place, NULL,
                        "name = \"%s\"; expected letters, digits, '_', '-' and '.'", name);
    if (name && find_step(r->out, r->out->n, name, strlen(name)) >= 0)
        lathe_diags_add(r->diags, LATHE_DIAG_ERROR, place, NULL, "two steps have the name \"%s\"",
                        name);
}

static lathe_status read_step(reading *r, const lathe_toml_node *table)
{
    static const char *const known[] = {"name", "run", "overrides"};
    const lathe_place place = place_of(r, table, 0);
    const lathe_toml_node *file = NULL;
    for (int64_t i = 0; i < table->n_children; i++) {
        int found = 0;
        const lathe_place where = place_of(r, table->children[i], 1);
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            found |= strcmp(table->children[i]->key, known[k]) == 0;
        if (!found)
            lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &where, NULL,
                            "unknown key '%s' in [[step]]; expected name, run and overrides",
                            table->children[i]->key);
    }
    const char *name = text_of(r, table, "name", &place), *run = text_of(r, table, "run", &place);
    const lathe_toml_node *overrides = lathe_toml_find(table, "overrides");
    if (overrides && overrides->kind != LATHE_TOML_TABLE)
        lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &place, NULL,
                        "overrides is %s; expected { \"section.key\" = value }",
                        lathe_toml_kind_text(overrides->kind));
    check_name(r, name, &place);
    if (!name || !run || (overrides && overrides->kind != LATHE_TOML_TABLE))
        return LATHE_OK;
    lathe_pipeline_step *step = &r->out->steps[r->out->n];
    *step = (lathe_pipeline_step){.name = name, .run = join(r, run), .place = place};
    if (!step->run)
        return LATHE_E_NOMEM;
    r->out->n++; /* lathe_pipeline_fini frees what it has by now */
    LATHE_TRY(lathe_run_inputs_create(step->run, NULL, &step->inputs));
    const lathe_status status = lathe_run_file_tree(step->inputs->file, &file);
    if (status != LATHE_OK)
        lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &place, NULL, "step \"%s\": %s", name,
                        lathe_error_message());
    LATHE_TRY(read_overrides(r, overrides, file, step));
    LATHE_TRY(take_plugins(r, step, file));
    if (status != LATHE_OK)
        return LATHE_OK;
    LATHE_TRY(find_uses(r, file, step));
    return find_dir(r, step);
}

/* ---- the whole ---- */

/* Two steps in one folder would take each other's checkpoints for their own. */
static void check_dirs(const reading *r)
{
    for (int32_t i = 0; i < r->out->n; i++)
        for (int32_t k = 0; k < i; k++) {
            const lathe_pipeline_step *a = &r->out->steps[k], *b = &r->out->steps[i];
            if (a->dir && b->dir && strcmp(a->dir, b->dir) == 0)
                lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &b->place, NULL,
                                "steps \"%s\" and \"%s\" have the same checkpoint.dir, %s: give "
                                "each its own, in its run file or in its overrides",
                                a->name, b->name, a->dir);
        }
}

static lathe_status read_file(reading *r, const lathe_toml_node *root)
{
    const lathe_toml_node *steps = lathe_toml_find(root, "step");
    const lathe_place whole = {.file = r->out->path};
    for (int64_t i = 0; i < root->n_children; i++) {
        const lathe_place place = place_of(r, root->children[i], 1);
        if (strcmp(root->children[i]->key, "step") != 0)
            lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &place, NULL,
                            "unknown key '%s'; expected [[step]] tables", root->children[i]->key);
    }
    if (!steps || steps->kind != LATHE_TOML_ARRAY || steps->n_children == 0) {
        lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &whole, NULL,
                        "no steps; expected [[step]] tables with name and run");
        return LATHE_OK;
    }
    if (steps->n_children > MAX_STEPS) {
        lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &whole, NULL, "%lld steps; expected at most %d",
                        (long long)steps->n_children, MAX_STEPS);
        return LATHE_OK;
    }
    r->out->steps = lathe_arena_alloc(r->arena, steps->n_children * (int64_t)sizeof *r->out->steps);
    if (!r->out->steps)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < steps->n_children; i++) {
        if (steps->children[i]->kind == LATHE_TOML_TABLE)
            LATHE_TRY(read_step(r, steps->children[i]));
        else
            lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &whole, NULL,
                            "step is no table; expected [[step]]");
    }
    check_dirs(r);
    return LATHE_OK;
}

lathe_status lathe_pipeline_load(const char *path, const lathe_edits *more, lathe_arena *arena,
                                 lathe_diags *diags, lathe_pipeline *out)
{
    reading r = {.arena = arena, .diags = diags, .out = out, .more = more};
    lathe_toml_node *root = NULL;
    *out = (lathe_pipeline){.path = path};
    LATHE_TRY(lathe_toml_load_file(path, arena, &root));
    LATHE_TRY(read_file(&r, root));
    return lathe_diags_status(diags);
}

void lathe_pipeline_fini(lathe_pipeline *pipeline)
{
    for (int32_t i = 0; i < pipeline->n; i++) {
        lathe_edits_fini(&pipeline->steps[i].edits);
        lathe_run_inputs_release(pipeline->steps[i].inputs);
    }
    lathe_registry_destroy(pipeline->registry);
    *pipeline = (lathe_pipeline){.path = NULL};
}

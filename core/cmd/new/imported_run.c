/* Takes the keys of another trainer's run file, one after the other, by the rows of the table of
 * foreign keys. */
#include "cmd/new/imported_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/toml.h"
#include "cmd/new/yaml_tree.h"
#include "plug/core_schema.h"
#include "plug/foreign_keys.h"
#include "plug/kind.h"
#include "plug/schema_check.h"
#include "plug/synonyms.h"

static const struct {
    char letter;
    const char *name, *word;
} programs[] = {{LATHE_FOREIGN_LLAMA_FACTORY, "LLaMA-Factory", "llamafactory"},
                {LATHE_FOREIGN_TRL, "TRL", "trl"},
                {LATHE_FOREIGN_AXOLOTL, "axolotl", "axolotl"},
                {LATHE_FOREIGN_XORL, "xorl", "xorl"}};

const char *lathe_program_name(char program)
{
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        if (programs[i].letter == program)
            return programs[i].name;
    return "?";
}

char lathe_program_of(const char *name)
{
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        if (lathe_same_word(name, programs[i].word))
            return programs[i].letter;
    return 0;
}

/* ---- whose file it is, and of which stage ---- */

static const json_t *root_key(const lathe_import *io, const char *key)
{
    return json_object_get(io->root, key);
}

static lathe_status find_program(lathe_import *io)
{
    if (io->program)
        return LATHE_OK;
    if (json_is_object(root_key(io, "model")) || json_is_object(root_key(io, "train")))
        io->program = LATHE_FOREIGN_XORL;
    else if (root_key(io, "base_model"))
        io->program = LATHE_FOREIGN_AXOLOTL;
    else if (root_key(io, "finetuning_type") || root_key(io, "template") || root_key(io, "stage") ||
             root_key(io, "cutoff_len"))
        io->program = LATHE_FOREIGN_LLAMA_FACTORY;
    else if (root_key(io, "model_name_or_path"))
        io->program = LATHE_FOREIGN_TRL;
    return io->program ? LATHE_OK
                       : lathe_error(LATHE_E_CONFIG,
                                     "%s: none of its keys tells whose file it is; name it with "
                                     "--from llamafactory, trl, axolotl or xorl",
                                     io->path);
}

/* Whether all datasets of axolotl are texts to continue. */
static int is_pretraining(const lathe_import *io)
{
    const json_t *all = root_key(io, "datasets"), *one;
    size_t i;
    if (root_key(io, "pretraining_dataset"))
        return 1;
    json_array_foreach(all, i, one)
    {
        const char *type = json_string_value(json_object_get(one, "type"));
        if (type == NULL || strcmp(type, "completion") != 0)
            return 0;
    }
    return json_array_size(all) > 0;
}

/* `map a>b c>d`: copies b of the word a to out; returns 0 if the map has no such word. */
static int map_word(const char *map, const char *word, char *out, size_t bytes)
{
    const size_t n = strlen(word);
    while (*map) {
        map += strspn(map, " ");
        const size_t length = strcspn(map, " ");
        if (length > n && strncmp(map, word, n) == 0 && map[n] == '>') {
            (void)snprintf(out, bytes, "%.*s", (int)(length - n - 1), map + n + 1);
            return 1;
        }
        map += length;
    }
    return 0;
}

/* The stage of a file that says it in a key. */
static lathe_status stage_of_key(lathe_import *io, const char *key)
{
    const json_t *value = root_key(io, key);
    const lathe_foreign_key *row = lathe_foreign_key_find(io->program, "", key);
    const char *text = json_string_value(value);
    char stage[32];
    if (text == NULL || row == NULL)
        return LATHE_OK;
    if (!map_word(row->rule + strlen("map "), text, stage, sizeof stage))
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: %s = %s has no equal among Lathe's stages (lathe ls stage); name one "
            "with --stage",
            io->path, key, text);
    io->stage = lathe_arena_strdup(&io->out->arena, stage);
    return io->stage ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status find_stage(lathe_import *io)
{
    if (io->stage)
        return LATHE_OK;
    switch (io->program) {
    case LATHE_FOREIGN_LLAMA_FACTORY:
        LATHE_TRY(stage_of_key(io, "stage"));
        io->stage = io->stage ? io->stage : "sft";
        break;
    case LATHE_FOREIGN_AXOLOTL:
        LATHE_TRY(stage_of_key(io, "rl"));
        if (io->stage == NULL)
            io->stage = json_is_true(root_key(io, "reward_model")) ? "rm"
                        : is_pretraining(io)                       ? "pretrain"
                                                                   : "sft";
        break;
    case LATHE_FOREIGN_XORL:
        io->stage = json_is_true(json_object_get(root_key(io, "distill"), "enable_distillation"))
                        ? "distill"
                        : "sft";
        break;
    default:
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: a file of TRL does not say its stage; name it with --stage sft, dpo, "
            "kto, rm (trl reward) or ppo (trl grpo)",
            io->path);
    }
    return LATHE_OK;
}

/* ---- values ---- */

/* TOML has no null: an element or a member that is null is left out. */
void lathe__import_value(const json_t *value, lathe_buffer *out)
{
    const json_t *item;
    const char *key;
    size_t i;
    int n = 0;
    if (json_is_string(value))
        lathe_buffer_json_string(out, json_string_value(value));
    else if (json_is_integer(value))
        lathe_buffer_printf(out, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value) && fabs(json_real_value(value)) < 1e15 &&
             json_real_value(value) == floor(json_real_value(value))) /* 3.0 epochs */
        lathe_buffer_printf(out, "%lld", (long long)json_real_value(value));
    else if (json_is_real(value))
        lathe_buffer_json_double(out, json_real_value(value));
    else if (json_is_boolean(value))
        lathe_buffer_puts(out, json_is_true(value) ? "true" : "false");
    else if (json_is_array(value)) {
        lathe_buffer_puts(out, "[");
        json_array_foreach(value, i, item) if (!json_is_null(item))
        {
            lathe_buffer_puts(out, n++ ? ", " : "");
            lathe__import_value(item, out);
        }
        lathe_buffer_puts(out, "]");
    } else if (json_is_object(value)) {
        lathe_buffer_puts(out, "{ ");
        json_object_foreach((json_t *)(uintptr_t)value, key, item) if (!json_is_null(item))
        {
            lathe_buffer_puts(out, n++ ? ", " : "");
            lathe_buffer_json_string(out, key);
            lathe_buffer_puts(out, " = ");
            lathe__import_value(item, out);
        }
        lathe_buffer_puts(out, " }");
    }
}

/* A value as a word of a map: true, 4, fa2. */
static const char *word_of(const json_t *value, char *room, size_t bytes)
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    (void)snprintf(room, bytes, "%.9g", json_number_value(value));
    return json_is_number(value) ? room : "";
}

/* A value that switches nothing on: such a key needs no remark if it has no equal. */
static int is_off(const json_t *value)
{
    static const char *const words[] = {"", "no", "none", "false", "disabled"};
    const char *text = json_string_value(value);
    for (size_t i = 0; text && i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0)
            return 1;
    return json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_number(value) && !(fabs(json_number_value(value)) > 0.0));
}

/* One of something that is divided: the number says that it is not. */
static int is_one_part(const char *name, const json_t *value)
{
    static const char *const ends[] = {"parallel_size", "replicate_size", "parallel_degree"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return json_is_integer(value) && json_integer_value(value) == 1;
    return 0;
}

/* One key that is taken. */
typedef struct taking {
    lathe_import *io;
    const lathe_foreign_key *row;
    const char *from; /* "learning_rate", or "learning_rate, TRL's default" */
    const json_t *value;
    char section[64], key[64]; /* of the target */
} taking;

static void remark(const taking *t, const char *why)
{
    lathe_buffer value = LATHE_BUFFER_INIT;
    lathe__import_value(t->value, &value);
    lathe_run_file_remark(t->io->out, "%s = %.200s: %s", t->from, value.data ? value.data : "",
                          why);
    lathe_buffer_fini(&value);
}

static const lathe_run_key *find_key(const lathe_import *io, const char *section, const char *key)
{
    return lathe_run_file_find(io->out, section, key);
}

/* Sets section.key; a key that is set already keeps its value, and another value is a remark. */
static void set_key(const taking *t, const char *section, const char *key, const char *value,
                    int replaces)
{
    const lathe_run_key *k = find_key(t->io, section, key);
    char why[256];
    if (k == NULL) {
        lathe_run_file_set(t->io->out, section, key, value, t->from);
    } else if (replaces) {
        lathe_run_key *own = &t->io->out->keys[k - t->io->out->keys];
        own->value = lathe_arena_strdup(&t->io->out->arena, value);
        own->from = lathe_arena_strdup(&t->io->out->arena, t->from);
        if (!own->value || !own->from)
            t->io->out->status = LATHE_E_NOMEM;
    } else if (strcmp(k->value, value) != 0) {
        (void)snprintf(why, sizeof why, "%s.%s is %.100s already, from %s", section, key, k->value,
                       k->from ? k->from : "the stage");
        remark(t, why);
    }
}

static void set_target(const taking *t, const char *value, int replaces)
{
    set_key(t, t->section, t->key, value, replaces);
}

static void set_text(const taking *t, const char *text, int replaces)
{
    static const char *const plain[] = {"true", "false"};
    lathe_buffer value = LATHE_BUFFER_INIT;
    int is_plain = text[0] == '[' || /* a list, in TOML */
                   (text[0] != '\0' && text[strspn(text, "0123456789")] == '\0');
    for (size_t i = 0; i < 2; i++)
        is_plain |= strcmp(text, plain[i]) == 0;
    if (is_plain)
        lathe_buffer_puts(&value, text);
    else
        lathe_buffer_json_string(&value, text);
    if (value.data)
        set_target(t, value.data, replaces);
    lathe_buffer_fini(&value);
}

/* Whether the target counts something, and the value is a fraction: trainers read a number below 1
 * as a share of the run's steps. */
static int is_part_of_count(const taking *t)
{
    const lathe_core_section *core = lathe_core_section_find(t->section);
    const int32_t i = core ? lathe_schema_index(core->fields, core->n_fields, t->key) : -1;
    const double x = json_number_value(t->value);
    return i >= 0 && core->fields[i].type == LATHE_T_INT && json_is_real(t->value) &&
           !(fabs(x - floor(x)) <= 0.0);
}

static void set_value(const taking *t)
{
    lathe_buffer value = LATHE_BUFFER_INIT;
    char why[200];
    if (is_part_of_count(t)) {
        (void)snprintf(why, sizeof why,
                       "a share; %s.%s is a number of steps, so set it to that share of them",
                       t->section, t->key);
        remark(t, why);
        return;
    }
    lathe__import_value(t->value, &value);
    if (value.data && value.status == LATHE_OK)
        set_target(t, value.data, 0);
    lathe_buffer_fini(&value);
}

/* ---- the rules ---- */

static void take_map(const taking *t, const char *map, int replaces)
{
    char room[64], out[64];
    const json_t *item = t->value;
    int found = 0;
    for (size_t i = 0; !found && item; i++) { /* of a list, the first word that is known */
        item = json_is_array(t->value) ? json_array_get(t->value, i) : i == 0 ? t->value : NULL;
        found = item && map_word(map, word_of(item, room, sizeof room), out, sizeof out);
    }
    if (found)
        set_text(t, out, replaces);
    else if (!replaces && !is_off(t->value))
        remark(t, t->row->remark[0] ? t->row->remark : "no equal");
}

/* A list, or a text with commas, as a list of texts. */
static void take_list(const taking *t, int are_targets)
{
    lathe_buffer value = LATHE_BUFFER_INIT;
    const json_t *item;
    const char *text = json_string_value(t->value);
    size_t i;
    int n = 0;
    lathe_buffer_puts(&value, "[");
    json_array_foreach(t->value, i, item) if (!json_is_null(item))
    {
        lathe_buffer_puts(&value, n++ ? ", " : "");
        lathe__import_value(item, &value);
    }
    while (text && *text) {
        char word[256];
        const size_t length = strcspn(text, ",");
        (void)snprintf(word, sizeof word, "%.*s", (int)length, text + strspn(text, " "));
        word[strcspn(word, " ,")] = '\0';
        lathe_buffer_puts(&value, n++ ? ", " : "");
        lathe_buffer_json_string(&value,
                                 are_targets && strcmp(word, "all") == 0 ? "all-linear" : word);
        text += length + (text[length] == ',');
    }
    lathe_buffer_puts(&value, "]");
    if (value.data && n > 0)
        set_target(t, value.data, 0);
    lathe_buffer_fini(&value);
}

/* The name in the list that is `word`; NULL: none. */
static const char *find_name(const char *const *names, int64_t n, const char *word)
{
    for (int64_t i = 0; i < n; i++)
        if (lathe_same_word(word, names[i]))
            return names[i];
    return NULL;
}

/* The name of a plugin of the section's kind: itself, or a word for it. */
static void take_plugin(const taking *t)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char **names = NULL, *text = json_string_value(t->value), *section, *word;
    int64_t n = 0;
    if (lathe_registry_names(t->io->registry, lathe_kind_id(t->section), &arena, &names, &n) !=
            LATHE_OK ||
        names == NULL)
        n = 0;
    const char *found = text ? find_name(names, n, text) : NULL;
    for (int32_t k = 0; text && found == NULL && (word = lathe_synonym(text, k, &section)); k++)
        if (section == NULL)
            found = find_name(names, n, word);
    if (found)
        set_text(t, found, 0);
    else if (!is_off(t->value))
        remark(t,
               t->row->remark[0] ? t->row->remark : "there is no plugin of that name (lathe ls)");
    lathe_arena_fini(&arena);
}

/* A share below 1, or a count of examples. */
static void take_share(taking *t)
{
    const double x = json_number_value(t->value);
    if (!(x > 0.0))
        return;
    (void)snprintf(t->section, sizeof t->section, "data");
    (void)snprintf(t->key, sizeof t->key, x < 1.0 ? "validation_split" : "validation_count");
    set_value(t);
}

/* A number of steps, or below 1 a share of the run. */
static void take_warmup(taking *t)
{
    const double x = json_number_value(t->value);
    if (!(x > 0.0))
        return;
    (void)snprintf(t->section, sizeof t->section, "scheduler");
    (void)snprintf(t->key, sizeof t->key, x < 1.0 ? "warmup_ratio" : "warmup_steps");
    set_value(t);
}

/* true and "auto" are what Lathe does by itself. */
static void take_resume(const taking *t)
{
    const char *text = json_string_value(t->value);
    if (text && strcasecmp(text, "auto") != 0)
        set_value(t);
}

/* A rate of xorl's file whose optimizer is muon is that of the parameters that AdamW updates. */
static void take_muon(taking *t)
{
    const char *name = json_string_value(json_object_get(root_key(t->io, "train"), "optimizer"));
    const int is_muon = name && strcmp(name, "muon") == 0, is_lr = strcmp(t->row->rule, "lr") == 0;
    if (is_lr && is_muon)
        (void)snprintf(t->key, sizeof t->key, "adamw_lr");
    if (is_lr || is_muon)
        set_value(t);
    else if (!is_off(t->value))
        remark(t, "the optimizer is not muon");
}

static void take_special(taking *t)
{
    const char *rule = t->row->rule;
    if (strcmp(rule, "lr") == 0 || strcmp(rule, "muon") == 0) {
        take_muon(t);
    } else if (strcmp(rule, "data") == 0) {
        if (strchr(t->key, '.') == NULL) /* a key inside its tables is read with the table */
            lathe__import_data(t->io, t->key, t->from, t->value);
    } else if (strcmp(rule, "share") == 0) {
        take_share(t);
    } else if (strcmp(rule, "warmup") == 0) {
        take_warmup(t);
    } else if (strcmp(rule, "resume") == 0) {
        take_resume(t);
    } else { /* template, optimizer, scheduler */
        take_plugin(t);
    }
}

/* ORG/NAME of the Hub, which Lathe does not download. */
static void remark_model(const taking *t)
{
    const char *path = json_string_value(t->value);
    if (path && path[0] != '/' && strchr(path, '/') && !lathe_path_exists(path))
        lathe_run_file_remark(
            t->io->out,
            "\"%.200s\" is not here: hf download %.200s --local-dir DIR, then name DIR "
            "in %s",
            path, path, t->row->target);
}

static void take_by_rule(taking *t)
{
    const char *rule = t->row->rule;
    const json_t *first = json_is_array(t->value) ? json_array_get(t->value, 0) : t->value;
    if (rule[0] == '=' || strncmp(rule, "over=", 5) == 0) {
        if (!is_off(t->value))
            set_text(t, strchr(rule, '=') + 1, rule[0] != '=');
    } else if (strncmp(rule, "!=", 2) == 0) {
        if (is_off(t->value))
            set_text(t, rule + 2, 0);
    } else if (strncmp(rule, "map ", 4) == 0) {
        take_map(t, rule + 4, 0);
    } else if (strncmp(rule, "overmap ", 8) == 0) {
        take_map(t, rule + 8, 1);
    } else if (strncmp(rule, "also ", 5) == 0) {
        taking other = *t;
        (void)snprintf(other.section, sizeof other.section, "%.*s", (int)strcspn(rule + 5, "."),
                       rule + 5);
        (void)snprintf(other.key, sizeof other.key, "name");
        set_value(t);
        set_text(&other, strchr(rule, '=') + 1, 1);
    } else if (strcmp(rule, "list") == 0 || strcmp(rule, "targets") == 0) {
        take_list(t, rule[0] == 't');
    } else if (strcmp(rule, "positive") == 0) {
        if (json_number_value(t->value) > 0.0)
            set_value(t);
    } else if (strcmp(rule, "first") == 0) {
        if (json_array_size(t->value) > 1)
            remark(t, "only the first is taken");
        t->value = first;
        set_value(t);
    } else if (rule[0] == '\0' || strcmp(rule, "path") == 0) {
        set_value(t);
        if (strcmp(t->row->target, "model.path") == 0 ||
            strcmp(t->row->target, "teacher.path") == 0)
            remark_model(t);
    } else {
        take_special(t);
    }
}

/* name: as in the table, "train.lr" of a nested file. from: for the comment. */
static void take(lathe_import *io, const char *name, const char *from, const json_t *value)
{
    taking t = {.io = io, .from = from, .value = value};
    t.row = lathe_foreign_key_find(io->program, io->stage, name);
    if (t.row == NULL) {
        io->n_unknown++;
        remark(&t, "unknown key");
        return;
    }
    if (json_is_null(value))
        return;
    const char *target = t.row->target, *dot = strchr(target, '.');
    if (dot) {
        (void)snprintf(t.section, sizeof t.section, "%.*s", (int)(dot - target), target);
        (void)snprintf(t.key, sizeof t.key, "%s", dot + 1);
    }
    if (strcmp(target, "stage.name") == 0) /* found before */
        return;
    if (target[0] || t.row->rule[0])
        take_by_rule(&t);
    else if (!is_off(value) && !is_one_part(name, value))
        remark(&t, t.row->remark);
}

/* ---- what follows from the keys together ---- */

/* Values of a trainer where its file says nothing and Lathe's own default is another. stage "":
 * all. */
static const struct {
    char program;
    const char *stage, *name, *value;
} defaults[] = {
    {'L', "", "finetuning_type", "\"lora\""},
    {'L', "", "lora_rank", "8"},
    {'L', "", "lora_target", "\"all\""},
    {'L', "", "cutoff_len", "2048"},
    {'L', "", "learning_rate", "5e-5"},
    {'L', "", "num_train_epochs", "3"},
    {'L', "", "per_device_train_batch_size", "8"},
    {'L', "", "weight_decay", "0"},
    {'L', "", "lr_scheduler_type", "\"linear\""},
    {'L', "sft", "packing", "false"},
    {'T', "sft", "packing", "false"},
    {'A', "sft", "sample_packing", "false"},
    {'T', "sft", "learning_rate", "2e-5"},
    {'T', "dpo", "learning_rate", "1e-6"},
    {'T', "kto", "learning_rate", "1e-6"},
    {'T', "ppo", "learning_rate", "1e-6"},
    {'T', "rm", "learning_rate", "1e-4"},
    {'T', "", "num_train_epochs", "3"},
    {'T', "", "per_device_train_batch_size", "8"},
    {'T', "", "weight_decay", "0"},
    {'T', "", "lr_scheduler_type", "\"linear\""},
    {'T', "ppo", "num_generations", "8"},
    {'T', "ppo", "max_completion_length", "512"},
    {'T', "ppo", "loss_type", "\"dapo\""},
    {'A', "", "num_epochs", "1"},
    {'A', "", "lr_scheduler", "\"cosine\""},
    {'A', "", "weight_decay", "0"},
    {'A', "", "sequence_len", "512"},
    {'X', "", "train.lr", "5e-5"},
    {'X', "", "train.weight_decay", "0"},
    {'X', "", "data.sample_packing_sequence_len", "32000"},
    {'X', "", "lora.lora_rank", "16"},
    {'X', "", "lora.lora_alpha", "16"},
};

/* Adds the trainer's defaults; a key whose plugin is not used is taken out again afterwards. */
static void add_defaults(lathe_import *io)
{
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        const lathe_foreign_key *row;
        char from[128];
        if (defaults[i].program != io->program ||
            (defaults[i].stage[0] && strcmp(defaults[i].stage, io->stage) != 0))
            continue;
        /* a value of the file that needs no key of ours, such as packing: true, is no gap */
        const json_t *given = root_key(io, defaults[i].name);
        if (given && !json_is_null(given))
            continue;
        row = lathe_foreign_key_find(io->program, io->stage, defaults[i].name);
        const char *dot = row ? strchr(row->target, '.') : NULL;
        char section[64];
        if (dot == NULL)
            continue;
        (void)snprintf(section, sizeof section, "%.*s", (int)(dot - row->target), row->target);
        if (find_key(io, section, dot + 1))
            continue;
        json_t *value = json_loads(defaults[i].value, JSON_DECODE_ANY, NULL);
        (void)snprintf(from, sizeof from, "%s, default of %s", defaults[i].name,
                       lathe_program_name(io->program));
        if (value)
            take(io, defaults[i].name, from, value);
        json_decref(value);
    }
}

static void set_quoted(lathe_import *io, const char *section, const char *key, const char *text,
                       const char *from)
{
    lathe_buffer value = LATHE_BUFFER_INIT;
    lathe_buffer_json_string(&value, text);
    if (value.data && find_key(io, section, key) == NULL)
        lathe_run_file_set(io->out, section, key, value.data, from);
    lathe_buffer_fini(&value);
}

/* Keys that follow from others: the loss of axolotl's rl, an alpha of twice the rank, one range of
 * clipping on both sides. */
static void add_consequences(lathe_import *io)
{
    const char *rl = json_string_value(root_key(io, "rl"));
    const lathe_run_key *rank = find_key(io, "adapter", "r"),
                        *low = find_key(io, "stage", "clip_low");
    char alpha[32];
    if (io->program == LATHE_FOREIGN_AXOLOTL && rl && strcmp(io->stage, "dpo") == 0 &&
        strcmp(rl, "dpo") != 0)
        set_quoted(io, "stage", "loss_type", rl, "rl");
    if (io->program == LATHE_FOREIGN_LLAMA_FACTORY && rank && !find_key(io, "adapter", "alpha")) {
        (void)snprintf(alpha, sizeof alpha, "%lld", 2 * atoll(rank->value));
        lathe_run_file_set(io->out, "adapter", "alpha", alpha, "lora_alpha, twice the rank");
    }
    if (io->program == LATHE_FOREIGN_LLAMA_FACTORY && strcmp(io->stage, "ppo") == 0)
        set_quoted(io, "stage", "advantage", "gae", "LLaMA-Factory trains a critic");
    if (low && !find_key(io, "stage", "clip_high"))
        lathe_run_file_set(io->out, "stage", "clip_high", low->value, low->from);
    set_quoted(io, "stage", "name", io->stage, NULL);
}

/* The fields that a section may have. */
typedef struct allowed {
    const lathe_field *fields[3];
    int32_t n_fields[3];
} allowed;

static int is_allowed(void *arg, const char *key)
{
    const allowed *a = arg;
    for (int i = 0; i < 3; i++)
        if (lathe_schema_index(a->fields[i], a->n_fields[i], key) >= 0)
            return 1;
    return 0;
}

/* Takes out keys that the plugin of a section does not have: the rank of an adapter where none is
 * used, a setting of another optimizer. */
static void filter_kind(lathe_import *io, int32_t kind)
{
    const char *section = lathe_kind_name(kind);
    const lathe_run_key *named = find_key(io, section, "name");
    const lathe_core_section *core = lathe_core_section_find(section);
    const lathe_component *component = NULL;
    const char *name = lathe_kind_default(kind);
    char why[160], own[64];
    allowed a = {{NULL}, {0}};
    if (named && named->value[0] == '"') {
        (void)snprintf(own, sizeof own, "%.*s", (int)strcspn(named->value + 1, "\""),
                       named->value + 1);
        name = own;
    }
    if (lathe_kind_is_scored(kind) && named == NULL)
        return;
    if (name && lathe_registry_find(io->registry, kind, name, &component) == LATHE_OK) {
        a.fields[0] = component->plugin->fields;
        a.n_fields[0] = component->plugin->n_fields;
    }
    lathe_error_clear();
    a.fields[1] = lathe_core_kind_fields(kind, &a.n_fields[1]);
    if (core) {
        a.fields[2] = core->fields;
        a.n_fields[2] = core->n_fields;
    }
    (void)snprintf(why, sizeof why, "%s \"%s\" does not have it", section, name ? name : "none");
    lathe_run_file_filter(io->out, section, why, is_allowed, &a);
}

static void take_object(lathe_import *io, const json_t *object, const char *prefix)
{
    const json_t *value;
    const char *key;
    char name[160];
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        (void)snprintf(name, sizeof name, "%s%s", prefix, key);
        const int is_group =
            json_is_object(value) && prefix[0] == '\0' &&
            (io->program == LATHE_FOREIGN_XORL ||
             (io->program == LATHE_FOREIGN_AXOLOTL &&
              (strcmp(key, "trl") == 0 || strcmp(key, "vllm") == 0 || strcmp(key, "ebft") == 0)));
        if (is_group) {
            (void)snprintf(name, sizeof name, "%s.", key);
            take_object(io, value, name);
        } else {
            take(io, name, name, value);
        }
    }
}

lathe_status lathe_import_read(lathe_import *io)
{
    static const int32_t kinds[] = {LATHE_KIND_ADAPTER, LATHE_KIND_QUANT, LATHE_KIND_OPTIMIZER,
                                    LATHE_KIND_SCHEDULER, LATHE_KIND_STAGE};
    LATHE_TRY(lathe_yaml_read(io->path, &io->root));
    LATHE_TRY(find_program(io));
    LATHE_TRY(find_stage(io));
    take_object(io, io->root, "");
    io->out->sets_defaults = 1;
    add_defaults(io);
    add_consequences(io);
    io->out->sets_defaults = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        filter_kind(io, kinds[i]);
    return io->out->status == LATHE_OK ? LATHE_OK
                                       : lathe_error(io->out->status, "no memory for a run file");
}

void lathe_import_fini(lathe_import *io)
{
    json_decref(io->root);
    io->root = NULL;
}

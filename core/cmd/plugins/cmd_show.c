/* lathe show: prints one plugin with the keys of its table, or a section of the run file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "base/toml.h"
#include "cmd/plugins/plug_commands.h"
#include "cmd/plugins/plugin_devices.h"
#include "cmd/plugins/plugins.h"
#include "cmd/plugins/show_markdown.h"
#include "graph/ir/op_info.h"
#include "lathe/model.h"
#include "lathe/op_plugin.h"
#include "lathe/reader.h"
#include "plug/core_schema.h"
#include "plug/kind.h"
#include "plug/model_types.h"
#include "plug/schema_check.h"

/* How the fields are printed. */
enum { FORM_TEXT, FORM_JSON, FORM_MARKDOWN };

static const char *type_name(int32_t type)
{
    switch (type) {
    case LATHE_T_BOOL:
        return "bool";
    case LATHE_T_INT:
        return "int";
    case LATHE_T_FLOAT:
        return "float";
    case LATHE_T_STRING:
        return "string";
    case LATHE_T_STRING_LIST:
        return "list of strings";
    case LATHE_T_FLOAT_LIST:
        return "list of numbers";
    default:
        return "table";
    }
}

static int has_range(const lathe_field *f)
{
    return (f->type == LATHE_T_INT || f->type == LATHE_T_FLOAT || f->type == LATHE_T_FLOAT_LIST) &&
           f->min <= f->max;
}

static void json_pair(lathe_buffer *out, const char *key, const char *text)
{
    lathe_buffer_printf(out, ", \"%s\": ", key);
    if (text != NULL)
        lathe_buffer_json_string(out, text);
    else
        lathe_buffer_puts(out, "null");
}

static void json_bound(lathe_buffer *out, const char *key, double x)
{
    lathe_buffer_printf(out, ", \"%s\": ", key);
    lathe_buffer_json_double(out, x); /* infinite: null */
}

static lathe_status json_field(const lathe_field *f, lathe_arena *arena, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\"key\": ");
    lathe_buffer_json_string(out, f->key);
    json_pair(out, "type", type_name(f->type));
    lathe_buffer_puts(out, ", \"default\": ");
    if (f->default_value != NULL) {
        lathe_toml_node *node;
        LATHE_TRY(lathe_toml_literal(f->default_value, arena, &node));
        lathe_toml_json(node, out);
    } else {
        lathe_buffer_puts(out, "null");
    }
    lathe_buffer_printf(out, ", \"required\": %s",
                        f->flags & LATHE_FIELD_REQUIRED ? "true" : "false");
    if (has_range(f)) {
        json_bound(out, "min", f->min);
        json_bound(out, "max", f->max);
        lathe_buffer_printf(out, ", \"min_exclusive\": %s, \"max_exclusive\": %s",
                            f->flags & LATHE_FIELD_MIN_EXCLUSIVE ? "true" : "false",
                            f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? "true" : "false");
    }
    if (f->choices != NULL) {
        lathe_buffer_puts(out, ", \"choices\": [");
        for (const char *at = f->choices; at != NULL;) {
            const size_t n = strcspn(at, "|");
            const char *choice = lathe_arena_strndup(arena, at, (int64_t)n);
            if (choice == NULL)
                return LATHE_E_NOMEM;
            lathe_buffer_puts(out, at == f->choices ? "" : ", ");
            lathe_buffer_json_string(out, choice);
            at = at[n] == '|' ? at + n + 1 : NULL;
        }
        lathe_buffer_puts(out, "]");
    }
    json_pair(out, "unit", f->unit);
    json_pair(out, "doc", f->doc);
    lathe_buffer_puts(out, "}");
    return out->status;
}

static lathe_status json_fields(const lathe_field *fields, int32_t n, lathe_arena *arena,
                                lathe_buffer *out)
{
    lathe_buffer_puts(out, ", \"fields\": [");
    for (int32_t i = 0; i < n; i++) {
        lathe_buffer_puts(out, i ? ",\n    " : "\n    ");
        LATHE_TRY(json_field(&fields[i], arena, out));
    }
    lathe_buffer_puts(out, n ? "\n  ]" : "]");
    return out->status;
}

static void json_tensors(const char *key, const lathe_op_tensor *list, int32_t n, lathe_buffer *out)
{
    lathe_buffer_printf(out, ", \"%s\": [", key);
    for (int32_t i = 0; i < n; i++) {
        lathe_buffer_puts(out, i > 0 ? ", {\"name\": " : "{\"name\": ");
        lathe_buffer_json_string(out, list[i].name);
        json_pair(out, "shape", list[i].shape);
        lathe_buffer_printf(out, ", \"optional\": %s}",
                            list[i].flags & LATHE_TENSOR_OPTIONAL ? "true" : "false");
    }
    lathe_buffer_puts(out, "]");
}

/* Inputs, outputs, derivative and kernels of an op. */
static void json_op(const lathe_op_v1 *op, lathe_buffer *out)
{
    json_tensors("inputs", op->inputs, op->n_in, out);
    json_tensors("outputs", op->outputs, op->n_out, out);
    lathe_buffer_printf(out, ", \"has_derivative\": %s, \"kernels\": [",
                        op->derive != NULL || op->backward != NULL ? "true" : "false");
    for (int32_t i = 0; i < op->n_kernels; i++) {
        lathe_buffer_puts(out, i > 0 ? ", " : "");
        lathe_buffer_json_string(out, op->kernels[i].name);
    }
    lathe_buffer_puts(out, "]");
}

static lathe_status json_plugin(lathe_registry *registry, const lathe_component *c,
                                lathe_arena *arena, lathe_buffer *out)
{
    const lathe_plugin *p = c->plugin;
    const char *devices[LATHE_DEVICES_MOST];
    LATHE_TRY(lathe_plugin_devices(registry, c, devices));
    lathe_buffer_puts(out, "{\"kind\": ");
    lathe_buffer_json_string(out, lathe_kind_name(p->kind));
    json_pair(out, "name", p->name);
    json_pair(out, "version", p->version);
    json_pair(out, "summary", p->summary);
    json_pair(out, "source", p->source);
    json_pair(out, "license", p->license);
    json_pair(out, "family", p->family);
    json_pair(out, "path", c->path);
    lathe_buffer_printf(out, ", \"revision\": %u, \"abi\": \"%u.%u\"", p->revision, p->abi_major,
                        p->abi_minor);
    lathe_buffer_puts(out, ", \"devices\": [");
    for (int i = 0; i < LATHE_DEVICES_MOST && devices[i]; i++) {
        lathe_buffer_puts(out, i ? ", " : "");
        lathe_buffer_json_string(out, devices[i]);
    }
    lathe_buffer_puts(out, "]");
    if (p->kind == LATHE_KIND_OP)
        json_op(p->table, out);
    LATHE_TRY(json_fields(p->fields, p->n_fields, arena, out));
    lathe_buffer_puts(out, "}\n");
    return out->status;
}

static void text_range(const lathe_field *f, lathe_buffer *out)
{
    const int low = isfinite(f->min), high = isfinite(f->max);
    if (low && high)
        lathe_buffer_printf(out, "%c%.12g, %.12g%c",
                            f->flags & LATHE_FIELD_MIN_EXCLUSIVE ? '(' : '[', f->min, f->max,
                            f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? ')' : ']');
    else if (low)
        lathe_buffer_printf(out, "%s %.12g",
                            f->flags & LATHE_FIELD_MIN_EXCLUSIVE ? ">" : ">=", f->min);
    else if (high)
        lathe_buffer_printf(out, "%s %.12g",
                            f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? "<" : "<=", f->max);
}

/* Puts two lines for a field: its values, and its meaning. */
static void text_field(const lathe_field *f, lathe_buffer *out)
{
    lathe_buffer_printf(out, "  %s\n      %s", f->key, type_name(f->type));
    if (f->choices != NULL)
        lathe_buffer_printf(out, ", one of %s", f->choices);
    if (has_range(f) && (isfinite(f->min) || isfinite(f->max))) {
        lathe_buffer_puts(out, ", ");
        text_range(f, out);
    }
    if (f->unit != NULL && strcmp(f->unit, "1") != 0)
        lathe_buffer_printf(out, ", %s", f->unit);
    if (f->flags & LATHE_FIELD_REQUIRED)
        lathe_buffer_puts(out, ", required");
    else
        lathe_buffer_printf(out, ", default %s", f->default_value ? f->default_value : "unset");
    lathe_buffer_printf(out, "\n      %s\n", f->doc ? f->doc : "");
}

static void text_line(lathe_buffer *out, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0')
        lathe_buffer_printf(out, "  %-9s %s\n", key, text);
}

/* How a builder adds the op, and what its attributes are. */
static void put_call(const lathe_plugin *p, lathe_buffer *out)
{
    lathe_buffer_printf(out, "api->op(graph, \"%s\", attributes, ..)\n", p->name);
    if (p->n_fields == 0)
        lathe_buffer_puts(out, "# it has no attributes\n");
}

/* How a run file chooses the plugin, as a run file has it. A family is chosen by its model_type. */
static void put_choice(const lathe_plugin *p, const char *kind, lathe_buffer *out)
{
    const lathe_model_v1 *model = p->table;
    if (p->kind == LATHE_KIND_OP) {
        put_call(p, out);
        return;
    }
    lathe_buffer_printf(out, "[%s]\n", kind);
    for (int32_t i = 0; p->kind == LATHE_KIND_MODEL && i < model->n_types; i++)
        lathe_buffer_printf(out, "%smodel_type = \"%s\"\n", i > 0 ? "# " : "",
                            model->types[i].model_type);
    if (p->kind != LATHE_KIND_MODEL)
        lathe_buffer_printf(out, "name = \"%s\"\n", p->name);
    if (p->n_fields == 0)
        lathe_buffer_puts(out, "# it has no keys of its own\n");
}

/* The models of several towers whose text model the plugin serves. */
static void put_wrappers(const lathe_plugin *p, lathe_buffer *out)
{
    const lathe_model_v1 *model = p->table;
    const int32_t n = p->kind == LATHE_KIND_MODEL ? lathe_model_n_wrappers(model) : 0;
    for (int32_t i = 0; i < n; i++)
        lathe_buffer_printf(out, "%s%s", i > 0 ? ", " : "  inside    ",
                            model->wrappers[i].model_type);
    lathe_buffer_puts(out, n > 0 ? "\n" : "");
}

static void put_tensors(const char *title, const lathe_op_tensor *list, int32_t n,
                        lathe_buffer *out)
{
    static const struct {
        int32_t flag;
        const char *word;
    } words[] = {{LATHE_TENSOR_OPTIONAL, "optional"},
                 {LATHE_TENSOR_FIXED, "no derivative"},
                 {LATHE_TENSOR_PARAMETER, "parameter"},
                 {LATHE_TENSOR_IN_PLACE, "in place"},
                 {LATHE_TENSOR_BATCHED, "batched"}};
    for (int32_t i = 0; i < n; i++) {
        lathe_buffer_printf(out, "  %-9s %s %s", i == 0 ? title : "", list[i].name, list[i].shape);
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (list[i].flags & words[k].flag)
                lathe_buffer_printf(out, ", %s", words[k].word);
        lathe_buffer_puts(out, "\n");
    }
}

/* Inputs, outputs, derivative and kernels of an op. */
static void put_op(const lathe_plugin *p, lathe_buffer *out)
{
    const lathe_op_v1 *op = p->table;
    put_tensors("inputs", op->inputs, op->n_in, out);
    put_tensors("outputs", op->outputs, op->n_out, out);
    text_line(out, "gradient",
              op->backward != NULL ? "its own backward"
              : op->derive != NULL ? "a graph of other ops"
                                   : "none");
    lathe_buffer_printf(out, "  %-9s", "kernels");
    for (int32_t i = 0; i < op->n_kernels; i++)
        lathe_buffer_printf(out, "%s %s", i > 0 ? "," : "", op->kernels[i].name);
    lathe_buffer_puts(out, "\n");
}

static lathe_status text_plugin(lathe_registry *registry, const lathe_component *c,
                                lathe_buffer *out)
{
    const lathe_plugin *p = c->plugin;
    char devices[64];
    LATHE_TRY(lathe_plugin_devices_text(registry, c, devices, sizeof devices));
    const char *kind = lathe_kind_name(p->kind);
    lathe_buffer_printf(out, "%s/%s %s\n  %s\n\n", kind, p->name, p->version ? p->version : "",
                        p->summary ? p->summary : "");
    text_line(out, "source", p->source);
    text_line(out, "family", p->family);
    text_line(out, "devices", devices);
    text_line(out, "license", p->license);
    if (p->kind == LATHE_KIND_READER)
        text_line(out, "files", ((const lathe_reader_v1 *)p->table)->suffixes);
    if (p->kind == LATHE_KIND_OP)
        put_op(p, out);
    put_wrappers(p, out);
    text_line(out, "path", c->path);
    lathe_buffer_printf(out, "  %-9s revision %u of the %s interface, ABI %u.%u\n\n", "built for",
                        p->revision, kind, p->abi_major, p->abi_minor);
    if (p->kind == LATHE_KIND_READER)
        return out->status;
    put_choice(p, kind, out);
    for (int32_t i = 0; i < p->n_fields; i++)
        text_field(&p->fields[i], out);
    return out->status;
}

/* ---- sections, and the tables inside them ---- */

/* Puts one section or table, followed by its inner tables. */
static lathe_status put_section(const lathe_core_section *s, int is_inner, int form,
                                lathe_arena *arena, lathe_buffer *out)
{
    const char *const dot = s->key != NULL ? "." : "", *const key = s->key != NULL ? s->key : "";
    if (form == FORM_MARKDOWN) {
        if (is_inner)
            lathe_buffer_printf(out, "\n`%s%s%s`: %s\n\n", s->name, dot, key, s->doc);
        lathe_show_markdown(s->fields, s->n_fields, out);
        return out->status;
    }
    if (form == FORM_JSON) {
        lathe_buffer_printf(out, "{\"section\": \"%s%s%s\"", s->name, dot, key);
        json_pair(out, "doc", s->doc);
        return json_fields(s->fields, s->n_fields, arena, out);
    }
    lathe_buffer_printf(out, "%s[%s%s%s]  %s\n", is_inner ? "\n" : "", s->name, dot, key,
                        s->doc ? s->doc : "");
    for (int32_t i = 0; i < s->n_fields; i++)
        text_field(&s->fields[i], out);
    return out->status;
}

/* Whether a table is inside `outer`, at any depth. */
static int is_inside(const lathe_core_section *table, const lathe_core_section *outer)
{
    char path[128];
    const int n = snprintf(path, sizeof path, "%s%s%s", outer->name, outer->key ? "." : "",
                           outer->key ? outer->key : "");
    return strncmp(table->name, path, (size_t)n) == 0 &&
           (table->name[n] == '\0' || table->name[n] == '.');
}

static lathe_status show_section(const lathe_core_section *s, int form, lathe_arena *arena,
                                 lathe_buffer *out)
{
    int32_t n = 0, n_inner = 0;
    const lathe_core_section *tables = lathe_core_tables(&n);
    LATHE_TRY(put_section(s, 0, form, arena, out));
    if (form == FORM_JSON)
        lathe_buffer_puts(out, ", \"tables\": [");
    for (int32_t i = 0; i < n; i++) {
        if (!is_inside(&tables[i], s))
            continue;
        if (form == FORM_JSON)
            lathe_buffer_puts(out, n_inner++ > 0 ? ",\n  " : "\n  ");
        LATHE_TRY(put_section(&tables[i], 1, form, arena, out));
        if (form == FORM_JSON)
            lathe_buffer_puts(out, "}");
    }
    if (form == FORM_JSON)
        lathe_buffer_puts(out, "]}\n");
    return out->status;
}

/* Finds a table such as "data.datasets.columns"; NULL: there is none. */
static const lathe_core_section *find_table(const char *path)
{
    int32_t n = 0;
    const lathe_core_section *tables = lathe_core_tables(&n);
    for (int32_t i = 0; i < n; i++) {
        const size_t length = strlen(tables[i].name);
        if (strncmp(tables[i].name, path, length) == 0 && path[length] == '.' &&
            strcmp(tables[i].key, path + length + 1) == 0)
            return &tables[i];
    }
    return NULL;
}

/* Whether a kind has a plugin of this name. Opens none. */
static int is_plugin(const lathe_registry *registry, int32_t kind, const char *word,
                     lathe_arena *arena)
{
    const char **names = NULL;
    int64_t n = 0;
    if (lathe_registry_names(registry, kind, arena, &names, &n) != LATHE_OK)
        return 0;
    for (int64_t i = 0; i < n; i++)
        if (strcmp(names[i], word) == 0)
            return 1;
    return 0;
}

/* An error for a word that is neither KIND/NAME nor a section. Suggests a plugin of this name, or a
 * table of this name inside a section. */
static lathe_status unknown_word(const char *word, const lathe_registry *registry,
                                 lathe_arena *arena)
{
    int32_t n = 0;
    char near[160] = "";
    for (int32_t kind = 1; strcmp(lathe_kind_name(kind), "?") != 0; kind++)
        if (is_plugin(registry, kind, word, arena))
            (void)snprintf(near, sizeof near, "%s/%.80s", lathe_kind_name(kind), word);
    const lathe_core_section *tables = lathe_core_tables(&n);
    for (int32_t i = n - 1; i >= 0; i--)
        if (strcmp(tables[i].key, word) == 0)
            (void)snprintf(near, sizeof near, "%s.%s", tables[i].name, word);
    return lathe_error_suggest(
        lathe_error(LATHE_E_ARG,
                    "'%s' is neither KIND/NAME, such as optimizer/adamw, nor a section of the run "
                    "file, such as train",
                    word),
        near[0] ? near : NULL);
}

/* Shows an op of the core, which has no attributes of its own but lathe_op_attrs. */
static lathe_status show_core_op(int32_t op, int form, lathe_buffer *out)
{
    const lathe_op_info *info = lathe_op_info_get(op);
    const char *const derived = info->derive != NULL ? "has a derivative" : "has no derivative";
    if (form == FORM_JSON) {
        lathe_buffer_printf(
            out,
            "{\"kind\": \"op\", \"name\": \"%s\", \"of_core\": true, \"inputs\": %d, "
            "\"outputs\": %d, \"has_derivative\": %s}\n",
            info->name, info->n_in, info->n_out, info->derive != NULL ? "true" : "false");
        return out->status;
    }
    lathe_buffer_printf(
        out,
        "op/%s, an op of the core\n\n  up to %d inputs and %d outputs; %s\n  formula and "
        "attributes: lathe/op.h\n",
        info->name, info->n_in, info->n_out, derived);
    return out->status;
}

/* Shows a plugin such as "optimizer/adamw". */
static lathe_status show_plugin(const char *word, lathe_registry *registry, int form,
                                lathe_arena *arena, lathe_buffer *out)
{
    const char *slash = strchr(word, '/');
    if (slash == NULL)
        return unknown_word(word, registry, arena);
    const char *kind_name = lathe_arena_strndup(arena, word, slash - word);
    const lathe_component *component;
    int32_t kind;
    if (kind_name == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_plugcmd_kind(kind_name, &kind));
    if (kind == LATHE_KIND_OP && lathe_op_find(slash + 1) >= 0)
        return show_core_op(lathe_op_find(slash + 1), form, out);
    LATHE_TRY(lathe_registry_find(registry, kind, slash + 1, &component));
    if (form == FORM_MARKDOWN) {
        lathe_show_markdown(component->plugin->fields, component->plugin->n_fields, out);
        return out->status;
    }
    return form == FORM_JSON ? json_plugin(registry, component, arena, out)
                             : text_plugin(registry, component, out);
}

static int run(const lathe_args *args)
{
    lathe_registry *registry = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer out = LATHE_BUFFER_INIT;
    const int form = lathe_args_value(args, "--json") != NULL       ? FORM_JSON
                     : lathe_args_value(args, "--markdown") != NULL ? FORM_MARKDOWN
                                                                    : FORM_TEXT;
    lathe_core_section common = {.name = args->words[0],
                                 .doc = "keys that the core adds to every plugin of this kind"};
    const lathe_core_section *section = lathe_core_section_find(args->words[0]);
    common.fields = lathe_core_kind_fields(lathe_kind_id(args->words[0]), &common.n_fields);
    if (section == NULL)
        section = common.n_fields > 0 ? &common : find_table(args->words[0]);
    lathe_status status;
    if (section != NULL) {
        status = show_section(section, form, &arena, &out);
    } else {
        status = lathe_registry_create(&registry);
        if (status == LATHE_OK)
            status = show_plugin(args->words[0], registry, form, &arena, &out);
    }
    if (status == LATHE_OK)
        lathe_print_text(stdout, out.data);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_buffer_fini(&out);
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
    return code;
}

static const lathe_option options[] = {
    {"--json", NULL, "print one object; `fields` holds type, default, range, choices, unit, doc"},
    {"--markdown", NULL, "print the table of keys in Markdown, as in the README of a plugin"},
};

const lathe_command lathe_cmd_show = {
    .name = "show",
    .arguments = "KIND/NAME|SECTION",
    .summary = "describe a plugin and every key of its table",
    .details = "Examples: `lathe show optimizer/adamw`, `lathe show train`. The sections of\n"
               "the core are model, data, tokenizer, train, checkpoint, generate, log and\n"
               "plugins; a table inside one is shown with it, or alone: `lathe show\n"
               "data.datasets`. `lathe show optimizer` describes the keys that all optimizers\n"
               "have.",
    .options = options,
    .n_options = 2,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};

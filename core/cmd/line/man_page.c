/* Writes manual pages in roff. */
#include "cmd/line/man_page.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/line/command_table.h"
#include "plug/core_schema.h"
#include "plug/kind.h"
#include "plug/registry.h"

extern const char *lathe_version(void);

/* Puts text, escaped so that roff finds no request and no escape in it. */
static void put_text(lathe_buffer *out, const char *text)
{
    int begins_line = 1;
    for (const char *c = text; *c; c++) {
        if (begins_line && (*c == '.' || *c == '\''))
            lathe_buffer_puts(out, "\\&");
        if (*c == '\\')
            lathe_buffer_puts(out, "\\e");
        else if (*c == '-')
            lathe_buffer_puts(out, "\\-");
        else
            lathe_buffer_printf(out, "%c", *c);
        begins_line = *c == '\n';
    }
}

static void put_bold(lathe_buffer *out, const char *text)
{
    lathe_buffer_puts(out, "\\fB");
    put_text(out, text);
    lathe_buffer_puts(out, "\\fR");
}

static void put_title(lathe_buffer *out, const char *name, int section, const char *summary)
{
    lathe_buffer_puts(out, ".TH \"");
    for (const char *c = name; *c; c++)
        lathe_buffer_printf(out, "%c", *c == ' ' ? '-' : toupper((unsigned char)*c));
    lathe_buffer_printf(out, "\" %d \"\" \"lathe %s\" \"Lathe\"\n.SH NAME\n", section,
                        lathe_version());
    for (const char *c = name; *c; c++)
        lathe_buffer_puts(out, *c == ' ' || *c == '-' ? "\\-" : (const char[]){*c, '\0'});
    lathe_buffer_puts(out, " \\- ");
    put_text(out, summary);
    lathe_buffer_puts(out, "\n");
}

lathe_status lathe_man_overview(const lathe_command_list *commands, lathe_buffer *out)
{
    const int32_t n = commands->n;
    const lathe_command *const *all = commands->all;
    put_title(out, "lathe", 1, "train large language models with interchangeable parts");
    lathe_buffer_puts(out, ".SH SYNOPSIS\n\\fBlathe\\fR COMMAND [ARGUMENTS]\n.SH COMMANDS\n");
    for (int32_t i = 0; i < n; i++) {
        lathe_buffer_puts(out, ".TP\n");
        put_bold(out, all[i]->name);
        lathe_buffer_puts(out, "\n");
        put_text(out, all[i]->summary);
        lathe_buffer_puts(out, "\n");
    }
    lathe_buffer_puts(
        out,
        ".SH EXIT STATUS\n.TP\n0\nThe command did what was asked.\n.TP\n1\nIt failed.\n.TP\n2\n"
        "Its arguments, the run file or a file it names are wrong.\n.SH ENVIRONMENT\n.TP\n"
        "\\fBLATHE_PLUGIN_PATH\\fR\nFolders of plugins, with colons between them, searched "
        "before those that came with lathe.\n.SH SEE ALSO\n.BR lathe.toml (5)\n");
    return out->status;
}

static void put_options(const lathe_command *command, lathe_buffer *out)
{
    lathe_buffer_puts(out, ".SH OPTIONS\n");
    for (int32_t i = 0; i < command->n_options; i++) {
        const lathe_option *o = &command->options[i];
        char value[64];
        lathe_buffer_puts(out, ".TP\n");
        put_bold(out, o->name);
        if (o->value) {
            lathe_buffer_puts(out, " \\fI");
            (void)snprintf(value, sizeof value, "%.*s", lathe_option_value_length(o), o->value);
            put_text(out, value);
            lathe_buffer_puts(out, "\\fR");
        }
        lathe_buffer_puts(out, "\n");
        put_text(out, o->doc);
        lathe_buffer_puts(out, "\n");
    }
    if (command->takes_overrides)
        lathe_buffer_puts(out,
                          ".TP\n\\fB\\-\\-section.key\\fR \\fIVALUE\\fR\nSets a key of the run "
                          "file, as [section] key = VALUE would; see\n.BR lathe.toml (5).\n");
    lathe_buffer_puts(out, ".TP\n\\fB\\-\\-help\\fR\nPrints the same in short.\n");
}

static void put_more(const lathe_command *command, lathe_buffer *out)
{
    lathe_buffer more = LATHE_BUFFER_INIT;
    if (command->more_details == NULL)
        return;
    command->more_details(&more);
    if (more.status == LATHE_OK && more.data)
        put_text(out, more.data);
    lathe_buffer_fini(&more);
}

lathe_status lathe_man_command(const lathe_command *command, lathe_buffer *out)
{
    char name[64];
    (void)snprintf(name, sizeof name, "lathe %s", command->name);
    put_title(out, name, 1, command->summary);
    lathe_buffer_puts(out, ".SH SYNOPSIS\n");
    put_bold(out, name);
    lathe_buffer_puts(out, " ");
    put_text(out, command->arguments);
    lathe_buffer_puts(out, command->takes_overrides ? " [\\-\\-section.key VALUE ...]" : "");
    lathe_buffer_puts(out, command->n_options > 0 ? " [OPTIONS]\n" : "\n");
    if (command->details) {
        lathe_buffer_puts(out, ".SH DESCRIPTION\n.nf\n");
        put_text(out, command->details);
        put_more(command, out);
        lathe_buffer_puts(out, "\n.fi\n");
    }
    put_options(command, out);
    lathe_buffer_puts(out, ".SH SEE ALSO\n.BR lathe (1),\n.BR lathe.toml (5)\n");
    return out->status;
}

static void put_field(const lathe_field *f, lathe_buffer *out)
{
    lathe_buffer_puts(out, ".TP\n");
    put_bold(out, f->key);
    if (f->default_value) {
        lathe_buffer_puts(out, " = ");
        put_text(out, f->default_value);
    }
    if (f->flags & LATHE_FIELD_REQUIRED)
        lathe_buffer_puts(out, " (required)");
    lathe_buffer_puts(out, "\n");
    if (f->choices) {
        lathe_buffer_puts(out, "One of ");
        put_text(out, f->choices);
        lathe_buffer_puts(out, ". ");
    }
    put_text(out, f->doc ? f->doc : "");
    if (f->unit && strcmp(f->unit, "1") != 0) {
        lathe_buffer_puts(out, " (");
        put_text(out, f->unit);
        lathe_buffer_puts(out, ")");
    }
    lathe_buffer_puts(out, "\n");
}

static void put_fields(const char *title, const char *doc, const lathe_field *fields, int32_t n,
                       lathe_buffer *out)
{
    lathe_buffer_puts(out, ".SS \"");
    put_text(out, title);
    lathe_buffer_puts(out, "\"\n");
    if (doc) {
        put_text(out, doc);
        lathe_buffer_puts(out, "\n");
    }
    for (int32_t i = 0; i < n; i++)
        put_field(&fields[i], out);
}

static lathe_status put_plugins(lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_registry *registry = NULL;
    const lathe_component **list = NULL;
    int64_t n = 0;
    lathe_status status = lathe_registry_create(&registry);
    if (status == LATHE_OK)
        status = lathe_registry_scan(registry, 0);
    if (status == LATHE_OK)
        status = lathe_registry_list(registry, 0, &arena, &list, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_plugin *p = list[i]->plugin;
        char title[128];
        if (lathe_kind_chosen(p->kind) != NULL) /* a run file has no such table */
            continue;
        (void)snprintf(title, sizeof title, "[%s] name = \"%s\"", lathe_kind_name(p->kind),
                       p->name);
        for (char *c = title; *c; c++)
            *c = *c == '"' ? '\'' : *c;
        put_fields(title, p->summary, p->fields, p->n_fields, out);
    }
    lathe_registry_destroy(registry);
    lathe_arena_fini(&arena);
    return status;
}

/* Puts the tables inside a section. */
static void put_tables(const char *section, lathe_buffer *out)
{
    int32_t n = 0;
    const lathe_core_section *tables = lathe_core_tables(&n);
    const size_t length = strlen(section);
    for (int32_t i = 0; i < n; i++) {
        char title[64];
        if (strncmp(tables[i].name, section, length) != 0 ||
            (tables[i].name[length] != '\0' && tables[i].name[length] != '.'))
            continue;
        (void)snprintf(title, sizeof title, "[%s.%s]", tables[i].name, tables[i].key);
        put_fields(title, tables[i].doc, tables[i].fields, tables[i].n_fields, out);
    }
}

lathe_status lathe_man_run_file(lathe_buffer *out)
{
    int32_t n = 0;
    const lathe_core_section *sections = lathe_core_sections(&n);
    put_title(out, "lathe.toml", 5, "what a run file of lathe holds");
    lathe_buffer_puts(out,
                      ".SH DESCRIPTION\nA run is one TOML file. A table with a \\fBname\\fR "
                      "chooses a plugin; its other keys are that plugin's own. Each key can be "
                      "given on the command line as \\fB\\-\\-section.key VALUE\\fR.\n"
                      ".SH SECTIONS\n");
    for (int32_t i = 0; i < n; i++) {
        char title[64];
        (void)snprintf(title, sizeof title, "[%s]", sections[i].name);
        put_fields(title, sections[i].doc, sections[i].fields, sections[i].n_fields, out);
        put_tables(sections[i].name, out);
    }
    int32_t n_common = 0;
    const lathe_field *common = lathe_core_kind_fields(LATHE_KIND_OPTIMIZER, &n_common);
    put_fields("[optimizer]", "Keys that every optimizer has, beside its own.", common, n_common,
               out);
    put_tables("optimizer", out);
    lathe_buffer_puts(out, ".SH PLUGINS\n");
    const lathe_status status = put_plugins(out);
    lathe_buffer_puts(out, ".SH SEE ALSO\n.BR lathe (1)\n");
    return status == LATHE_OK ? out->status : status;
}

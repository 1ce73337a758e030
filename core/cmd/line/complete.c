/* Completes the word that the user is typing in a shell. */
#include "cmd/line/complete.h"

#include <stdio.h>
#include <string.h>

#include "base/print.h"
#include "cmd/line/command_table.h"
#include "plug/core_schema.h"
#include "plug/kind.h"
#include "plug/registry.h"

/* The word to complete, and the registry, which is opened when plugins are first needed. */
typedef struct request {
    const lathe_command_list *commands;
    const char *typed;
    lathe_registry *registry;
    lathe_arena arena;
} request;

static void offer(const request *r, const char *candidate)
{
    if (strncmp(candidate, r->typed, strlen(r->typed)) == 0)
        lathe_print("%s\n", candidate);
}

/* Offers "--section.key" for all fields. */
static void offer_keys(const request *r, const char *section, const lathe_field *fields, int32_t n)
{
    char text[192];
    for (int32_t i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, "--%s.%s", section, fields[i].key);
        offer(r, text);
    }
}

static lathe_status plugins(request *r, int32_t kind, const lathe_component ***out, int64_t *out_n)
{
    if (!r->registry)
        LATHE_TRY(lathe_registry_create(&r->registry));
    LATHE_TRY(lathe_registry_scan(r->registry, kind));
    return lathe_registry_list(r->registry, kind, &r->arena, out, out_n);
}

static lathe_status offer_settings(request *r)
{
    const lathe_component **list = NULL;
    int64_t n = 0;
    int32_t n_sections = 0;
    char text[64];
    const lathe_core_section *sections = lathe_core_sections(&n_sections);
    for (int32_t i = 0; i < n_sections; i++)
        if (!sections[i].key && lathe_kind_id(sections[i].name) == 0)
            offer_keys(r, sections[i].name, sections[i].fields, sections[i].n_fields);
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++) {
        int32_t n_fields = 0;
        const lathe_field *fields = lathe_core_kind_fields(kind, &n_fields);
        if (lathe_kind_chosen(kind) != NULL)
            continue;
        (void)snprintf(text, sizeof text, "--%s.name", lathe_kind_name(kind));
        offer(r, text);
        offer_keys(r, lathe_kind_name(kind), fields, n_fields);
    }
    LATHE_TRY(plugins(r, 0, &list, &n));
    for (int64_t i = 0; i < n; i++)
        if (lathe_kind_chosen(list[i]->plugin->kind) == NULL)
            offer_keys(r, lathe_kind_name(list[i]->plugin->kind), list[i]->plugin->fields,
                       list[i]->plugin->n_fields);
    return LATHE_OK;
}

static lathe_status offer_options(request *r, const lathe_command *command)
{
    for (int32_t i = 0; i < command->n_options; i++)
        offer(r, strstr(command->options[i].name, "--"));
    offer(r, "--help");
    return command->takes_overrides && strncmp(r->typed, "--", 2) == 0 && r->typed[2] != '\0'
               ? offer_settings(r)
               : LATHE_OK;
}

static void offer_kinds(const request *r)
{
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++)
        offer(r, lathe_kind_name(kind));
}

/* Offers "kind/name" of all plugins for kind 0; else the names of the plugins of the kind. */
static lathe_status offer_plugins(request *r, int32_t kind)
{
    const lathe_component **list = NULL;
    int64_t n = 0;
    char text[192];
    LATHE_TRY(plugins(r, kind, &list, &n));
    for (int64_t i = 0; i < n; i++) {
        const lathe_plugin *p = list[i]->plugin;
        (void)snprintf(text, sizeof text, "%s%s%s", kind ? "" : lathe_kind_name(p->kind),
                       kind ? "" : "/", p->name);
        offer(r, text);
    }
    return LATHE_OK;
}

/* Offers the choices "a|b|c" of a key. */
static void offer_choices(const request *r, const lathe_field *field)
{
    char text[96];
    if (field->type == LATHE_T_BOOL) {
        offer(r, "true");
        offer(r, "false");
    }
    for (const char *at = field->choices; at != NULL;) {
        const size_t n = strcspn(at, "|");
        (void)snprintf(text, sizeof text, "%.*s", (int)n, at);
        offer(r, text);
        at = at[n] == '|' ? at + n + 1 : NULL;
    }
}

static const lathe_field *find_field(const lathe_field *fields, int32_t n, const char *key)
{
    for (int32_t i = 0; i < n; i++)
        if (strcmp(fields[i].key, key) == 0)
            return &fields[i];
    return NULL;
}

/* Offers values of "--section.key". */
static lathe_status offer_values(request *r, const char *setting)
{
    const char *dot = strchr(setting, '.');
    char section[64];
    int64_t n = 0;
    const lathe_component **list = NULL;
    (void)snprintf(section, sizeof section, "%.*s", (int)(dot - setting) - 2, setting + 2);
    const lathe_core_section *core = lathe_core_section_find(section);
    const lathe_field *field = core ? find_field(core->fields, core->n_fields, dot + 1) : NULL;
    const int32_t kind = lathe_kind_id(section);
    if (kind > 0 && strcmp(dot + 1, "name") == 0)
        return offer_plugins(r, kind);
    if (kind > 0)
        LATHE_TRY(plugins(r, kind, &list, &n));
    for (int64_t i = 0; i < n && !field; i++)
        field = find_field(list[i]->plugin->fields, list[i]->plugin->n_fields, dot + 1);
    for (int64_t i = 0; i < n && kind == LATHE_KIND_MODEL && strcmp(dot + 1, "model_type") == 0;
         i++)
        offer_choices(r, find_field(list[i]->plugin->fields, list[i]->plugin->n_fields, dot + 1));
    if (field && (field->choices || field->type == LATHE_T_BOOL))
        offer_choices(r, field);
    else if (strstr(dot + 1, "path") || strstr(dot + 1, "dir"))
        lathe_print("%s\n", ":files *");
    return LATHE_OK;
}

/* Offers words by the names of the command's arguments. */
static lathe_status offer_words(request *r, const lathe_command *command)
{
    const char *text = command->arguments;
    if (strstr(text, "KIND/NAME"))
        return offer_plugins(r, 0);
    if (strstr(text, "KIND"))
        offer_kinds(r);
    else if (strstr(text, ".so"))
        lathe_print("%s\n", ":files *.so");
    else if (strstr(text, "COMMAND"))
        return LATHE_OK;
    else if (strstr(text, "RUN.toml"))
        lathe_print("%s\n", ":files *.toml");
    else if (strstr(text, "SHELL"))
        for (int i = 0; i < 3; i++)
            offer(r, (const char *const[]){"bash", "zsh", "fish"}[i]);
    else if (text[0] != '\0')
        lathe_print("%s\n", ":files *");
    return LATHE_OK;
}

/* Offers the first words of commands, or the second words after `first`. */
static void offer_commands(const request *r, const char *first)
{
    const char *last = "";
    const int32_t n = r->commands->n;
    const lathe_command *const *all = r->commands->all;
    const size_t skip = first ? strlen(first) + 1 : 0;
    for (int32_t i = 0; i < n; i++) {
        char word[64];
        if (first && (strncmp(all[i]->name, first, skip - 1) != 0 || all[i]->name[skip - 1] != ' '))
            continue;
        (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(all[i]->name + skip, " "),
                       all[i]->name + skip);
        if (first || strncmp(last, word, strlen(word)) != 0 || last[strlen(word)] != ' ')
            offer(r, word);
        last = all[i]->name;
    }
}

/* The option before the word if it takes a value, else NULL. */
static const lathe_option *option_of(const lathe_command *command, const char *word)
{
    for (int32_t i = 0; i < command->n_options; i++) {
        const lathe_option *o = &command->options[i];
        const char *full = strstr(o->name, "--");
        if (o->value && (strcmp(full, word) == 0 ||
                         (full != o->name && strlen(word) == 2 && strncmp(o->name, word, 2) == 0)))
            return o;
    }
    return NULL;
}

static lathe_status complete(request *r, int n, char *const *words)
{
    int name_words = 0;
    const char *before = n > 1 ? words[n - 2] : "";
    if (n > 2 && strcmp(before, "=") == 0) /* bash splits --key=value at the '=' */
        before = words[n - 3];
    if (n > 1 && strcmp(words[0], "help") == 0) {
        offer_commands(r, n > 2 ? words[1] : NULL);
        return LATHE_OK;
    }
    const lathe_command *command = lathe_command_match(r->commands, n - 1, words, &name_words);
    if (!command) {
        offer_commands(r, n > 1 ? words[0] : NULL);
        if (n == 1) {
            offer(r, "--help");
            offer(r, "--version");
        }
        return LATHE_OK;
    }
    if (option_of(command, before)) {
        lathe_print("%s\n", ":files *");
        return LATHE_OK;
    }
    if (strncmp(before, "--", 2) == 0 && strchr(before, '.') && command->takes_overrides)
        return offer_values(r, before);
    return r->typed[0] == '-' ? offer_options(r, command) : offer_words(r, command);
}

lathe_status lathe_complete(const lathe_command_list *commands, int n_words, char *const *words)
{
    request r = {.commands = commands,
                 .typed = n_words > 0 ? words[n_words - 1] : "",
                 .arena = LATHE_ARENA_INIT};
    char *const nothing[] = {(char[]){""}};
    if (strcmp(r.typed, "=") == 0)
        r.typed = "";
    const lathe_status status =
        n_words > 0 ? complete(&r, n_words, words) : complete(&r, 1, nothing);
    lathe_registry_destroy(r.registry);
    lathe_arena_fini(&r.arena);
    return status;
}

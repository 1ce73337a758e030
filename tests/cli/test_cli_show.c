/* `lathe ls` and `lathe show` for optimizers and schedulers: their number, and that each has a
 * source and descriptions of its keys. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static char output[1 << 16];

static void run(const char *command)
{
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    cr_assert_eq(pclose(pipe), 0, "%s", command);
}

static int is_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && text[0] != '\0';
}

/* Checks that a key has a description, a unit if it is a number, and a default or an explanation.
 */
static void check_field(const char *plugin, const json_t *field)
{
    const char *key = json_string_value(json_object_get(field, "key"));
    const char *type = json_string_value(json_object_get(field, "type"));
    cr_assert(key && type, "%s", plugin);
    cr_expect(is_text(field, "doc"), "%s: %s", plugin, key);
    if (strcmp(type, "int") == 0 || strcmp(type, "float") == 0)
        cr_expect(is_text(field, "unit"), "%s: %s has no unit", plugin, key);
    if (!json_is_null(json_object_get(field, "default")))
        return;
    const char *doc = json_string_value(json_object_get(field, "doc"));
    cr_expect(strstr(doc, "unset") || strstr(doc, "instead") || strstr(doc, "at the end") ||
                  strstr(doc, "ends at"),
              "%s: %s has no default and does not say what then: %s", plugin, key, doc);
}

static void check_show(const char *plugin)
{
    char command[256];
    size_t i;
    json_t *field;
    snprintf(command, sizeof command, LATHE " show --json %s", plugin);
    run(command);
    json_t *root = json_loads(output, 0, NULL);
    cr_assert_not_null(root, "%s:\n%s", plugin, output);
    cr_expect(is_text(root, "summary") && is_text(root, "source"), "%s", plugin);
    const json_t *fields = json_object_get(root, "fields");
    json_array_foreach(fields, i, field)
    {
        check_field(plugin, field);
    }
    snprintf(command, sizeof command, LATHE " show %s", plugin);
    run(command);
    cr_expect_not_null(strstr(output, json_string_value(json_object_get(root, "source"))), "%s",
                       output);
    json_array_foreach(fields, i, field)
    {
        snprintf(command, sizeof command, "\n  %s\n",
                 json_string_value(json_object_get(field, "key")));
        cr_expect_not_null(strstr(output, command), "%s: no %s in\n%s", plugin, command, output);
    }
    json_decref(root);
}

static int check_kind(const char *kind)
{
    static char list[sizeof output];
    char command[128];
    int n = 0;
    snprintf(command, sizeof command, LATHE " ls %s", kind);
    run(command);
    memcpy(list, output, sizeof list);
    for (char *rest = list, *line; (line = strtok_r(rest, "\n", &rest)) != NULL; n++) {
        line[strcspn(line, " ")] = '\0';
        cr_expect(strncmp(line, kind, strlen(kind)) == 0, "%s", line);
        check_show(line);
    }
    return n;
}

Test(cli_show, thirteen_optimizers_tell_source_defaults_and_units)
{
    cr_expect_eq(check_kind("optimizer"), 13);
}

Test(cli_show, eleven_schedulers_tell_source_defaults_and_units)
{
    cr_expect_eq(check_kind("scheduler"), 11);
}

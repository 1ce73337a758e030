/* lathe checkpoint diff: shows the differences between two checkpoints. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "checkpoint/state/checkpoint_diff.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "cmd/saved/saved_commands.h"

enum { SHOWN_TENSORS = 10, SHOWN_BYTES = 80 }; /* limits per part and per value without --all */

/* Orders tensors by relative change, the largest first; tensors that cannot be compared come before
 * all others. */
static int by_size(const void *a, const void *b)
{
    const lathe_change *x = *(const lathe_change *const *)a, *y = *(const lathe_change *const *)b;
    const double p = isnan(x->relative) ? (double)INFINITY : x->relative;
    const double q = isnan(y->relative) ? (double)INFINITY : y->relative;
    return p > q ? -1 : p < q ? 1 : strcmp(x->name, y->name);
}

/* Lists the changes of a part in `out` and returns their number. */
static int64_t changes_of(const lathe_checkpoint_changes *c, const char *part,
                          const lathe_change **out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++)
        if (strcmp(c->list[i].part, part) == 0)
            out[n++] = &c->list[i];
    return n;
}

/* The width of the column of names. */
static int width_of(const lathe_change *const *list, int64_t n)
{
    int width = 0;
    for (int64_t i = 0; i < n; i++)
        width = (int)strlen(list[i]->name) > width ? (int)strlen(list[i]->name) : width;
    return width;
}

/* Writes a value as JSON; shortens a long one without --all. */
static void print_value(const char *text, int all)
{
    const int n = text ? (int)strlen(text) : 0;
    if (!text)
        lathe_print("(none)");
    else if (all || n <= SHOWN_BYTES)
        lathe_print("%s", text);
    else
        lathe_print("%.*s... (%d bytes)", SHOWN_BYTES / 2, text, n);
}

/* `list`: room for all changes, which every part uses in turn. */
static void print_values(const lathe_checkpoint_changes *c, const char *part, int all,
                         const lathe_change **list)
{
    const int64_t n = changes_of(c, part, list);
    const int width = width_of(list, n);
    if (n > 0)
        lathe_print("\n%s\n", part);
    for (int64_t i = 0; i < n; i++) {
        lathe_print("  %-*s  ", width, list[i]->name);
        print_value(list[i]->from, all);
        lathe_print(" -> ");
        print_value(list[i]->to, all);
        lathe_print("\n");
    }
}

static void print_tensor(const lathe_change *t, int width)
{
    lathe_print("  %-*s", width, t->name);
    if (t->from && t->to)
        lathe_print("  %s -> %s", t->from, t->to);
    else if (t->from || t->to)
        lathe_print("  %s only in %s", t->from ? t->from : t->to, t->from ? "a" : "b");
    if (t->n_differ == 0)
        lathe_print("  the same values");
    else if (t->n_differ > 0)
        lathe_print("  %lld of %lld differ, |b-a| at most %.3g, %.3g of the largest |a|",
                    (long long)t->n_differ, (long long)t->n_elements, t->max_change, t->relative);
    lathe_print("\n");
}

static void print_tensors(const lathe_checkpoint_changes *c, const lathe_changed_file *file,
                          int all, const lathe_change **list)
{
    const int64_t n = changes_of(c, file->part, list);
    const int64_t shown = all || n <= SHOWN_TENSORS ? n : SHOWN_TENSORS;
    lathe_print("\n%s: %lld of %lld tensors differ\n", file->part, (long long)file->n_differ,
                (long long)file->n);
    /* the largest changes come first, since the list is cut without --all */
    qsort((void *)list, (size_t)n, sizeof *list, by_size);
    const int width = width_of(list, shown);
    for (int64_t i = 0; i < shown; i++)
        print_tensor(list[i], width);
    if (n > shown)
        lathe_print("  and %lld with smaller changes; --all shows them\n", (long long)(n - shown));
}

static lathe_status print_text(const char *a, const char *b, const lathe_checkpoint_changes *c,
                               int all)
{
    static const char *const values[] = {"lathe", "plugins", "config", "state"};
    const lathe_change **list = malloc(((size_t)c->n + 1) * sizeof *list);
    if (!list)
        return lathe_error(LATHE_E_NOMEM, "no memory to print the differences");
    lathe_print("a  %s\nb  %s\n", a, b);
    for (int i = 0; i < 4; i++)
        print_values(c, values[i], all, list);
    for (int32_t i = 0; i < c->n_files; i++)
        print_tensors(c, &c->files[i], all, list);
    free((void *)list);
    return LATHE_OK;
}

/* A value as JSON, as it was in the file; null if one side lacks it. A dtype with a shape, which is
 * no JSON, becomes a string. */
static json_t *value_of(const char *text)
{
    json_t *value = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    return value ? value : text ? json_string(text) : json_null();
}

static void print_json(const char *a, const char *b, const lathe_checkpoint_changes *c)
{
    json_t *root = json_object(), *changes = json_array(), *tensors = json_object();
    for (int64_t i = 0; i < c->n; i++) {
        const lathe_change *x = &c->list[i];
        json_t *one = json_pack("{s:s, s:s, s:o, s:o}", "part", x->part, "name", x->name, "from",
                                value_of(x->from), "to", value_of(x->to));
        if (x->n_elements > 0) {
            (void)json_object_set_new(one, "elements", json_integer((json_int_t)x->n_elements));
            (void)json_object_set_new(one, "differ",
                                      x->n_differ >= 0 ? json_integer((json_int_t)x->n_differ)
                                                       : json_null());
            (void)json_object_set_new(
                one, "largest", isfinite(x->max_change) ? json_real(x->max_change) : json_null());
            (void)json_object_set_new(one, "relative",
                                      isfinite(x->relative) ? json_real(x->relative) : json_null());
        }
        (void)json_array_append_new(changes, one);
    }
    for (int32_t i = 0; i < c->n_files; i++)
        (void)json_object_set_new(tensors, c->files[i].part,
                                  json_pack("{s:I, s:I}", "differ",
                                            (json_int_t)c->files[i].n_differ, "of",
                                            (json_int_t)c->files[i].n));
    (void)json_object_set_new(root, "a", json_string(a));
    (void)json_object_set_new(root, "b", json_string(b));
    (void)json_object_set_new(root, "changes", changes);
    (void)json_object_set_new(root, "tensors", tensors);
    lathe_print_json(stdout, root, JSON_INDENT(2));
    json_decref(root);
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_changes changes = {.arena = LATHE_ARENA_INIT};
    const char *a = NULL, *b = NULL;
    int code = LATHE_EXIT_OK;
    lathe_status status = lathe_checkpoint_resolve(&arena, args->words[0], &a);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_checkpoint_resolve(&arena, args->words[1], &b)) != LATHE_OK)
        goto out;
    if ((status = lathe_checkpoint_diff(a, b, &changes)) != LATHE_OK)
        goto out;
    if (lathe_args_value(args, "--json") != NULL)
        print_json(a, b, &changes);
    else
        status = print_text(a, b, &changes, lathe_args_value(args, "--all") != NULL);
    if (changes.n > 0) /* like diff(1), so that scripts can ask */
        code = LATHE_EXIT_FAILED;
out:
    if (status != LATHE_OK)
        code = lathe_args_fail(args, status);
    lathe_checkpoint_changes_fini(&changes);
    lathe_arena_fini(&arena);
    return code;
}

static const lathe_option options[] = {
    {"--all", NULL,
     "print every tensor and whole values; otherwise the ten tensors of each part that changed "
     "most"},
    {"--json", NULL, "print one object: a, b, changes, tensors"},
};

const lathe_command lathe_cmd_checkpoint_diff = {
    .name = "checkpoint diff",
    .arguments = "A B",
    .summary = "show the differences between two checkpoints",
    .details =
        "Compares plugins and their versions, configuration keys and counters of the\n"
        "state. For each tensor it prints how many elements differ, the largest |b-a|,\n"
        "and its ratio to the largest |a|. The folder of a run, or its run file, means its\n"
        "latest checkpoint, DIR/best means its best. Exit 0: no difference. Exit 1: there are\n"
        "differences, or a checkpoint cannot be read.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 2,
    .max_words = 2,
    .names_runs = 1,
    .names_models = 1,
    .run = run,
};

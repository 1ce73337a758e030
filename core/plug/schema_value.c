/* One value of a schema: from TOML, checked by type, range and choice, and back to JSON. */
#include "plug/schema_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "plug/suggest.h"

/* Destination of the error text, and the arena of the result. */
struct check {
    const lathe_field *field;
    lathe_arena *arena;
    char *why;
    int64_t why_bytes;
    const char **suggestion;
};

__attribute__((format(printf, 2, 3))) static lathe_status misfit(const struct check *check,
                                                                 const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(check->why, (size_t)check->why_bytes, format, args);
    va_end(args);
    return LATHE_E_CONFIG;
}

const char *lathe_type_text(int32_t type)
{
    static const char *const texts[] = {"nothing",           "true or false", "an integer",
                                        "a number",          "a string",      "a list of strings",
                                        "a list of numbers", "a table"};
    return type > 0 && type <= LATHE_T_TABLE ? texts[type] : texts[0];
}

/* Checks a number against the range of the field. */
static lathe_status check_number(const struct check *check, const lathe_toml_node *node)
{
    const lathe_field *field = check->field;
    const double x = node->f;
    const int open_min = (field->flags & LATHE_FIELD_MIN_EXCLUSIVE) != 0;
    const int open_max = (field->flags & LATHE_FIELD_MAX_EXCLUSIVE) != 0;
    if (isnan(x))
        return misfit(check, "is not a number");
    if (field->min > field->max)
        return LATHE_OK;
    const int low = x < field->min || (open_min && x <= field->min);
    const int high = x > field->max || (open_max && x >= field->max);
    if (!low && !high)
        return LATHE_OK;
    /* Bounds beyond 2^53 mean "no bound"; show them only if the value exceeds them. */
    const int show_min = field->min > -9e15 || low, show_max = field->max < 9e15 || high;
    char range[160];
    if (show_min && show_max)
        (void)snprintf(range, sizeof range, "%s %.10g and %s %.10g",
                       open_min ? "above" : "at least", field->min, open_max ? "below" : "at most",
                       field->max);
    else if (show_min)
        (void)snprintf(range, sizeof range, "%s %.10g", open_min ? "above" : "at least",
                       field->min);
    else
        (void)snprintf(range, sizeof range, "%s %.10g", open_max ? "below" : "at most", field->max);
    if (node->kind == LATHE_TOML_BIG)
        return misfit(check, "is %s, expected %s", node->s, range);
    if (node->kind == LATHE_TOML_INT)
        return misfit(check, "is %lld, expected %s", (long long)node->i, range);
    return misfit(check, "is %.10g, expected %s", x, range);
}

/* Checks that text is one of "a|b|c". If not, suggests the nearest choice. */
static lathe_status check_choice(const struct check *check, const char *text)
{
    const char *choices = check->field->choices, *words[64];
    int64_t n = 0;
    if (choices == NULL)
        return LATHE_OK;
    for (const char *at = choices; n < 64; at++) {
        const size_t length = strcspn(at, "|");
        if (strlen(text) == length && strncmp(at, text, length) == 0)
            return LATHE_OK;
        if ((words[n++] = lathe_arena_strndup(check->arena, at, (int64_t)length)) == NULL)
            return LATHE_E_NOMEM;
        at += length;
        if (*at == '\0')
            break;
    }
    char list[256];
    size_t used = 0;
    for (int64_t i = 0; i < n && used < sizeof list; i++) {
        const int wrote =
            snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", words[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (check->suggestion != NULL)
        *check->suggestion = lathe_suggest(text, words, n);
    return misfit(check, "is \"%s\", expected one of %s", text, list);
}

/* A number that does not fit in 64 bits: outside the field's range, or larger than any number. */
static lathe_status big_number(const struct check *check, const lathe_toml_node *node)
{
    if (isfinite(node->f))
        LATHE_TRY(check_number(check, node));
    return misfit(check, "is %s, which does not fit in 64 bits", node->s);
}

static lathe_status wrong_type(const struct check *check, const lathe_toml_node *node)
{
    const int32_t type = check->field->type;
    if (node->kind == LATHE_TOML_BIG && (type == LATHE_T_INT || type == LATHE_T_FLOAT))
        return big_number(check, node);
    if (check->field->type == LATHE_T_INT && node->kind == LATHE_TOML_FLOAT &&
        node->f == floor(node->f) && fabs(node->f) < 9e15)
        return misfit(check, "is a floating number, expected an integer: write %.0f", node->f);
    if (check->field->type == LATHE_T_STRING && node->origin == NULL)
        return misfit(check, "is %s, expected a string: put it in quotes",
                      lathe_toml_kind_text(node->kind));
    if (type == LATHE_T_TABLE && check->field->doc != NULL)
        return misfit(check, "is %s, expected a table: %s", lathe_toml_kind_text(node->kind),
                      check->field->doc);
    return misfit(check, "is %s, expected %s", lathe_toml_kind_text(node->kind),
                  lathe_type_text(type));
}

/* Reads an array of strings; on the command line also "a,b". */
static lathe_status take_strings(const struct check *check, const lathe_toml_node *node,
                                 lathe_value *out)
{
    int64_t n = node->n_children;
    const int typed = node->kind != LATHE_TOML_ARRAY && node->origin != NULL && node->s != NULL;
    if (typed) {
        n = 1;
        for (const char *at = node->s; *at != '\0'; at++)
            n += *at == ',';
    } else if (node->kind != LATHE_TOML_ARRAY) {
        return wrong_type(check, node);
    }
    const char **strs = lathe_arena_alloc(check->arena, n * (int64_t)sizeof *strs);
    if (strs == NULL)
        return LATHE_E_NOMEM;
    const char *at = node->s;
    for (int64_t i = 0; i < n; i++) {
        if (typed) {
            const size_t length = strcspn(at, ",");
            strs[i] = lathe_arena_strndup(check->arena, at, (int64_t)length);
            at += length + 1;
        } else if (node->children[i]->kind == LATHE_TOML_STRING) {
            strs[i] = node->children[i]->s;
        } else {
            return misfit(check, "holds %s, expected strings only",
                          lathe_toml_kind_text(node->children[i]->kind));
        }
        if (strs[i] == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(check_choice(check, strs[i]));
    }
    out->strs = strs;
    out->n = n;
    return LATHE_OK;
}

static lathe_status take_numbers(const struct check *check, const lathe_toml_node *node,
                                 lathe_value *out)
{
    if (node->kind != LATHE_TOML_ARRAY)
        return wrong_type(check, node);
    double *nums = lathe_arena_alloc(check->arena, node->n_children * (int64_t)sizeof *nums);
    if (nums == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < node->n_children; i++) {
        const lathe_toml_node *child = node->children[i];
        if (child->kind != LATHE_TOML_INT && child->kind != LATHE_TOML_FLOAT)
            return misfit(check, "holds %s, expected numbers only",
                          lathe_toml_kind_text(child->kind));
        LATHE_TRY(check_number(check, child));
        if ((check->field->flags & LATHE_FIELD_WHOLE) && child->f != floor(child->f))
            return misfit(check, "holds %g, expected whole numbers only", child->f);
        nums[i] = child->f;
    }
    out->nums = nums;
    out->n = node->n_children;
    return LATHE_OK;
}

/* Stores a table or an array of tables as JSON text. */
static lathe_status take_table(const struct check *check, const lathe_toml_node *node,
                               lathe_value *out)
{
    if (node->kind != LATHE_TOML_TABLE && node->kind != LATHE_TOML_ARRAY)
        return wrong_type(check, node);
    for (int64_t i = 0; node->kind == LATHE_TOML_ARRAY && i < node->n_children; i++)
        if (node->children[i]->kind != LATHE_TOML_TABLE)
            return misfit(check, "holds %s, expected tables only",
                          lathe_toml_kind_text(node->children[i]->kind));
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_toml_json(node, &text);
    if (text.status == LATHE_OK)
        out->s = lathe_arena_strdup(check->arena, text.data);
    lathe_buffer_fini(&text);
    return out->s != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe_value_from_toml(const lathe_field *field, const lathe_toml_node *node,
                                   lathe_arena *arena, lathe_value *out, char *why,
                                   int64_t why_bytes, const char **out_suggestion)
{
    const struct check check = {field, arena, why, why_bytes, out_suggestion};
    memset(out, 0, sizeof *out);
    out->type = field->type;
    out->is_set = 1;
    switch (field->type) {
    case LATHE_T_BOOL:
        out->i = node->i;
        return node->kind == LATHE_TOML_BOOL ? LATHE_OK : wrong_type(&check, node);
    case LATHE_T_INT:
    case LATHE_T_FLOAT:
        if (node->kind != LATHE_TOML_INT &&
            (node->kind != LATHE_TOML_FLOAT || field->type == LATHE_T_INT))
            return wrong_type(&check, node);
        out->i = node->i;
        out->f = node->f;
        return check_number(&check, node);
    case LATHE_T_STRING:
        /* On the command line, --model.path 7 means the folder "7". */
        if (node->kind != LATHE_TOML_STRING && (node->origin == NULL || node->s == NULL))
            return wrong_type(&check, node);
        out->s = node->s;
        return check_choice(&check, node->s);
    case LATHE_T_STRING_LIST:
        return take_strings(&check, node, out);
    case LATHE_T_FLOAT_LIST:
        return take_numbers(&check, node, out);
    default:
        return take_table(&check, node, out);
    }
}

void lathe_value_json(const lathe_value *value, lathe_buffer *out)
{
    if (!value->is_set) {
        lathe_buffer_puts(out, "null");
        return;
    }
    switch (value->type) {
    case LATHE_T_BOOL:
        lathe_buffer_puts(out, value->i ? "true" : "false");
        break;
    case LATHE_T_INT:
        lathe_buffer_printf(out, "%lld", (long long)value->i);
        break;
    case LATHE_T_FLOAT:
        lathe_buffer_json_double(out, value->f);
        break;
    case LATHE_T_STRING:
        lathe_buffer_json_string(out, value->s);
        break;
    case LATHE_T_TABLE:
        lathe_buffer_puts(out, value->s);
        break;
    default:
        lathe_buffer_puts(out, "[");
        for (int64_t i = 0; i < value->n; i++) {
            if (i > 0)
                lathe_buffer_puts(out, ", ");
            if (value->type == LATHE_T_STRING_LIST)
                lathe_buffer_json_string(out, value->strs[i]);
            else
                lathe_buffer_json_double(out, value->nums[i]);
        }
        lathe_buffer_puts(out, "]");
        break;
    }
}

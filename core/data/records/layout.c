/* Finds the layouts of a dataset. */
#include "data/records/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "data/records/record_keys.h"
#include "data/records/row_kind.h"

/* The layout "alpaca" of LLaMA-Factory: instruction and input are joined by a line end; an empty
 * input is left out. */
static lathe_format_part alpaca_prompt[] = {{"", 0, LATHE_RECORD_INSTRUCTION, 0, 0},
                                            {"\n", 1, LATHE_RECORD_INPUT, 0, 1}};
static lathe_format_part alpaca_output[] = {{"", 0, LATHE_RECORD_OUTPUT, 0, 0}};

typedef struct known_layout {
    const char *text;
    lathe_format columns[LATHE_N_COLUMNS];
} known_layout;

#define BY_TEMPLATE "; where there is a chat template, it writes them as conversations"

/* The known layout for each LATHE_ROWS_*. A column without a format is read as in the dataset's own
 * layout. */
static const known_layout known[LATHE_N_ROW_KINDS] = {
    [LATHE_ROWS_PAIRS] = {"alpaca records: prompt from instruction and input" BY_TEMPLATE,
                          {[LATHE_COLUMN_PROMPT] = {alpaca_prompt, 2, 0}}},
    [LATHE_ROWS_COMPLETIONS] = {"alpaca records: prompt from instruction and input, completion "
                                "from output" BY_TEMPLATE,
                                {[LATHE_COLUMN_PROMPT] = {alpaca_prompt, 2, 0},
                                 [LATHE_COLUMN_COMPLETION] = {alpaca_output, 1, 0}}},
    [LATHE_ROWS_UNPAIRED] = {"alpaca records: prompt from instruction and input, completion from "
                             "output" BY_TEMPLATE,
                             {[LATHE_COLUMN_PROMPT] = {alpaca_prompt, 2, 0},
                              [LATHE_COLUMN_COMPLETION] = {alpaca_output, 1, 0}}},
};

/* Names that other programs give to the fields of a stage's inputs: LLaMA-Factory's label of kto.
 */
static const char *const other_names[][2] = {{"label", LATHE_RECORD_KTO_TAG}};
enum { N_OTHER_NAMES = sizeof other_names / sizeof other_names[0] };

/* The known layout of rows; one without a text where there is none. */
static const known_layout *known_of(int32_t rows)
{
    return &known[lathe_rows_kind(rows)];
}

const char *lathe_layout_known_text(int32_t rows)
{
    return known_of(rows)->text;
}

/* Gives each field of the format its number. */
static lathe_status number_fields(lathe_layouts *l, lathe_format *format)
{
    for (int32_t i = 0; i < format->n; i++) {
        lathe_format_part *part = &format->parts[i];
        if (part->name == NULL)
            continue;
        int32_t f = 0;
        while (f < l->n_fields && strcmp(l->fields[f], part->name))
            f++;
        if (f == LATHE_MAX_FIELDS)
            return lathe_error(LATHE_E_CONFIG,
                               "the columns are made of more than %d different fields",
                               LATHE_MAX_FIELDS);
        l->fields[f] = part->name;
        l->n_fields += f == l->n_fields;
        part->field = f;
    }
    return LATHE_OK;
}

static lathe_status parse_format(lathe_layouts *l, const lathe_dataset *dataset, int32_t c)
{
    char where[32];
    lathe_format *out = &l->list[LATHE_LAYOUT_OWN].columns[c];
    (void)snprintf(where, sizeof where, "format.%s", lathe_column_name(c));
    if (dataset->columns[c])
        return lathe_error(LATHE_E_CONFIG,
                           "%s: columns.%s gives the same column; take one of them out", where,
                           lathe_column_name(c));
    LATHE_TRY(lathe_format_parse(where, dataset->formats[c], &l->arena, out));
    for (int32_t i = 0; i < out->n; i++)
        if (out->parts[i].name || c == LATHE_COLUMN_PROMPT) /* a prompt may be the same for all */
            return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s = \"%s\" names no field; write {NAME} for a field of the record", where,
                       dataset->formats[c]);
}

/* Makes the own layout's format of a column: the one that the dataset gives, or the field that has
 * the column's name. */
static lathe_status own_column(lathe_layouts *l, const lathe_dataset *dataset, int32_t c)
{
    lathe_format *out = &l->list[LATHE_LAYOUT_OWN].columns[c];
    l->is_format[c] = dataset->formats[c] != NULL;
    if (l->is_format[c]) {
        LATHE_TRY(parse_format(l, dataset, c));
    } else {
        out->parts = lathe_arena_alloc(&l->arena, (int64_t)sizeof *out->parts);
        if (out->parts == NULL)
            return LATHE_E_NOMEM;
        out->n = 1;
        out->parts[0].text = "";
        out->parts[0].name = dataset->columns[c] ? dataset->columns[c] : lathe_column_name(c);
    }
    return number_fields(l, out);
}

/* Adds the known layout to a dataset that gives no columns itself. */
static lathe_status add_known(lathe_layouts *l, int32_t rows)
{
    lathe_layout *own = &l->list[LATHE_LAYOUT_OWN], *out = &l->list[LATHE_LAYOUT_KNOWN];
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        const lathe_format *from = &known_of(rows)->columns[c];
        out->columns[c] = own->columns[c];
        if (from->n > 0) {
            const int64_t bytes = from->n * (int64_t)sizeof *from->parts;
            lathe_format *to = &out->columns[c];
            *to = (lathe_format){.parts = lathe_arena_alloc(&l->arena, bytes), .n = from->n};
            if (to->parts == NULL)
                return LATHE_E_NOMEM;
            memcpy(to->parts, from->parts, (size_t)bytes);
            LATHE_TRY(number_fields(l, to));
            out->others |= 1u << own->columns[c].parts[0].field;
        }
        for (int32_t i = 0; i < out->columns[c].n; i++)
            if (!out->columns[c].parts[i].may_be_out)
                out->needs |= 1u << out->columns[c].parts[i].field;
    }
    l->n = LATHE_N_LAYOUTS;
    return LATHE_OK;
}

/* Gives a number to a field that is read by itself, not as a part of a format. */
static lathe_status number_field(lathe_layouts *l, const char *name, int32_t *out)
{
    lathe_format_part part = {.text = "", .name = name};
    lathe_format format = {.parts = &part, .n = 1};
    LATHE_TRY(number_fields(l, &format));
    *out = part.field;
    return LATHE_OK;
}

/* Finds the field of conversations, which replace the main column of the rows, or are the prompt of
 * a pair. */
static lathe_status find_messages(lathe_layouts *l, const lathe_dataset *dataset, int32_t rows)
{
    const int32_t column = lathe_row_kind_get(rows)->main;
    l->messages = l->main = l->sharegpt = -1;
    l->is_prompt = column < 0;
    const lathe_format *own = column < 0 ? NULL : &l->list[LATHE_LAYOUT_OWN].columns[column];
    for (int32_t i = 0; own && i < own->n && l->main < 0; i++)
        l->main = own->parts[i].name ? own->parts[i].field : -1;
    LATHE_TRY(number_field(l, lathe_dataset_messages(dataset), &l->messages));
    return dataset->messages ? LATHE_OK : number_field(l, LATHE_RECORD_SHAREGPT, &l->sharegpt);
}

static int has_input(const lathe_dataset *dataset, const char *name)
{
    for (int32_t i = 0; i < dataset->n_inputs; i++)
        if (strcmp(dataset->inputs[i].name, name) == 0)
            return 1;
    return 0;
}

/* Refuses an entry of `columns` that names neither a column of the rows nor an input. */
static lathe_status unknown_column(const lathe_dataset *dataset, const char *name)
{
    char inputs[256] = "";
    for (int32_t i = 0; i < dataset->n_inputs; i++)
        (void)snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), ", %s",
                       dataset->inputs[i].name);
    return lathe_error(LATHE_E_CONFIG,
                       "columns.%s: no such column; there are text, prompt, completion, "
                       "completions, chosen, rejected, messages%s",
                       name, inputs);
}

/* The fields of the stage's inputs. */
static lathe_status find_inputs(lathe_layouts *l, const lathe_dataset *dataset,
                                const char **out_wrong)
{
    for (int32_t k = 0; k < dataset->n_input_columns; k++) {
        *out_wrong = dataset->input_columns[k].input;
        if (!has_input(dataset, *out_wrong))
            return unknown_column(dataset, *out_wrong);
    }
    for (int32_t i = 0; i < dataset->n_inputs; i++) {
        *out_wrong = dataset->inputs[i].name;
        const char *field = lathe_dataset_input_field(dataset, i);
        LATHE_TRY(number_field(l, field, &l->inputs[i]));
        l->other_inputs[i] = -1;
        for (size_t k = 0; k < N_OTHER_NAMES; k++)
            if (strcmp(field, other_names[k][0]) == 0)
                LATHE_TRY(number_field(l, other_names[k][1], &l->other_inputs[i]));
    }
    *out_wrong = NULL;
    return LATHE_OK;
}

/* Finds the layouts. After an error, *out_input is the stage's input in whose column the error is;
 * if it is NULL, the error is in *out_column. */
static lathe_status find(lathe_layouts *l, const lathe_dataset *dataset, int32_t rows,
                         int32_t *out_column, const char **out_input)
{
    int is_given = 0;
    *out_input = NULL;
    memset(l, 0, sizeof *l);
    l->n = 1;
    l->system = -1;
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        *out_column = c;
        l->need[c] = (uint8_t)lathe_row_kind_need(rows, dataset, c);
        is_given |= dataset->columns[c] || dataset->formats[c];
        if (l->need[c] != LATHE_COLUMN_UNUSED)
            LATHE_TRY(own_column(l, dataset, c));
    }
    if (!is_given && known_of(rows)->text)
        LATHE_TRY(add_known(l, rows));
    if (l->n == LATHE_N_LAYOUTS || dataset->as_chat > 0) /* for the chat template */
        LATHE_TRY(number_field(l, LATHE_RECORD_SYSTEM, &l->system));
    LATHE_TRY(find_messages(l, dataset, rows));
    return find_inputs(l, dataset, out_input);
}

lathe_status lathe_layouts_init(lathe_layouts *layouts, const lathe_dataset *dataset, int32_t rows)
{
    int32_t column;
    const char *input;
    return find(layouts, dataset, rows, &column, &input);
}

void lathe_layouts_fini(lathe_layouts *layouts)
{
    lathe_arena_fini(&layouts->arena);
    layouts->n = layouts->n_fields = 0;
}

lathe_status lathe_layouts_check(const lathe_dataset *dataset, int32_t rows, char out_inner[64])
{
    lathe_layouts layouts;
    int32_t column;
    const char *input;
    const lathe_status status = find(&layouts, dataset, rows, &column, &input);
    lathe_layouts_fini(&layouts);
    (void)snprintf(out_inner, 64, "%s.%s",
                   input == NULL && dataset->formats[column] ? "format" : "columns",
                   input ? input : lathe_column_name(column));
    return status;
}

int32_t lathe_layouts_choose(const lathe_layouts *layouts, uint32_t found, uint32_t filled)
{
    const lathe_layout *k = &layouts->list[LATHE_LAYOUT_KNOWN];
    if (layouts->n > 1 && (found & k->needs) == k->needs && !(filled & k->others))
        return LATHE_LAYOUT_KNOWN;
    return LATHE_LAYOUT_OWN;
}

/* Whether the list has a column that other programs use for conversations; its name, or NULL. */
static const char *conversation_of(const char *list)
{
    const lathe_record_key *key;
    for (int32_t i = 0; (key = lathe_record_key_get(i)) != NULL; i++) {
        const char *at = key->where & LATHE_RECORD_IS_TALK ? strstr(list, key->name) : NULL;
        const char end = at ? at[strlen(key->name)] : 'x';
        if (at && (at == list || at[-1] == ' ') && (end == '\0' || end == ','))
            return key->name;
    }
    return NULL;
}

lathe_status lathe_layouts_missing(const lathe_layouts *layouts, int32_t c,
                                   const lathe_format_part *part, const char *list)
{
    const char *conversation = conversation_of(list);
    const char *fields = *list ? list : "none", *column = lathe_column_name(c);
    if (layouts->is_format[c])
        return lathe_error_at(LATHE_E_CONFIG, "data", "format",
                              "no field \"%s\", which format.%s names; the fields are %s",
                              part->name, column, fields);
    if (conversation)
        return lathe_error_at(LATHE_E_CONFIG, "data", "columns",
                              "no column \"%s\"; the columns are %s; name it in columns.%s (\"%s\" "
                              "holds conversations, which %s)",
                              part->name, fields, column, conversation,
                              layouts->is_prompt
                                  ? "are not read"
                                  : "columns.messages names if they are lists of role and content");
    return lathe_error_at(LATHE_E_CONFIG, "data", "columns",
                          "no column \"%s\"; the columns are %s; name it in columns.%s, or make it "
                          "of them in format.%s",
                          part->name, fields, column, column);
}

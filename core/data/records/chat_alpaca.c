/* Reads records of LLaMA-Factory's alpaca form. */
#include "data/records/chat_alpaca.h"

#include "base/error.h"
#include "data/records/record_keys.h"

static lathe_status no_memory(void)
{
    return lathe_error(LATHE_E_NOMEM, "messages of a conversation");
}

/* The text of a field; *out NULL: it is empty, null or missing. */
static lathe_status text_of(const json_t *row, lathe_record_uses *uses, const char *field,
                            json_t **out)
{
    json_t *value = lathe_record_take(row, uses, field);
    *out = json_string_length(value) > 0 ? value : NULL;
    if (value == NULL || json_is_string(value) || json_is_null(value))
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "column \"%s\" is not a string", field);
}

static lathe_status add(json_t *list, const char *role, json_t *content)
{
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", content);
    return message && json_array_append_new(list, message) == 0 ? LATHE_OK : no_memory();
}

static lathe_status add_history(const json_t *row, lathe_record_uses *uses, json_t *list)
{
    json_t *history = lathe_record_take(row, uses, LATHE_RECORD_HISTORY), *turn;
    size_t i;
    int is_good = history == NULL || json_is_null(history) || json_is_array(history);
    json_array_foreach(history, i, turn) is_good = is_good && json_array_size(turn) == 2 &&
                                                   json_is_string(json_array_get(turn, 0)) &&
                                                   json_is_string(json_array_get(turn, 1));
    if (!is_good)
        return lathe_error(LATHE_E_CONFIG,
                           "column \"history\" is no list of pairs of strings, [question, "
                           "answer]");
    json_array_foreach(history, i, turn)
    {
        LATHE_TRY(add(list, "user", json_array_get(turn, 0)));
        LATHE_TRY(add(list, "assistant", json_array_get(turn, 1)));
    }
    return LATHE_OK;
}

/* Adds the messages up to the question. */
static lathe_status add_prompt(const json_t *row, lathe_record_uses *uses, json_t *list)
{
    json_t *system, *instruction, *input;
    LATHE_TRY(text_of(row, uses, LATHE_RECORD_SYSTEM, &system));
    LATHE_TRY(text_of(row, uses, LATHE_RECORD_INSTRUCTION, &instruction));
    LATHE_TRY(text_of(row, uses, LATHE_RECORD_INPUT, &input));
    if (system)
        LATHE_TRY(add(list, "system", system));
    LATHE_TRY(add_history(row, uses, list));
    json_t *question = instruction && input ? json_sprintf("%s\n%s", json_string_value(instruction),
                                                           json_string_value(input))
                       : instruction        ? json_incref(instruction)
                       : input              ? json_incref(input)
                                            : json_string("");
    const lathe_status status = question ? add(list, "user", question) : no_memory();
    json_decref(question);
    return status;
}

/* Replaces an answer, a text, by a list of its message. */
static lathe_status make_list(json_t *row, const char *field)
{
    json_t *list = json_array();
    lathe_status status = list ? add(list, "assistant", json_object_get(row, field)) : no_memory();
    if (status == LATHE_OK && json_object_set(row, field, list) != 0)
        status = no_memory();
    json_decref(list);
    return status;
}

lathe_status lathe_chat_alpaca_read(int as_messages, json_t *row, lathe_record_uses *uses)
{
    const char *const answers[] = {LATHE_RECORD_OUTPUT, lathe_column_name(LATHE_COLUMN_CHOSEN),
                                   lathe_column_name(LATHE_COLUMN_REJECTED)};
    json_t *answer = NULL, *list = json_array();
    lathe_status status = list ? add_prompt(row, uses, list) : no_memory();
    if (status != LATHE_OK)
        goto out;
    /* beside chosen and rejected, nothing reads it */
    status = text_of(row, as_messages ? uses : NULL, LATHE_RECORD_OUTPUT, &answer);
    if (status != LATHE_OK)
        goto out;
    if (as_messages && answer && (status = add(list, "assistant", answer)) != LATHE_OK)
        goto out;
    if (json_object_set(row, as_messages ? LATHE_RECORD_MESSAGES : LATHE_RECORD_INSTRUCTION,
                        list) != 0)
        status = no_memory();
out:
    json_decref(list);
    for (int i = 0; i < 3 && !as_messages && status == LATHE_OK; i++)
        if (json_is_string(json_object_get(row, answers[i])))
            status = make_list(row, answers[i]);
    return status;
}

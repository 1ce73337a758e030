/* Reads the arguments of commands that open a model. */
#include "cmd/main/model_args.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "session/session_state.h"

#define OPTION "--adapter"

lathe_status lathe_app_check_adapters(const lathe_args *args)
{
    if (lathe_args_value(args, "--use") && !lathe_args_each(args, OPTION, 0))
        return lathe_error(LATHE_E_ARG, "--use names one of several adapters; add " OPTION
                                        " NAME=FOLDER for each");
    for (int32_t i = 0; lathe_args_each(args, OPTION, i); i++) {
        const char *text = lathe_args_each(args, OPTION, i), *equals = strchr(text, '=');
        if (!equals)
            return lathe_error(LATHE_E_ARG, OPTION " \"%s\": expected NAME=FOLDER", text);
        if (equals[1] == '\0')
            return lathe_error(LATHE_E_ARG,
                               OPTION " \"%s\": the folder is missing; expected NAME=FOLDER", text);
    }
    return LATHE_OK;
}

/* The command's own settings, then those of the command line, which win: the last one counts. */
static lathe_status make_settings(const lathe_args *args, const char *const *own, lathe_edits *out)
{
    for (int32_t i = 0; own && own[i]; i += 2)
        if (!lathe_args_override(args, own[i])) /* one that takes the key out counts, too */
            lathe_edits_literal(out, LATHE_BY_COMMAND, own[i], own[i + 1]);
    lathe_edits_take(out, &args->edits, 0);
    return out->status;
}

static lathe_status make_adapters(const lathe_args *args, lathe_arena *arena,
                                  lathe_session_config *out)
{
    int32_t n = 0;
    LATHE_TRY(lathe_app_check_adapters(args));
    while (lathe_args_each(args, OPTION, n))
        n++;
    lathe_session_adapter *list = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *list);
    for (int32_t i = 0; list && i < n; i++) {
        const char *text = lathe_args_each(args, OPTION, i), *equals = strchr(text, '=');
        list[i] =
            (lathe_session_adapter){lathe_arena_strndup(arena, text, equals - text), equals + 1};
        if (!list[i].name)
            return LATHE_E_NOMEM;
    }
    out->adapters = list;
    out->n_adapters = n;
    out->use = lathe_args_value(args, "--use");
    return list ? LATHE_OK : LATHE_E_NOMEM;
}

/* The option of this command that sets a field of lathe_session_config, or NULL. */
static const char *option_of(const char *section, const char *key)
{
    static const char *const options[][2] = {
        {"data", "--data"}, {"adapters", OPTION}, {"use", "--use"}, {"weights", "--weights"}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (strcmp(section, LATHE_SESSION_SECTION) == 0 && strcmp(key, options[i][0]) == 0)
            return options[i][1];
    return NULL;
}

/* Appends the option's name to an error that is about a field of the session. */
static lathe_status name_option(lathe_status status)
{
    char text[4096];
    const char *option = option_of(lathe_error_section(), lathe_error_key());
    if (option == NULL)
        return status;
    (void)snprintf(text, sizeof text, "%s", lathe_error_message());
    return lathe_error_at(status, "", option, "%s (%s)", text, option);
}

lathe_status lathe_app_open_session(const lathe_args *args, int32_t purpose,
                                    const char *const *settings, const char *data,
                                    lathe_session **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_edits edits = {.n = 0};
    lathe_session_config config = {
        .size = (uint32_t)sizeof config, .purpose = purpose, .model = args->words[0], .data = data};
    lathe_status status = make_settings(args, settings, &edits);
    if (status != LATHE_OK)
        goto out;
    if ((status = make_adapters(args, &arena, &config)) != LATHE_OK)
        goto out;
    if (lathe_args_value(args, "--weights") &&
        (status = lathe_cli_weights(args, &config.weights)) != LATHE_OK)
        goto out;
    status = lathe__session_open_with(&config, &edits, out);
out:
    if (status != LATHE_OK)
        status = name_option(status);
    lathe_edits_fini(&edits);
    lathe_arena_fini(&arena);
    return status;
}

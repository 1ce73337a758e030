/* Refuses a checkpoint to resume from, with the key that is the cause. */
#include "run/resume/resume_refusal.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "config/config_changes.h"
#include "run/decide/run_check.h"

const char *lathe__resume_way_out(const lathe_checkpoint_settings *set)
{
    return set->resume && strcmp(set->resume, "auto") != 0
               ? "resume from another checkpoint with checkpoint.resume"
               : "choose another checkpoint.dir, or give --checkpoint.resume restart, to begin a "
                 "new "
                 "run";
}

void lathe__resume_split_name(const char *name, char section[64], char key[64])
{
    const size_t n = strcspn(name, ".");
    (void)snprintf(section, 64, "%.*s", (int)n, name);
    (void)snprintf(key, 64, "%s", name[n] ? name + n + 1 : "");
    if (strcmp(key, "plugin") == 0)
        (void)snprintf(key, 64, "name");
}

static const char *text_of(const lathe_buffer *b)
{
    return b->data ? b->data : "?";
}

lathe_status lathe__resume_refuse_value(lathe_resuming *r, const char *section, const char *key,
                                        const json_t *from, const json_t *to, const char *hint)
{
    lathe_buffer was = LATHE_BUFFER_INIT, is = LATHE_BUFFER_INIT;
    char name[160];
    (void)snprintf(name, sizeof name, "%s.%s", section, key);
    (void)json_object_set_new(r->told, name, json_true());
    const int is_new = from == NULL || json_is_null(from);
    lathe_change_value_put(from, &was);
    lathe_change_value_put(to, &is);
    const lathe_status status = lathe__run_refuse(
        r->run, section, key,
        "%s.%s is %s, but %s, from which the run would resume, was written %s%s: %s, %sor %s",
        section, key, text_of(&is), r->dir, is_new ? "without it" : "with ",
        is_new ? "" : text_of(&was), is_new ? "take it out" : "set it back", hint,
        lathe__resume_way_out(&r->run->set.checkpoint));
    lathe_buffer_fini(&was);
    lathe_buffer_fini(&is);
    r->n_refused++;
    return status == LATHE_E_CONFIG ? LATHE_OK : status;
}

lathe_status lathe__resume_refuse_change(lathe_resuming *r, const char *name, const json_t *change,
                                         const char *hint)
{
    char section[64], key[64];
    lathe__resume_split_name(name, section, key);
    return lathe__resume_refuse_value(r, section, key, json_object_get(change, "from"),
                                      json_object_get(change, "to"), hint);
}

/* hint: further advice, or "". */
static lathe_status refuse_said(lathe_resuming *r, const char *section, const char *key,
                                const char *changed, const char *hint)
{
    char said[1024];
    (void)snprintf(said, sizeof said, "%s", lathe_error_message());
    r->n_refused++;
    const lathe_status status =
        lathe__run_refuse(r->run, section, key, "%s%s%s; the run would resume from %s: %s%s%s",
                          said, changed[0] ? "; changed since then: " : "", changed, r->dir,
                          changed[0] ? "set these keys back, or " : "", hint,
                          lathe__resume_way_out(&r->run->set.checkpoint));
    return status == LATHE_E_CONFIG ? LATHE_OK : status;
}

/* Whether a configuration's entry of a section is a key of the run file; what its plugin is, is
 * none. */
static int is_key(const char *entry)
{
    return strcmp(entry, "plugin") != 0 && strcmp(entry, "version") != 0;
}

lathe_status lathe__resume_refuse_said(lathe_resuming *r, const char *section, const char *key,
                                       const char *changed)
{
    return refuse_said(r, section, key, changed, "");
}

lathe_status lathe__resume_refuse_model(lathe_resuming *r, const char *section, const char *key)
{
    char name[128], hint[256] = "";
    (void)snprintf(name, sizeof name, "%s.%s", section, key);
    if (lathe_change_effect(name) & LATHE_CHANGE_OBJECTIVE)
        (void)snprintf(hint, sizeof hint,
                       "put the former files back, set checkpoint.allow_changed = [\"%s\"] to "
                       "continue with another objective, or ",
                       name);
    return refuse_said(r, section, key, "", hint);
}

lathe_status lathe__resume_refuse_section(lathe_resuming *r, const char *section, const char *key)
{
    const size_t n = strlen(section);
    const char *name, *first = NULL;
    json_t *change;
    lathe_buffer list = LATHE_BUFFER_INIT;
    json_object_foreach(r->changes, name, change)
    {
        if (strncmp(name, section, n) != 0 || name[n] != '.' || !is_key(name + n + 1))
            continue;
        lathe_buffer_printf(&list, "%s%s ", first ? ", " : "", name);
        lathe_change_put(change, &list);
        (void)json_object_set_new(r->told, name, json_true());
        first = first ? first : name + n + 1;
    }
    const lathe_status status =
        lathe__resume_refuse_said(r, section, first ? first : key, list.data ? list.data : "");
    lathe_buffer_fini(&list);
    return status;
}

/* Refuses a checkpoint to resume from, with the key that is the cause. */
#ifndef LATHE_RUN_RESUME_REFUSAL_H
#define LATHE_RUN_RESUME_REFUSAL_H

#include <jansson.h>

#include "run/state/run_state.h"

/* One check. */
typedef struct lathe_resuming {
    lathe_run *run;
    const char *dir;      /* the checkpoint */
    json_t *before, *now; /* configurations; before NULL: not known */
    json_t *meta;         /* of the checkpoint's manifest */
    json_t *changes;      /* lathe_config_changes of the two */
    json_t *told;         /* the changes that were refused by name */
    int64_t n_refused;
} lathe_resuming;

/** Advice for a checkpoint that does not belong to the run. */
const char *lathe__resume_way_out(const lathe_checkpoint_settings *set);

/** Splits "model.rope_theta" in two; for a plugin the key is "name". */
void lathe__resume_split_name(const char *name, char section[64], char key[64]);

/** Refuses the new value of a key; `hint`: further advice, which ends in ", ", or "". Refusals are
 * counted; the status is LATHE_OK unless memory runs out. */
lathe_status lathe__resume_refuse_value(lathe_resuming *r, const char *section, const char *key,
                                        const json_t *from, const json_t *to, const char *hint);

/** Refuses a change of the configuration, {"from", "to"}, of "section.key". */
lathe_status lathe__resume_refuse_change(lathe_resuming *r, const char *name, const json_t *change,
                                         const char *hint);

/** Refuses with the message of the last error, at a key; `changed`: the keys that may be the
 *  cause, or "". */
lathe_status lathe__resume_refuse_said(lathe_resuming *r, const char *section, const char *key,
                                       const char *changed);

/** Like lathe__resume_refuse_said, at a key whose folder has another model than the run began with;
 * with the permission that the change needs, if there is one. */
lathe_status lathe__resume_refuse_model(lathe_resuming *r, const char *section, const char *key);

/** Like lathe__resume_refuse_said, at the first changed key of the section, and names all changed
 *  keys; at `key` if none changed. */
lathe_status lathe__resume_refuse_section(lathe_resuming *r, const char *section, const char *key);

#endif

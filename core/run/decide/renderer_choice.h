/* Chooses the renderer of a folder's chat template. */
#ifndef LATHE_RUN_RENDERER_CHOICE_H
#define LATHE_RUN_RENDERER_CHOICE_H

#include "chat/template/chat_template.h"
#include "plug/select.h"

/** Lets a renderer serve the template: "auto": the one with the highest score among those that
 *  agree with the template on all conversations of a trial; none: the template renders. "jinja":
 *  none. A name: that plugin, which must serve all conversations; it is warned of where it differs
 *  from the folder's template.
 *
 *  model_type  of config.json; NULL: not known
 *  values      of the named plugin's keys; NULL: it has none
 *  out         zeros, or the instance: borrowed by the template, freed by the caller after it
 *  out_why     one line (in arena), may be NULL
 *  Errors      LATHE_E_NOT_FOUND, LATHE_E_PLUGIN: there is no such plugin. */
lathe_status lathe_renderer_choose(lathe_registry *registry, const char *name,
                                   const lathe_value *values, const char *model_type,
                                   lathe_chat_template *chat, lathe_arena *arena,
                                   lathe_instance *out, const char **out_why);

#endif

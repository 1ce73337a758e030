/* The renderer that the folder of a model remembers, with which a run or a command begins. */
#ifndef LATHE_RUN_BEGIN_RENDERER_H
#define LATHE_RUN_BEGIN_RENDERER_H

#include <jansson.h>

#include "run/state/run_state.h"

/** A renderer that a folder remembers by name. */
typedef struct lathe_kept_renderer {
    json_t *keys;     /* "name" and the plugin's keys; NULL: none. The caller releases it. */
    const char *name; /* in keys */
    int32_t at;       /* index of its folder */
} lathe_kept_renderer;

/** Finds the first of the folders (an adapter's, then its model's; NULL: none) that remembers a
 *  renderer, and says so if that was named. registry: where its plugin must be; NULL: it is not
 *  looked for. LATHE_E_NOT_FOUND: it is not installed; the message says what to do. */
lathe_status lathe_kept_renderer_find(const char *const dirs[2], lathe_registry *registry,
                                      lathe_arena *arena, lathe_kept_renderer *out);

/** Adds [renderer] of the folder of model.adapter, or else of model.path (folder_renderer.h), to
 *  the settings of the run, and says so. The configuration must then be read again. *out_changed =
 *  0: neither remembers a renderer that was named, the run names a renderer or a template
 *  (data.chat_template), or a command opens a folder and has done this itself. LATHE_E_CONFIG: the
 *  renderer is not installed. */
lathe_status lathe__begin_renderer(lathe_run *run, int *out_changed);

#endif

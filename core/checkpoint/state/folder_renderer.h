/* The renderer that a folder remembers: the one that wrote the conversations of its training.
 *
 * A checkpoint has it as [renderer] of its run's configuration; a model that a command made from
 * others has it as "renderer" of its manifest's "meta", with the same keys. */
#ifndef LATHE_CHECKPOINT_FOLDER_RENDERER_H
#define LATHE_CHECKPOINT_FOLDER_RENDERER_H

#include <jansson.h>

#include "base/arena.h"
#include "lathe/status.h"

/** Reads the renderer of the folder `dir`, or of the checkpoint that this average/ is in: an object
 * with "name" and the plugin's keys; the name may be "auto". *out is NULL if the folder has no
 * manifest that can be read (a damaged one gives a warning), or the manifest names none; the caller
 * releases it. */
lathe_status lathe_folder_renderer(const char *dir, lathe_arena *arena, json_t **out);

/** Whether a renderer of lathe_folder_renderer was chosen by its name, "jinja" included. NULL: no.
 */
int lathe_renderer_is_named(const json_t *renderer);

#endif

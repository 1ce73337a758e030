/* The renderer of `lathe chat-template`: the one that is named, or that the folder remembers. */
#ifndef LATHE_CMD_SHOWN_RENDERER_H
#define LATHE_CMD_SHOWN_RENDERER_H

#include "chat/template/chat_template.h"
#include "config/config.h"

typedef struct lathe_shown_renderer {
    lathe_registry *registry;
    lathe_config *config;    /* of the renderer that the folder remembers; NULL: none */
    lathe_instance instance; /* zeros: the template renders */
    const char *why;         /* it was chosen; NULL: not known */
} lathe_shown_renderer;

/** The folder that `path` means: the latest checkpoint of a run's folder, else the path itself. */
const char *lathe_shown_folder(const char *path, lathe_arena *arena);

/** Loads the template of a folder or file with its renderer: `name`, or if that is NULL the one
 *  that the folder remembers (folder_renderer.h), or else "auto". Strings live in the arena.
 *
 *   out       zeros; to be ended with lathe_shown_renderer_fini after *out_chat, also after errors
 *   out_chat  the caller destroys it */
lathe_status lathe_shown_renderer_load(const char *path, const char *name, lathe_arena *arena,
                                       lathe_shown_renderer *out, lathe_chat_template **out_chat);
void lathe_shown_renderer_fini(lathe_shown_renderer *r);

#endif

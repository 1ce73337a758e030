/* Takes the renderer that a model's folder remembers. */
#ifndef LATHE_SESSION_SAVED_RENDERER_H
#define LATHE_SESSION_SAVED_RENDERER_H

#include "run/folder/folder_settings.h"
#include "session/model_request.h"

/** Adds [renderer] of the folder `dir`, or of `base` (NULL: none) if `dir` does not say how it was
 *  trained, as lathe_settings_add_renderer; nothing if the command line has renderer.name or
 *  data.chat_template.
 *  LATHE_E_CONFIG: the renderer is a plugin that is not installed. */
lathe_status lathe_session_use_renderer(const lathe_model_request *ask, const char *dir,
                                        const char *base, lathe_arena *arena,
                                        lathe_setting_list *io_settings);

#endif

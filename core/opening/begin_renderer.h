/* Takes the renderer that the folder of the model remembers with which a run begins. */
#ifndef LATHE_OPENING_BEGIN_RENDERER_H
#define LATHE_OPENING_BEGIN_RENDERER_H

#include "run/run_state.h"

/** Appends [renderer] of the folder of model.adapter, or else of model.path (folder_renderer.h), to
 *  the settings of the run, and says so. The configuration must then be read again. *out_changed =
 *  0: neither remembers a renderer that was named, the run names a renderer or a template
 *  (data.chat_template), or a command opens a folder and has done this itself. LATHE_E_CONFIG: the
 *  renderer is not installed. */
lathe_status lathe__begin_renderer(lathe_run *run, int *out_changed);

#endif

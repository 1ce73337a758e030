/* Draws one frame of `lathe watch`: the state of a run on a canvas. */
#ifndef LATHE_VIEW_WATCH_FRAME_H
#define LATHE_VIEW_WATCH_FRAME_H

#include "view/canvas.h"
#include "view/run_view.h"

/** Draws the run onto a blank canvas of any size. is_live: keys are read, and the frame shows
 *  which. LATHE_E_NOMEM. */
lathe_status lathe_watch_draw(lathe_canvas *c, const lathe_run_view *v, int32_t is_live);

#endif

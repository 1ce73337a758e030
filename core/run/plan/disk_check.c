/* Checks before the first step whether the checkpoints will fit on the disk. */
#include "run/plan/disk_check.h"

#include "base/error.h"
#include "checkpoint/state/checkpoint_info.h"
#include "checkpoint/state/disk_fit.h"
#include "run/state/run_saved.h"

/* The step that the run resumes from; 0: it begins. */
static int64_t first_step(const lathe_run *run)
{
    json_t *meta = NULL;
    const char *dir = run->checkpoints.resume_checked;
    if (dir && lathe_checkpoint_meta(dir, &meta) != LATHE_OK)
        lathe_error_clear(); /* resuming says it */
    const int64_t step = (int64_t)json_integer_value(json_object_get(meta, "step"));
    json_decref(meta);
    return step;
}

/* Reports checkpoints that do not fit: a run that could write none is not started. */
static lathe_status report(lathe_run *run, const lathe_saved_state *saved,
                           const lathe_disk_fit *fit)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    if (fit->n_room < 1)
        lathe_disk_fit_none_text(saved, fit, &text);
    else
        lathe_disk_fit_text(saved, fit, &text);
    lathe_status status = text.status;
    if (status == LATHE_OK && fit->n_room < 1)
        status = lathe__run_refuse(run, "checkpoint", "dir", "%s", text.data);
    else if (status == LATHE_OK)
        lathe__run_warn(run, "checkpoint", "dir", "the disk will be full: %s", text.data);
    lathe_buffer_fini(&text);
    return status;
}

lathe_status lathe__disk_check(lathe_run *run)
{
    lathe_saved_state saved = *lathe__run_saved(run);
    lathe_counters at = *saved.at;
    lathe_disk_fit fit;
    at.step = first_step(run);
    saved.at = &at;
    if (saved.max_steps > 0 && at.step >= saved.max_steps)
        return LATHE_OK; /* nothing is left to do, or to write */
    if (lathe_disk_fit_check(&saved, &fit) != LATHE_OK) {
        lathe_error_clear(); /* what is wrong with the folder is said elsewhere */
        return LATHE_OK;
    }
    return fit.fits ? LATHE_OK : report(run, &saved, &fit);
}

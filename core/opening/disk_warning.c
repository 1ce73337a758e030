/* Warns before the first step if the checkpoints will not fit on the disk. */
#include "opening/disk_warning.h"

#include "base/error.h"
#include "checkpoint/checkpoint_info.h"
#include "checkpoint/disk_fit.h"
#include "run/run_saved.h"

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

lathe_status lathe__disk_warn(lathe_run *run)
{
    lathe_saved_state saved = *lathe__run_saved(run);
    lathe_counters at = *saved.at;
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_disk_fit fit;
    at.step = first_step(run);
    saved.at = &at;
    if (lathe_disk_fit_check(&saved, &fit) != LATHE_OK) {
        lathe_error_clear(); /* what is wrong with the folder is said elsewhere */
        return LATHE_OK;
    }
    if (!fit.fits)
        lathe_disk_fit_text(&saved, &fit, &text);
    if (text.len > 0 && text.status == LATHE_OK)
        lathe__run_warn(run, "checkpoint", "dir", "the disk will be full: %s", text.data);
    const lathe_status status = text.status;
    lathe_buffer_fini(&text);
    return status;
}

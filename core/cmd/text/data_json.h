/* Writes the JSON output of lathe data, which describes a run's data. */
#ifndef LATHE_CMD_DATA_JSON_H
#define LATHE_CMD_DATA_JSON_H

#include "base/buffer.h"
#include "lathe/lathe.h"

/** Appends one object for a run that was opened with LATHE_OPEN_DATA: "datasets", "training" and
 *  "validation" (null without a validation split). */
lathe_status lathe_data_json_run(lathe_run *run, lathe_buffer *out);

/** Appends one object for a folder of shards: "shards", each with "damaged" (null, or a
 *  description). *out_bad: number of damaged shards. LATHE_E_CONFIG: the folder has no shards. */
lathe_status lathe_data_json_folder(const char *dir, lathe_buffer *out, int64_t *out_bad);

#endif

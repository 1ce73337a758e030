/* libFuzzer target: any bytes as a metrics.jsonl that grows while it is read, cut anywhere. */
#include <string.h>

#include "fuzz/fuzz_file.h"
#include "metrics/metrics_read.h"

static void check_row(void *arg, const lathe_metrics_row *row)
{
    const lathe_metrics_reader *reader = arg;
    if (row == NULL)
        return;
    if (row->step < 0 || row->n < 0 || row->n > LATHE_METRICS_MAX_KEYS)
        abort();
    for (int32_t i = 0; i < row->n; i++)
        if (row->keys[i] < 0 || row->keys[i] >= lathe_metrics_reader_n_keys(reader) ||
            strlen(lathe_metrics_reader_key(reader, row->keys[i])) > LATHE_METRICS_MAX_LINE)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_metrics_reader *reader = NULL;
    const size_t cut = size > 0 ? data[0] % size : 0;
    const fuzz_file file = fuzz_file_open(data, cut);
    if (lathe_metrics_reader_create(file.path, &reader) != LATHE_OK)
        abort();
    if (lathe_metrics_reader_poll(reader, check_row, reader) != LATHE_OK)
        abort();
    if (write(file.fd, data + cut, size - cut) != (ssize_t)(size - cut))
        abort();
    (void)lathe_metrics_reader_poll(reader, check_row, reader);
    lathe_metrics_reader_destroy(reader);
    fuzz_file_close(&file);
    return 0;
}

/* libFuzzer target: any bytes as a dataset of a JSON array of records. */
#include "fuzz/fuzz_dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_dataset(LATHE_DATASET_JSON, "json", data, size);
}

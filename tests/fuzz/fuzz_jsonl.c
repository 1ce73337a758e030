/* libFuzzer target: any bytes as a dataset of JSON lines. */
#include "fuzz/fuzz_dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_dataset(LATHE_DATASET_JSONL, "jsonl", data, size);
}

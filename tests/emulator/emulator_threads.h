/* Runs a grid of blocks on the calling thread; see emulator_threads.cpp. */
#ifndef LATHE_EMULATOR_THREADS_H
#define LATHE_EMULATOR_THREADS_H

#include <cstddef>
#include <cstdint>

/** Calls thread(args) for each thread of each block. */
void emulator_run_grid(const char *name, int64_t blocks, int threads, void (*thread)(const void *),
                       const void *args, size_t args_bytes);

#endif

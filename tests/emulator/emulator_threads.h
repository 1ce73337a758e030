/* Runs a grid of blocks on the calling thread; see emulator_threads.cpp. */
#ifndef LATHE_EMULATOR_THREADS_H
#define LATHE_EMULATOR_THREADS_H

#include <cstdint>
#include <functional>

void emulator_run_grid(const char *name, int64_t blocks, int threads,
                       const std::function<void()> &thread);

#endif

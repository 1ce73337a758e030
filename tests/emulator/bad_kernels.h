/* Kernels that each break one rule of the GPU, for test_emulator_rules.c. */
#ifndef LATHE_BAD_KERNELS_H
#define LATHE_BAD_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/** Runs kernel `name` on the emulated GPU to its end; returns 0 if there is no such kernel. */
int bad_kernel_run(const char *name);

#ifdef __cplusplus
}
#endif

#endif

/* Kernels that break one rule of the GPU each, for test_emulator_rules.c. */
#ifndef LATHE_BAD_KERNELS_H
#define LATHE_BAD_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/** Runs kernel `name` on the emulated GPU to its end; 0: there is none. */
int bad_kernel_run(const char *name);

#ifdef __cplusplus
}
#endif

#endif

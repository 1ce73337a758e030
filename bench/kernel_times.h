/* What a GPU is busy with, told by CUPTI's records of kernels, copies and fills: their times are the device's own. */
#ifndef LATHE_BENCH_KERNEL_TIMES_H
#define LATHE_BENCH_KERNEL_TIMES_H

/** Records from now on; before the first use of CUDA in the process. NULL, or why there are none: CUPTI is not
 *  installed, was not there at the build, or refuses. */
const char *kernel_times_open(void);

/** Forgets what was recorded. The device must be idle. */
void kernel_times_reset(void);

/** Seconds since the reset in which at least one kernel, copy or fill ran; the device must be idle.
 *  *out_kernels: how many kernels. 0: nothing was recorded. */
double kernel_times_busy(int *out_kernels);

/** Prints, behind "# ", the `most` names that took longest since the reset: ms, share of `seconds`, runs. */
void kernel_times_print(double seconds, int most);

/** Records no longer. */
void kernel_times_close(void);

#endif

/* What stands in for a plugin's fatbin on the emulated GPU: its kernels by name. */
#ifndef LATHE_EMULATOR_IMAGE_H
#define LATHE_EMULATOR_IMAGE_H

#define EMULATOR_IMAGE_MAGIC "EMULATED"

typedef struct emulator_kernel {
    const char *name;              /* NULL ends the list */
    void (*run)(const void *args); /* one thread; args: the kernel's struct, copied at the launch */
    unsigned long long args_bytes;
} emulator_kernel;

typedef struct emulator_image {
    char magic[8];
    const emulator_kernel *kernels;
} emulator_image;

#endif

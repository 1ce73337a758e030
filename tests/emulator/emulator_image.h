/* Replaces a plugin's fatbin on the emulated GPU: the plugin's kernels by name. */
#ifndef LATHE_EMULATOR_IMAGE_H
#define LATHE_EMULATOR_IMAGE_H

#define EMULATOR_IMAGE_MAGIC "EMULATED"

typedef struct emulator_kernel {
    const char *name; /* NULL ends the list */
    /* runs one thread; args: the kernel's struct, copied at the launch */
    void (*run)(const void *args);
    unsigned long long args_bytes;
} emulator_kernel;

typedef struct emulator_image {
    char magic[8];
    const emulator_kernel *kernels;
} emulator_image;

#endif

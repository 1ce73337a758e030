/* A slow disk, by LD_PRELOAD: each fsync takes 0.4 s more. */
#include <dlfcn.h>
#include <time.h>

int fsync(int fd);

int fsync(int fd)
{
    const struct timespec pause = {0, 400000000};
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    (void)nanosleep(&pause, NULL);
    return real(fd);
}

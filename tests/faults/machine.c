/* Preloaded into nodes: a wall clock that can be set and a disk that can be slow, by a file named after the process.

   The file holds two numbers of 64 bits: nanoseconds added to the wall clock, and nanoseconds that each sync takes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *control;
static int (*real_clock)(clockid_t, struct timespec *);
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);
static int (*real_msync)(void *, size_t, int);

__attribute__((constructor)) static void prepare(void) {
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_msync = dlsym(RTLD_NEXT, "msync");
    const char *folder = getenv("FAULTS_MACHINE");
    char path[4096];
    if (folder == NULL || snprintf(path, sizeof path, "%s/%d", folder, (int)getpid()) >= (int)sizeof path) return;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (ftruncate(file, 16) == 0) {
        void *page = mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
        if (page != MAP_FAILED) control = page;
    }
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int result = real_clock(clock, out);
    if (result == 0 && control != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t total = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + control[0];
        out->tv_sec = total / 1000000000;
        out->tv_nsec = total % 1000000000;
    }
    return result;
}

static void be_slow(void) {
    if (control != NULL && control[1] > 0) {
        struct timespec rest = {control[1] / 1000000000, control[1] % 1000000000};
        nanosleep(&rest, NULL);
    }
}

int fdatasync(int file) { be_slow(); return real_fdatasync(file); }
int fsync(int file) { be_slow(); return real_fsync(file); }
int msync(void *start, size_t size, int flags) { be_slow(); return real_msync(start, size, flags); }

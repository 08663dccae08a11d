import { execFileSync } from 'node:child_process'
import { cpSync, readdirSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import { imageDir } from '../support/images.ts'

/**
 * Lies in front of the C library of `criu lazy-pages`. That brings single pages that a process touched, and when nobody did, larger
 * pieces of the others. As long as the file `HOLD` exists, these are refused as if the process changed its memory map, and tried again
 * when nobody has touched a page for 5 ms.
 */
const shim = `
#include <dlfcn.h>
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>
static int is_held(void) {
  return access(getenv("HOLD"), F_OK) == 0;
}
int epoll_wait(int epoll, struct epoll_event *events, int max, int timeout) {
  int (*real)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, "epoll_wait");
  return real(epoll, events, max, timeout == 0 && is_held() ? 5 : timeout);
}
int ioctl(int fd, unsigned long request, ...) {
  int (*real)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
  va_list more;
  va_start(more, request);
  void *argument = va_arg(more, void *);
  va_end(more);
  if (request == UFFDIO_COPY && ((struct uffdio_copy *)argument)->len > (size_t)getpagesize() && is_held()) {
    errno = EAGAIN;
    return -1;
  }
  return real(fd, request, argument);
}`

export interface HeldCriu {
  /** Those of setup with another CRIU, which can be told to hold back what nobody asks for. */
  imageDir: string
  /** Until the returned function has run, memory that nobody touches does not come. */
  hold: () => Promise<() => Promise<void>>
}

/** Makes it in an empty folder, which is the caller's. What it does before a driver takes it on is never held back. */
export function makeHeldCriu(folder: string): HeldCriu {
  const hold = `${folder}/hold`
  const images = wrapCriu(folder, shim, `case $1:$PWD in lazy-pages:*/memory/runs/*) preload HOLD='${hold}' ;; esac`)
  return {
    imageDir: images,
    hold: async () => {
      await writeFile(hold, '')
      return () => rm(hold, { force: true })
    },
  }
}

/** Lies in front of the C library of a CRIU that knows nothing of the locks that it has saved. */
const forgetful = `
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#define FORGET(name)                                                    \\
  int name(int folder, const char *path, int flags, ...) {              \\
    int (*real)(int, const char *, int, mode_t) = dlsym(RTLD_NEXT, #name); \\
    va_list more;                                                       \\
    va_start(more, flags);                                              \\
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;           \\
    va_end(more);                                                       \\
    if (!(flags & O_CREAT) && strcmp(path, "filelocks.img") == 0) {     \\
      errno = ENOENT;                                                   \\
      return -1;                                                        \\
    }                                                                   \\
    return real(folder, path, flags, mode);                             \\
  }
FORGET(openat)
FORGET(openat64)`

/**
 * The images of setup with a CRIU that loses all locks at a restore and has none of the changes, in an empty folder, which is the
 * caller's. Returns their folder.
 */
export function makeForgetfulCriu(folder: string): string {
  const images = wrapCriu(folder, forgetful, 'preload')
  for (const change of readdirSync(`${images}/criu/changes`)) rmSync(`${images}/criu/${change}`, { force: true })
  return images
}

/** `condition`: a shell line that calls `preload`, with variables to set, where the library is wanted. */
function wrapCriu(folder: string, library: string, condition: string): string {
  const images = `${folder}/images`
  cpSync(realpathSync(`${imageDir}/criu`), `${images}/criu`, { recursive: true })
  for (const name of readdirSync(imageDir)) {
    if (name !== 'criu') symlinkSync(realpathSync(`${imageDir}/${name}`), `${images}/${name}`)
  }
  writeFileSync(`${folder}/shim.c`, library)
  const options = ['-D_GNU_SOURCE', '-shared', '-fPIC', '-o', `${folder}/shim.so`, `${folder}/shim.c`]
  execFileSync('gcc', options, { stdio: 'pipe' })
  const program = `#!/bin/sh
preload() { export LD_PRELOAD='${folder}/shim.so' "$@"; }
${condition}
exec '${realpathSync(`${imageDir}/criu/criu`)}' "$@"
`
  writeFileSync(`${images}/criu/criu`, program, { mode: 0o755 })
  return images
}

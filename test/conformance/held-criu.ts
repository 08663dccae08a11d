import { execFileSync } from 'node:child_process'
import { cpSync, readdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import { imageDir } from '../support/images.ts'

/**
 * Lies in front of the C library of `criu lazy-pages`. That asks without waiting whether a process touched a page, and brings
 * some of the others when none did: 64 KiB more each time. As long as the file `HOLD` exists, it waits 100 ms before it does.
 * For ever would not do: CRIU leaves a page that is touched in the moment of a fork to the others.
 */
const shim = `
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
int epoll_wait(int epoll, struct epoll_event *events, int max, int timeout) {
  int (*real)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, "epoll_wait");
  const char *hold = getenv("HOLD");
  int found = real(epoll, events, max, timeout);
  for (int turn = 0; turn < 20 && found == 0 && timeout == 0 && access(hold, F_OK) == 0; turn++) found = real(epoll, events, max, 5);
  return found;
}`

export interface HeldCriu {
  /** Those of setup with another CRIU, which can be told to hold back what nobody asks for. */
  imageDir: string
  /** Until the returned function has run, memory that nobody touches comes so slowly that 160 MiB take 7 s. */
  hold: () => Promise<() => Promise<void>>
}

/** Makes it in an empty folder, which is the caller's. What it does before a driver takes it on is never held back. */
export function makeHeldCriu(folder: string): HeldCriu {
  const images = `${folder}/images`
  const hold = `${folder}/hold`
  cpSync(realpathSync(`${imageDir}/criu`), `${images}/criu`, { recursive: true })
  for (const name of readdirSync(imageDir)) {
    if (name !== 'criu') symlinkSync(realpathSync(`${imageDir}/${name}`), `${images}/${name}`)
  }
  writeFileSync(`${folder}/held.c`, shim)
  const options = ['-D_GNU_SOURCE', '-shared', '-fPIC', '-o', `${folder}/held.so`, `${folder}/held.c`]
  execFileSync('gcc', options, { stdio: 'pipe' })
  const real = realpathSync(`${imageDir}/criu/criu`)
  const program = `#!/bin/sh
case $1:$PWD in lazy-pages:*/memory/runs/*) export LD_PRELOAD='${folder}/held.so' HOLD='${hold}' ;; esac
exec '${real}' "$@"
`
  writeFileSync(`${images}/criu/criu`, program, { mode: 0o755 })
  return {
    imageDir: images,
    hold: async () => {
      await writeFile(hold, '')
      return () => rm(hold, { force: true })
    },
  }
}

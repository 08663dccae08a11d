import { closeSync, openSync, readFileSync, writeSync } from 'node:fs'
import { statOf } from './proc.ts'

/**
 * Takes a variable out of the environment of this process; the empty string when it is not set.
 *
 * `/proc/PID/environ` still shows the initial environment, to every process of the same user and to tools that read files in this process.
 * So the value is overwritten there. Where the kernel does not permit that, it stays readable.
 */
export function takeFromEnvironment(name: string): string {
  const value = process.env[name] ?? ''
  // First, so that nothing looks the variable up where it is overwritten.
  delete process.env[name]
  if (value !== '') {
    try {
      overwriteAtStart(name)
    } catch (error) {
      console.error(error)
    }
  }
  return value
}

/** The position of `env_start` among the fields of `statOf`. */
const envStartField = 47

function overwriteAtStart(name: string): void {
  const environment = readFileSync('/proc/self/environ', 'latin1')
  const start = Number(statOf(process.pid)?.[envStartField])
  if (!Number.isSafeInteger(start) || start === 0) throw new Error('/proc does not tell where the environment is.')
  const memory = openSync('/proc/self/mem', 'r+')
  try {
    let offset = 0
    for (const entry of environment.split('\0')) {
      if (entry.startsWith(`${name}=`)) writeSync(memory, Buffer.alloc(entry.length), 0, entry.length, start + offset)
      offset += entry.length + 1
    }
  } finally {
    closeSync(memory)
  }
}

import { readFileSync } from 'node:fs'

/**
 * Reads a small file of the kernel, or one of many that are read together, without yielding: a read takes microseconds, an iteration of the
 * event loop takes longer. Undefined when the file cannot be read.
 */
export function readNow(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return undefined
  }
}

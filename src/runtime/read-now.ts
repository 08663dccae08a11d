import { readFileSync } from 'node:fs'

/**
 * A small file of the kernel, or of a folder that is read as a whole, without yielding: a read takes microseconds, and hundreds of turns
 * of the event loop take longer than hundreds of reads. Undefined when it cannot be read.
 */
export function readNow(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return undefined
  }
}

import { readFileSync } from 'node:fs'

let current: string | undefined

/** Names this boot of the machine; the next one has another. */
export function bootId(): string {
  current ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  return current
}

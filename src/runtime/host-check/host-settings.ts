import { readdir, readFile, writeFile } from 'node:fs/promises'

const forwardingFile = '/proc/sys/net/ipv4/ip_forward'

/** Notes what a driver switches on for the whole host; the function that it returns switches it back unless a server needs it. */
export async function settingsAsFound(): Promise<() => Promise<void>> {
  const before = await readFile(forwardingFile, 'utf8')
  return async () => {
    const bridges = (await readdir('/sys/class/net')).filter((name) => /^atl[0-9a-f]{8}$/.test(name))
    if (before.trim() === '0' && bridges.length === 0) await writeFile(forwardingFile, before)
  }
}

import { statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { HostNames } from '../host-names.ts'

/** Size of the disk pool of a running server, and what sandboxes can still write, which a fuller disk below the pool's file bounds too. */
export async function poolSpace(dataDir: string): Promise<{ bytes: number; availableBytes: number }> {
  const { poolDir, poolFile } = new HostNames(dataDir)
  const [pool, below] = await Promise.all([statfs(poolDir), statfs(dirname(poolFile))])
  const availableBytes = Math.min(pool.bavail * pool.bsize, below.bavail * below.bsize)
  return { bytes: pool.blocks * pool.bsize, availableBytes }
}

import { Readable } from 'node:stream'
import { ServiceError } from '../../errors.ts'
import { isTarHeader } from '../../protocol/tar-reader.ts'
import { asRoot, BuildSandbox } from '../build/sandbox.ts'
import { decompressed } from '../contexts/decompressed.ts'

/** Those that are not decompressed here, by the first bytes of a file. */
const magics = { bzip2: '425a68', xz: 'fd377a585a00' } as const

type Foreign = keyof typeof magics

const tarBlockBytes = 512

/**
 * The tar in an archive that `ADD` unpacks, plain or compressed; undefined for a file that holds none, whatever its name, also for one that
 * begins with zeros as an empty archive does: it may be the image of a disk. Node has neither xz nor
 * bzip2: those are decompressed by Python in a sandbox of the installed image, which bounds what they make and what their decoders may do. Destroy
 * the stream if it is not read to its end.
 */
export async function tarIn(read: () => Readable, build: BuildSandbox): Promise<Readable | undefined> {
  const start = (await firstBytes(read(), tarBlockBytes)).toString('hex')
  for (const compression of ['bzip2', 'xz'] as const)
    if (start.startsWith(magics[compression])) return await tarFromSandbox(read, compression, build)
  const open = () => Readable.from(decompressed(read()))
  return isTarHeader(await firstBytes(open(), tarBlockBytes).catch(() => Buffer.alloc(0))) ? open() : undefined
}

async function firstBytes(source: Readable, count: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes >= count) break
    }
  } finally {
    source.destroy()
  }
  return Buffer.concat(chunks).subarray(0, count)
}

/** Exits with 3 for a file that holds no tar. */
const decompress = `
import bz2, lzma, shutil, sys, tarfile
try:
    with {'xz': lzma, 'bzip2': bz2}[sys.argv[1]].open('/tmp/packed') as source, open('/tmp/tar', 'wb') as target:
        shutil.copyfileobj(source, target, 1 << 20)
except (EOFError, ValueError, lzma.LZMAError):
    sys.exit(3)
except OSError as error:
    sys.exit(4 if error.errno else 3)
try:
    sys.exit(0 if tarfile.open('/tmp/tar', 'r:').next() else 3)
except tarfile.TarError:
    sys.exit(3)`

async function tarFromSandbox(
  read: () => Readable,
  compression: Foreign,
  { scope }: BuildSandbox,
): Promise<Readable | undefined> {
  const { context, orgId, signal } = scope
  const { exec, files } = context.sandboxes
  const stack = new AsyncDisposableStack()
  try {
    const sandbox = stack.use(await BuildSandbox.start(scope, { image: 'base' }))
    await files.write(orgId, sandbox.id, '/tmp/packed', read(), asRoot)
    const args = ['-c', decompress, compression]
    const timeoutSeconds = context.limits.stepMs / 1000
    const { exitCode } = await exec.run(
      orgId,
      sandbox.id,
      { cmd: 'python3', args, timeoutSeconds, ...asRoot },
      { signal },
    )
    if (exitCode === 3) return undefined
    if (exitCode !== 0) throw new ServiceError('build_failed', `an archive (${compression}) could not be decompressed`)
    const { body } = await files.read(orgId, sandbox.id, '/tmp/tar', asRoot)
    const kept = stack.move()
    body.once('close', () => void kept.disposeAsync())
    return body
  } finally {
    await stack.disposeAsync()
  }
}

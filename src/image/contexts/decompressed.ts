import { pipeline } from 'node:stream/promises'
import { constants, createGunzip, createZstdDecompress } from 'node:zlib'
import { ServiceError } from '../../errors.ts'

const pieceBytes = 64 * 1024
/** 8 MiB: more than `zstd -19` asks for. `--long` and `--ultra` would cost each upload up to 128 MiB. */
const zstdWindowLogMax = 23

const zstdMagic = '28b52ffd'
const gzipMagic = '1f8b'
const magicBytes = 4

/**
 * An archive as it was before gzip or zstd, by its content; others pass as they are. Throws `invalid_request` for damaged ones. The archive is
 * read as fast as the result is.
 */
export async function* decompressed(archive: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const chunks = archive[Symbol.asyncIterator]()
  let first = Buffer.alloc(0)
  try {
    while (first.length < magicBytes) {
      const { value, done } = await chunks.next()
      if (done) break
      first = Buffer.concat([first, value])
    }
    const rest = async function* () {
      yield first
      yield* { [Symbol.asyncIterator]: () => chunks }
    }
    const unzip = unzipOf(first.toString('hex', 0, magicBytes))
    if (unzip === undefined) yield* rest()
    else yield* through(rest(), unzip)
  } finally {
    await chunks.return?.()
  }
}

function unzipOf(magic: string): (NodeJS.ReadWriteStream & { destroy(): void }) | undefined {
  if (magic.startsWith(gzipMagic)) return createGunzip({ chunkSize: pieceBytes })
  if (magic !== zstdMagic) return undefined
  return createZstdDecompress({
    chunkSize: pieceBytes,
    params: { [constants.ZSTD_d_windowLogMax]: zstdWindowLogMax },
  })
}

async function* through(
  archive: AsyncIterable<Uint8Array>,
  unzip: NodeJS.ReadWriteStream & { destroy(): void },
): AsyncGenerator<Uint8Array> {
  // Its error is that of the iteration.
  const fed = pipeline(archive, unzip).catch(() => undefined)
  try {
    yield* unzip as AsyncIterable<Buffer>
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    if (!/^(?:Z_|ZSTD_)/.test(code)) throw error
    throw new ServiceError('invalid_request', `the archive is damaged: ${message}`, { cause: error })
  } finally {
    unzip.destroy()
    await fed
  }
}

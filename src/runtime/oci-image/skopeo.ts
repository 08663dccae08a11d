import { ServiceError } from '../../errors.ts'
import { OutOfMemory, type Job } from '../cgroups/work-groups.ts'
import { CommandError, reportable, type CommandOptions } from '../command.ts'
import { imageTooLarge, refuseImage, type ImageField } from './limits.ts'

const reportedChars = 300

/** Whom skopeo talks to, and the input that named it. */
interface Peer {
  host: string
  field: Extract<ImageField, 'image.oci' | 'reference'>
}

/** Runs skopeo and returns its output. Throws what went wrong in words, without addresses. */
export async function skopeo(
  job: Job,
  peer: Peer,
  argv: readonly [string, ...string[]],
  options: CommandOptions,
): Promise<string> {
  const { field } = peer
  try {
    return await job.run(argv, options)
  } catch (error) {
    if (error instanceof OutOfMemory) throw imageTooLarge(field, `cannot be sent or fetched: ${error.message}`, error)
    if (!(error instanceof CommandError)) throw error
    throw reasonOf(peer, error)
  }
}

export function unavailable(host: string, message: string, cause?: unknown): ServiceError {
  return new ServiceError('unavailable', `the registry ${host} ${message}`, { cause })
}

export function wrongDigest(host: string, field: ImageField = 'image.oci'): ServiceError {
  return refuseImage(field, `has another content in the registry ${host} than its digest says`)
}

/** Finds the kind of a fault in the words of skopeo, which has no codes. */
function reasonOf({ host, field }: Peer, error: CommandError): ServiceError {
  const { outcome, stderr } = error
  const isPush = field === 'reference'
  if (outcome === 'is not installed') {
    const what = isPush ? 'pushes' : 'fetches'
    return new ServiceError('unavailable', `skopeo is not installed, which ${what} images: run npm run setup`)
  }
  if (outcome === 'took too long') return unavailable(host, 'does not answer in time', error)
  if (/quota exceeded|no space left/i.test(stderr)) return imageTooLarge(field, 'does not fit into its room', error)
  if (/wrote too much/.test(outcome)) return imageTooLarge(field, 'has too large a manifest', error)
  if (/digest did not match|does not match|mismatch/i.test(stderr)) return wrongDigest(host, field)
  if (!isPush && /manifest unknown|name unknown|not found|status 404|status: 404/i.test(stderr)) {
    return refuseImage(field, `is not in the registry ${host}`, error)
  }
  if (/unauthorized|authentication required|denied|forbidden|status:? 40[13]/i.test(stderr)) {
    const what = isPush ? 'written to' : 'read from'
    return refuseImage(
      field,
      `may not be ${what} the registry ${host}: its credentials are missing or do not allow it`,
      error,
    )
  }
  const does = isPush ? 'does not take the image' : 'does not give the image'
  return unavailable(host, `${does}: ${reportable(withoutAddresses(messageIn(stderr)), [], reportedChars)}`, error)
}

/** The message of its last line, `time="…" level=fatal msg="…"`. */
export function messageIn(stderr: string): string {
  const [said = ''] = stderr.trim().split('\n').slice(-1)
  return /msg="?(.*?)"?$/.exec(said)?.[1]?.replaceAll(/\\(["\\])/g, '$1') ?? said
}

const address = String.raw`(?:\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:.%\w]+\]):\d+`
/** `on 10.0.0.2:53` of a look-up, `read udp 10.0.0.5:4444->10.0.0.2:53`, `dial tcp 10.1.2.3:443`. */
const addresses = new RegExp(String.raw`(?: on)? ${address}(?:->${address})?`, 'gi')

/** The addresses of this host, of its name server and of what a name leads to are no client's business. */
export function withoutAddresses(words: string): string {
  return words.replaceAll(addresses, '')
}
